"""Commands as a user runs them: bad input, memory budgets, logs and traces.

command_test.py PROGRAM [CASE...]
"""

import fcntl
import json
import os
import pathlib
import pty
import signal
import struct
import subprocess
import termios
import unicodedata

from commands import BY_HAND, PROGRAM, PROSE, SHAPE, Folder, main, spool


class Version(Folder):
    def test_says_what_it_was_built_from(self):
        status, printed, errors = spool("--version")
        self.assertEqual(status, 0, errors)
        lines = printed.splitlines()
        self.assertRegex(lines[0], r"^spool \d+\.\d+\.\d+$")
        self.assertRegex(lines[1], r"^commit ([0-9a-f]{12}\+?|unknown)$")
        self.assertRegex("\n".join(lines[2:4]), "^compiler .*\n.*oneDNN")
        self.assertRegex(lines[4], r"^bf16 products: (tile unit|oneDNN)")
        self.assertTrue(lines[5].startswith("cuda: "))
        self.assertRegex(lines[6], "^mpi: (no MPI in this build|Open MPI v)")
        self.assertRegex(lines[7], r"^nccl: (NCCL 2\.\d+\.\d+$|this build is without|NCCL cannot be loaded)")
        log = self.folder / "log"
        self.assertEqual(self.train("--log", log)[0], 0)
        version = lines[0].split()[1] + " " + lines[1].split()[1]
        self.assertEqual(self.log(log)[0]["spool"], version)
        run = json.loads((self.out / "latest" / "run.json").read_text())
        self.assertEqual(run["spool"], version)
        steps = [entry for entry in self.log(log) if "loss" in entry]
        self.assertEqual([entry["tokens"] for entry in steps], [32, 64, 96])
        self.assertRegex(steps[0]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")


class DryRun(Folder):
    def test_prints_the_table_and_writes_nothing(self):
        status, printed, errors = self.train("--dry-run", "--log", self.folder / "log")
        self.assertEqual(status, 0, errors)
        self.assertEqual(self.foretold(printed), self.foretold(self.train()[1]))
        self.assertNotIn("step 1/", printed)
        self.assertFalse((self.folder / "log").exists())
        self.refused(self.train("--dry-run", "--memory", "1kB", out=self.folder / "b"), 1, "--memory")
        weights = self.weights(self.out)
        resumed = spool("train", "--out", self.out, "--resume", "--dry-run")
        self.assertEqual(resumed[0], 0)
        self.assertEqual(self.foretold(resumed[1]), self.foretold(printed))
        self.assertEqual(self.weights(self.out), weights)
        plan = self.folder / "plan.json"
        self.assertEqual(self.train("--dry-run", "--save-plan", plan, out=self.folder / "c")[0], 0)
        self.assertTrue(plan.exists())


class BadInput(Folder):
    def test_refuses_data_that_cannot_be_read_or_is_too_little(self):
        empty, short = self.folder / "empty.txt", self.folder / "short.txt"
        empty.touch()
        short.write_text("too short")
        for data, word in [
            (self.folder / "missing.txt", "missing.txt"),
            (empty, "empty"),
            (short, "--seq"),
            (self.folder, "directory"),
            (self.folder / "*.none", "*.none"),
            (self.text / "below", "below"),
        ]:
            self.refused(self.train(data=data), 1, word)
            self.assertFalse(self.out.exists())

    def test_refuses_numbers_that_make_no_run(self):
        for words in [
            ["--seq", 33],
            ["--heads", 3],
            ["--batch", 0],
            ["--batch", -1],
            ["--batch", 10**9],
            ["--layers", 0],
            ["--layers", 10**9],
            ["--channels", -16],
            ["--vocab", 100],
            ["--lr", 0],
            ["--lr", "nan"],
            ["--dropout", 1],
            ["--dropout", -0.5],
            ["--accumulate", 0],
            ["--warmup", 4],
            ["--chunk-loss", -1],
            ["--chunk-mlp", -1],
            ["--weight-decay", -1],
            ["--clip", -1],
            ["--rounding", "stochastic"],
        ]:
            self.refused(self.train(*words), 1, words[0])
            self.assertFalse(self.out.exists(), words)
        self.refused(self.train(steps=0), 1, "--steps")
        self.refused(self.train(steps=-5), 1, "--steps")

    def test_refuses_words_it_does_not_know(self):
        for words, parts in [
            (["train", "--colour", "red"], ["--colour", "not expected"]),
            (["train", "--batch", "many"], ["--batch", "many"]),
            (["train", "--dtype", "f16"], ["--dtype", "f16", "bf16"]),
            (["train", "--rounding", "up"], ["--rounding", "up", "nearest"]),
            (["train", "--memory", "2 apples"], ["--memory", "2 apples", "2GiB"]),
            (["train", "--memory", "-2GiB"], ["--memory", "-2GiB"]),
            (["train", "--memory", "0"], ["--memory", "'0'"]),
            (["train", "--threads", "-1"], ["--threads", "-1"]),
            (["train", "--threads", 10**6], ["--threads", "1000000", "16 for each core"]),
            (["train", "--checkpoint-every", "-1"], ["--checkpoint-every", "-1"]),
            (["train", "--keep-checkpoints", 0], ["--keep-checkpoints: 0 is too little; give 1"]),
            (["train", "--batch", "1e3"], ["--batch", "'1e3' is not a whole number", "1000"]),
            (["train", "--batch", ""], ["--batch"]),
            (["train", "--batch", "0x10"], ["--batch", "'0x10' is not a whole number"]),
            (["train", "--batch", 10**30], ["--batch", "is too large"]),
            (["train", "--seed", -1], ["--seed", "'-1' is not a whole number from 0 on"]),
            (["train", "--seed", 2**64], ["--seed", "is too large", str(2**64 - 1)]),
            (["generate"], ["--model is required"]),
            (["generate", "--model"], ["--model"]),
        ]:
            self.refused(spool(*words), 2, *parts, f"see spool {words[0]} --help")
        self.refused(spool("trian", "--steps", 3), 2, "no command trian; did you mean train?")
        self.refused(spool("paint"), 2, "there is no command paint; see spool --help")
        self.refused(spool(), 2, "subcommand", "see spool --help")

    def test_numbers_are_decimal_and_the_last_of_a_flag_counts(self):
        status, printed, errors = self.train("--seq", "010", "--lr", 0.1, "--lr", 0.01, "--dry-run")
        self.assertEqual(status, 0, errors)
        self.assertIn("2 rows of 10 tokens", printed)
        self.assertIn("spool: --lr is given 2 times; the last one counts: 0.01\n", errors)
        errors = self.train("--seed", 2**64 - 1, "--dry-run", "--data", self.text)[2]
        self.assertEqual(self.said(errors), [])

    def test_refuses_models_and_devices_that_are_not_there(self):
        self.refused(self.train("--model", "gpt5"), 1, "gpt2-124m")
        self.refused(self.train("--device", "gpu"), 1, "cuda")
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        self.refused(self.train("--device", "cuda", env=hidden), 1, "use the device cpu", "(--device)")
        self.refused(self.train("--device", "cuda:7"), 1, "cuda")
        self.refused(spool("generate", "--model", self.folder / "none"), 1, "none")
        self.refused(spool("generate", "--model", self.text), 1, "text.txt", "safetensors")
        self.refused(spool("generate", "--model", self.folder), 1, "model.safetensors")

    def test_refuses_places_where_it_cannot_write(self):
        self.refused(self.train(out=self.text), 1, "text.txt")
        self.refused(self.train(out=self.text / "below"), 1, "text.txt")
        self.refused(self.train(out="/proc/run"), 1, "/proc/run")
        self.refused(self.train("--log", self.folder / "none" / "log"), 1, "none/log")
        precious = self.text.read_text()
        other = self.folder / "other"
        self.refused(self.train("--log", self.text, out=other), 1, "text.txt")
        self.assertEqual(self.text.read_text(), precious)

    def test_refuses_a_trace_where_it_cannot_write(self):
        precious = self.text.read_text()
        for place, word in [
            (self.folder / "none" / "step.json", "none/"),
            (self.folder, "directory"),
            (self.text, "text.txt"),
            ("/proc/step.json", "/proc/"),
        ]:
            self.refused(self.train("--trace", place), 1, word)
            self.assertFalse(self.out.exists())
        self.assertEqual(self.text.read_text(), precious)

    def test_refuses_to_resume_without_a_checkpoint(self):
        self.refused(self.train("--resume"), 1, "--resume")

    def test_refuses_a_corrupt_checkpoint_by_its_file(self):
        self.assertEqual(self.train()[0], 0)
        for name in ["model.safetensors", "optimizer.safetensors", "run.json", "config.json"]:
            file = self.out / "latest" / name
            whole = file.read_bytes()
            for broken in [b"", whole[: len(whole) // 2], b"\0" * len(whole)]:
                file.write_bytes(broken)
                if name == "config.json":
                    result = spool("generate", "--model", self.out)
                else:
                    result = spool("train", "--out", self.out, "--resume")
                self.refused(result, 1, name)
            file.write_bytes(whole)

    def test_help_has_the_flags(self):
        for words in [["--help"], ["train", "--help"], ["generate", "--help"]]:
            status, printed, _ = spool(*words)
            self.assertEqual(status, 0)
            self.assertIn("--", printed)


class Terminal(Folder):
    def on_terminal(self, *words):
        """Runs the program on a terminal of 80 columns; returns what it shows."""
        main_end, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        run = subprocess.Popen([PROGRAM, *map(str, words)], stdout=terminal, stderr=terminal)
        os.close(terminal)
        seen = b""
        try:
            while more := os.read(main_end, 4096):
                seen += more
        except OSError:  # the end, on Linux
            pass
        os.close(main_end)
        self.assertEqual(run.wait(timeout=100), 0, seen)
        return seen

    def test_text_on_a_terminal_is_printable_and_elsewhere_is_bytes(self):
        self.text.write_text("h\u00e9llo \u4f60\u597d \U0001f600 " * 300)
        self.assertEqual(self.train(steps=2)[0], 0)
        words = ["generate", "--model", self.out, "--tokens", 400, "--temperature", 3]
        words += ["--prompt", "\u4f60\x1b[31m\x07\u009b"]
        shown = self.on_terminal(*words).decode().replace("\r\n", "\n")
        self.assertTrue(shown.startswith("\u4f60\ufffd[31m\ufffd\ufffd"), shown[:20])
        controls = [c for c in shown if unicodedata.category(c) == "Cc"]
        self.assertEqual(set(controls) - {"\n", "\t"}, set())
        self.assertIn("\ufffd", shown[8:])
        written = subprocess.run([PROGRAM, *map(str, words)], capture_output=True).stdout
        self.assertEqual(len(written), len(words[-1].encode()) + 400 + 1)
        self.assertNotIn(b"\xef\xbf\xbd", written)

    def test_the_progress_line_shows_the_time_left(self):
        words = ["train", *SHAPE, "--data", self.text, "--out", self.out, "--steps", 12000]
        words += ["--eval-every", 3, "--checkpoint-every", 0, "--sample-every", 0]
        main_end, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        run = subprocess.Popen([PROGRAM, *map(str, words)], stdout=terminal)
        self.addCleanup(run.kill)
        seen = b""
        while seen.count(b"val ") < 3:
            seen += os.read(main_end, 1000)
        run.kill()
        line = [text for text in seen.decode().split("\r\x1b[K") if " val " in text][0]
        self.assertLessEqual(len(line), 79)
        self.assertRegex(line, r"  left \d.*?  ")


class Runs(Folder):
    def test_peak_is_foretold_and_suffices_as_budget(self):
        status, printed, _ = self.train()
        self.assertEqual(status, 0)
        peak = self.foretold(printed)
        self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
        self.assertRegex(printed, r"on cpu \(\d+ threads\): 2 rows of 16 tokens\n")
        fields = r"\d+ tokens/s  lr \S+  norm \S+"
        self.assertRegex(printed, rf"step 1/3  loss \d+\.\d+  left \S+ \S+  {fields}\n")
        self.assertRegex(printed, rf"step 3/3  loss \d+\.\d+  {fields}\n")
        for row in "parameters gradients optimizer activations workspace".split():
            self.assertRegex(printed, rf"\n  {row} +\S+ \S+\n")
        self.assertRegex(printed, r"\n  budget +none\n")
        exact = self.folder / "exact"
        self.assertEqual(self.train("--memory", peak, out=exact)[0], 0)
        tight = self.folder / "tight"
        result = self.train("--memory", peak - 1, "--batch", 2, *BY_HAND, out=tight)
        self.refused(result, 1, str(peak), "the peak is in the ", " of linear", "(node ",
                     "a batch of 1 would fit")
        self.assertFalse(tight.exists())
        less = self.train("--memory", "10kB", *BY_HAND, out=tight)
        self.refused(less, 1, "even a batch of 1")

    def test_says_how_many_threads_fit(self):
        wide = ["--channels", 192, "--vocab", 2000, *BY_HAND]  # products of several tiles

        def peak_of(threads):
            printed = self.train(*wide, "--threads", threads, "--memory", "1kB")[1]
            self.assertRegex(printed, rf"\n    with --threads +{threads}\n")
            return self.foretold(printed)

        peak, larger = peak_of(2), peak_of(3)
        self.assertLess(peak, larger)
        budget, more = ["--memory", larger - 1], ["--threads", 7]
        fits = f"with 2 threads it would fit, with a peak of {peak} bytes"
        self.refused(self.train(*wide, *more, *budget), 1, fits, "(--memory, --threads")
        words = [*wide, "--threads", 2, *budget, "--checkpoint-every", 1]
        self.assertEqual(self.train(*words)[0], 0)
        latest = self.out / "latest"
        latest.unlink()
        latest.symlink_to("step-000002")  # one step is left
        resume = ["train", "--out", self.out, "--resume", "--recompute", "none"]
        self.refused(spool(*resume, *more, *budget), 1, fits + " (--memory, --threads)")
        status, printed, errors = spool(*resume, *budget, "--threads", 2)
        self.assertEqual(status, 0, errors)
        self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
        lost = spool(*resume, "--memory", "1kB")
        self.refused(lost, 1, "a run that resumes keeps its batch", "--recompute")

    def test_log_has_every_step_and_evaluation(self):
        log = self.folder / "log.jsonl"
        words = ["--log", log, "--eval-every", 2, "--accumulate", 2, "--chunk-loss", 5]
        self.assertEqual(self.train(*words, "--dtype", "bf16", "--dropout", 0.1)[0], 0)
        head, *rest = self.log(log)
        self.assertEqual(head["format_version"], 1)
        self.assertEqual(head["configuration"]["accumulate"], 2)
        steps = [entry for entry in rest if "loss" in entry]
        self.assertEqual([entry["step"] for entry in steps], [1, 2, 3])
        fields = "loss lr grad_norm tokens_per_s step_ms peak_bytes foretold_peak_bytes".split()
        for entry in steps:
            self.assertTrue(set(fields) <= set(entry), entry)
        evaluations = [entry for entry in rest if "val_loss" in entry]
        self.assertEqual([entry["step"] for entry in evaluations], [2, 3])
        self.assertEqual(evaluations[-1]["val_targets"], len(PROSE) // 10 - 1)

    def test_trace_has_the_kernels_foretold(self):
        file = self.folder / "step.json"
        for steps, traced in [(3, 2), (1, 1)]:  # the second overwrites the first
            out = self.folder / f"run{steps}"
            words = ["--trace", file, "--accumulate", 2]
            status, printed, errors = self.train(*words, out=out, steps=steps)
            self.assertEqual(status, 0, errors)
            self.assertRegex(printed, r"\n  exposed copies +0\.0 %\n")
            self.assertIn(f"the trace of step {traced} is in {file}: foretold ", printed)
            peak = self.foretold(printed)
            self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
            trace = json.loads(file.read_text())
            spans = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == "kernel"]
            foretold, measured = ([e["name"] for e in spans if e["pid"] == p] for p in (1, 2))
            self.assertEqual(foretold, measured)
            self.assertEqual(len(measured), trace["otherData"]["measured"]["kernels"])
            self.assertLessEqual(trace["otherData"]["measured"]["most_live_bytes"], peak)
            self.assertEqual([f for f in self.folder.iterdir() if "partial" in f.name], [])

    def test_trace_has_the_copies_foretold(self):
        for to in ["host", f"disk:{self.folder}"]:
            file, out = self.folder / "copies.json", self.folder / f"run-{to[:4]}"
            words = ["--offload", "all", "--offload-to", to, "--recompute", "norms,gelu"]
            words += ["--optimizer-state", "streamed", "--trace", file, "--channels", 64]
            status, _, errors = self.train(*words, out=out)
            self.assertEqual(status, 0, errors)
            events = json.loads(file.read_text())["traceEvents"]
            self.assertTrue(any(e["name"] == "host bytes" for e in events))
            for lane in [1, 2, 3]:  # compute, copies out, copies in
                spans = [e for e in events if e["ph"] == "X" and e["tid"] == lane]
                spans = [e for e in spans if e["cat"] not in ["op", "wait"]]
                foretold, measured = ([e["name"] for e in spans if e["pid"] == p] for p in (1, 2))
                self.assertEqual(foretold, measured)
                self.assertTrue(measured)

    def test_default_data_and_generation(self):
        words = ["--steps", 2, "--sample-every", 1, "--vocab", 999]
        status, _, errors = spool("train", *SHAPE, "--out", self.out, *words)
        self.assertEqual(status, 0, errors)
        words = ["generate", "--model", self.out, "--prompt", "The ", "--tokens", 60]
        first, again, other = spool(*words), spool(*words), spool(*words, "--seed", 2)
        self.assertEqual(first[0], 0, first[2])
        self.assertTrue(first[1].startswith("The "))
        self.assertEqual(first, again)
        self.assertNotEqual(first[1], other[1])
        likeliest = [*words, "--temperature", 0]
        self.assertEqual(spool(*likeliest)[1], spool(*likeliest, "--seed", 9)[1])

    def test_peak_is_foretold_with_a_context_longer_than_any_sample(self):
        long = ["--context", 900, "--seq", 20]
        status, printed, errors = self.train(*long)
        self.assertEqual(status, 0, errors)
        peak = self.foretold(printed)
        self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)

    def test_generates_beyond_the_context(self):
        self.assertEqual(self.train()[0], 0)
        status, printed, errors = spool("generate", "--model", self.out, "--tokens", 100)
        self.assertEqual(status, 0, errors)
        self.assertGreater(len(printed), 60)

    def test_stops_where_numbers_are_not_finite(self):
        words = ["--lr", 1e30, "--weight-decay", 0, "--clip", 0, "--warmup", 0]
        words += ["--checkpoint-every", 1]
        self.refused(self.train(*words, steps=50), 1, "step 1:", "no checkpoint")
        self.assertFalse((self.out / "latest").exists())

    def test_reports_a_full_disk_and_leaves_nothing(self):
        self.assertEqual(self.train("--checkpoint-every", 1, steps=2)[0], 0)
        small = self.folder / "small"

        def limit():
            import resource

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        result = self.train(out=small, preexec_fn=limit)
        self.refused(result, 1, "safetensors", "File too large")
        self.assertEqual([f.name for f in small.iterdir() if f.name != ".lock"], [])

    def test_losses_are_the_same_for_any_number_of_threads(self):
        logs = []
        for threads in [1, 2, 3]:
            logs.append(self.folder / f"log{threads}")
            words = ["--threads", threads, "--log", logs[-1], "--dropout", 0.1]
            self.assertEqual(self.train(*words, out=self.folder / f"run{threads}", steps=20)[0], 0)
        self.assertEqual(self.losses(logs[0]), self.losses(logs[1]))
        self.assertEqual(self.losses(logs[0]), self.losses(logs[2]))


if __name__ == "__main__":
    main()
