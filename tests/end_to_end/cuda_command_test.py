"""The program on a GPU, real or emulated; skipped where there is none.

cuda_command_test.py PROGRAM [CASE...]
"""

import os
import re
import signal
import subprocess
import sys

from commands import BY_HAND, PROGRAM, SHAPE, SKIPPED, Folder, main, spool

CUDA = ["--device", "cuda"]


class OnCuda(Folder):
    def done(self, *words, **more):
        status, printed, errors = self.train(*CUDA, *words, **more)
        self.assertEqual(status, 0, errors)
        return printed

    def test_peak_is_foretold_and_suffices_as_budget(self):
        printed = self.done()
        peak = self.foretold(printed)
        self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
        self.assertRegex(printed, r"f32 on cuda:0 \(.+\): 2 rows of 16 tokens\n")
        self.done("--memory", peak, out=self.folder / "exact")
        kept = [*BY_HAND, "--optimizer-state", "device"]  # a GPU's state could be streamed
        tight = self.train(*CUDA, *kept, "--memory", peak - 1, out=self.folder / "tight")
        self.refused(tight, 1, str(peak), "a batch of 1 would fit")
        lowered = self.train(*CUDA, "--memory", "900TiB", out=self.folder / "much")
        self.assertEqual(lowered[0], 0, lowered[2])
        self.assertRegex(lowered[2], r"the budget of 900 TiB is more than the .+, and becomes that")

    def test_says_what_computes_attention(self):
        words = ["--dtype", "bf16", "--dry-run"]
        self.assertRegex(self.done(), r"attention +plain   values are not bf16\n")
        without = {**os.environ, "SPOOL_CUDNN": "0"}
        out = self.folder / "dry"
        said = r"attention +(plain|tensor cores)   without cuDNN"
        self.assertRegex(self.done(*words, out=out, env=without), said)
        if "without cuDNN" not in (here := self.done(*words, out=out)):
            self.assertRegex(here, r"attention +cuDNN\n")
            printed = self.done("--dtype", "bf16", "--nondeterministic", out=self.folder / "loose")
            self.assertRegex(printed, r"attention +cuDNN   nondeterministic\n")
            peak = self.foretold(printed)
            self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)

    def test_an_interrupt_finds_a_step_in_the_queue(self):
        log = self.folder / "log.jsonl"
        words = [PROGRAM, "train", *SHAPE, *CUDA, "--data", self.text, "--out", self.out, "--log", log]
        run = subprocess.Popen([*words, "--steps", "100000"], stdout=subprocess.PIPE, errors="replace")
        for line in run.stdout:
            if line.startswith("step 3"):
                break
        run.send_signal(signal.SIGINT)
        rest = run.communicate(timeout=60)[0]
        self.assertEqual(run.returncode, 130)
        last = int(re.search(r"stopped after step (\d+)", rest)[1])
        self.assertEqual(sorted(self.losses(log)), list(range(1, last + 1)))
        resumed = spool("train", *CUDA, "--out", self.out, "--resume", "--steps", last + 2, "--log", log)
        self.assertEqual(resumed[0], 0, resumed[2])
        self.assertEqual(sorted(self.losses(log)), list(range(1, last + 3)))

    def test_losses_do_not_depend_on_what_happens_between_steps(self):
        losses = []
        for every in 0, 1, 3:
            log = self.folder / f"{every}.jsonl"
            words = ["--eval-every", every, "--checkpoint-every", every, "--log", log]
            self.done(*words, out=self.folder / f"{every}", steps=7)
            losses.append(self.losses(log))
        self.assertEqual(losses[1:], losses[:1] * 2)

    def test_a_loss_that_is_not_finite_ends_the_run_with_a_step_in_the_queue(self):
        status, _, errors = self.train(*CUDA, "--lr", "1e30", "--clip", 0, steps=50)
        self.assertEqual(status, 1)
        self.assertIn("is nan", errors.replace("-nan", "nan").replace("inf", "nan"))

    def test_a_graph_changes_no_loss_and_no_weight(self):
        runs = []
        for name, words in ("graph", []), ("plain", ["--no-graph"]):
            log = self.folder / f"{name}.jsonl"
            out = self.folder / name
            words = [*words, "--log", log, "--dropout", 0.1, "--accumulate", 3, "--dtype", "bf16"]
            self.done(*words, out=out, steps=6)
            runs.append((self.losses(log), self.weights(out)))
        self.assertEqual(*runs)

    def test_resumes_after_a_kill_at_a_random_moment(self):
        self.killed_and_resumed(*CUDA, "--checkpoint-every", 3, "--dropout", 0.1, steps=60)

    def test_generates_and_evaluates_as_on_the_cpu(self):
        self.done(steps=30)
        for words in (
            ["generate", "--prompt", "Line ", "--tokens", 40, "--temperature", 0],
            ["eval", "--data", self.text],
        ):
            on = {
                device: spool(*words, "--model", self.out, "--device", device)
                for device in ("cpu", "cuda")
            }
            self.assertEqual(on["cuda"][0], 0, on["cuda"][2])
            cpu, cuda = (re.sub(r"(\.\d{3})\d+", r"\1", on[d][1]) for d in ("cpu", "cuda"))
            self.assertEqual(cuda.splitlines()[0], cpu.splitlines()[0])

    def test_reports_an_error_of_the_device(self):
        """Only the emulated device fails on demand."""
        if "emulated" not in self.done():
            self.skipTest("this device is not emulated")
        for sync in "0", "1":
            out = self.folder / f"run{sync}"
            failing = {**os.environ, "SPOOL_CUDA_SYNC": sync, "EMULATOR_FAILS_AT": "4000"}
            words = [*CUDA, "--checkpoint-every", 2]
            status, _, errors = self.train(*words, out=out, steps=400, env=failing)
            self.refused((status, "", errors), 1, "an emulated failure", "cuda:0: ")
            if sync == "1":
                self.assertRegex(errors, r"the kernel [a-z_]+: ")
            else:
                self.assertIn("SPOOL_CUDA_SYNC=1", errors)
            self.assertTrue((out / "latest" / "run.json").exists())
            status, _, errors = spool("generate", "--model", out, "--tokens", 5)
            self.assertEqual(status, 0, errors)


def there_is_cuda():
    done = subprocess.run(
        [PROGRAM, "train", *SHAPE, "--device", "cuda", "--data", "/dev/null", "--out", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )
    return not re.search("CUDA|NVIDIA", done.stderr)


if __name__ == "__main__":
    if not there_is_cuda():
        print("there is no CUDA device here, or this build has no backend for it")
        sys.exit(SKIPPED)
    main()
