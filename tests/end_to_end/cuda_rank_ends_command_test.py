"""Of ranks with a GPU each one that ends takes the others with it, one sentence says why, and the run
goes on with fewer.

cuda_rank_ends_command_test.py PROGRAM [CASE...]
"""

import json
import os
import signal
import subprocess
import time

from commands import PROGRAM, SHAPE, last_step, nightly
from on_cuda import CUDA
from on_cuda_ranks import STEP, CudaRanks, main
from rank_processes import started_by

STEPS = 30
QUIET = ["--eval-every", 0, "--checkpoint-every", 2]


class Ends(CudaRanks):
    def start(self, *words, out, steps=STEPS):
        """A run on four ranks; its errors are in the file .said of it."""
        said = open(self.folder / "said", "w+", encoding="utf-8")
        self.addCleanup(said.close)
        fixed = ["train", *SHAPE, *STEP, *CUDA, "--data", self.text, "--out", out, "--steps", steps]
        on = ["--ranks", 4, *QUIET, "--log", out.with_suffix(".log")]
        run = subprocess.Popen([PROGRAM, *map(str, [*fixed, *on, *words])], stderr=said,
                               stdout=subprocess.DEVNULL)
        run.said = said
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        return run

    def until(self, run, step, out):
        while run.poll() is None and last_step(out.with_suffix(".log")) < step:
            time.sleep(0.01)
        run.ranks = started_by(run.pid)
        self.assertEqual(sorted(run.ranks), [0, 1, 2, 3])

    def ended(self, run, within):
        """Its exit code, and its error as one sentence."""
        begin = time.monotonic()
        code = run.wait(timeout=60)
        self.assertLess(time.monotonic() - begin, within)
        run.said.seek(0)
        lines = [line for line in self.said(run.said.read()) if "the last one counts" not in line]
        self.assertLessEqual(len(lines), 1, lines)
        return code, "".join(lines)

    def test_of_which_one_is_killed_end_and_go_on_with_fewer(self):
        out = self.folder / "killed"
        run = self.start(out=out)
        self.until(run, 5, out)
        os.kill(run.ranks[2], signal.SIGKILL)
        code, said = self.ended(run, within=10)
        self.assertEqual(code, 1)
        self.assertRegex(said, r"rank 2 was killed by signal 9 .*the last checkpoint is")
        self.done("--resume", "--ranks", 2, data=self.text, out=out, steps=STEPS)
        self.same(self.run_on(1, *QUIET, name="never-stopped", steps=STEPS), out)

    @nightly
    def test_of_which_one_hangs_end_with_the_name_of_the_exchange(self):
        out = self.folder / "hangs"
        run = self.start("--rank-timeout", 3, out=out)
        self.until(run, 5, out)
        os.kill(run.ranks[1], signal.SIGSTOP)
        code, said = self.ended(run, within=3 + 5)
        self.assertEqual(code, 1)
        self.assertRegex(said, r"rank 1 did not come to the exchange '\w+.*' within 3 s")

    @nightly
    def test_a_signal_saves_on_all(self):
        out = self.folder / "signal"
        contexts = self.folder / "contexts"
        os.environ["EMULATOR_CONTEXTS"] = str(contexts)
        self.addCleanup(os.environ.pop, "EMULATOR_CONTEXTS")
        run = self.start(out=out)
        self.until(run, 3, out)
        if contexts.exists():  # of emulated GPUs: a rank makes one alone, and what starts them none
            made = [line.split() for line in contexts.read_text().splitlines()]
            self.assertEqual(sorted(made), sorted([str(p), str(r)] for r, p in run.ranks.items()))
        os.kill(run.ranks[3], signal.SIGTERM)
        self.assertEqual(self.ended(run, within=20), (130, ""))
        self.assertGreater(json.loads((out / "latest" / "run.json").read_text())["step"], 2)


if __name__ == "__main__":
    main()
