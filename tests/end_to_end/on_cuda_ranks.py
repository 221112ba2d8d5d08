"""Training on ranks with a GPU each, real or emulated; skipped where there are fewer than four."""

import os
import re
import sys

from commands import SKIPPED, spool
from on_cuda import CUDA, OnCuda
from on_cuda import main as main_on_cuda

FILES = ["model.safetensors", "optimizer.safetensors", "run.json"]
STEP = ["--accumulate", 4, "--dropout", 0.1, "--no-sample"]
os.environ.setdefault("EMULATOR_DEVICES", "4")  # means nothing to a real GPU


def gpus():
    """As many as the program finds: it says so where they are fewer than its ranks."""
    refusal = spool("train", *CUDA, "--ranks", 64, "--data", "/dev/null", "--out", "/dev/null")[2]
    found = re.search(r"and it has (\d+)", refusal)
    return int(found[1]) if found else 0


class CudaRanks(OnCuda):
    def setUp(self):
        super().setUp()
        memory = self.folder / "memory"  # of the emulated GPUs, which processes share
        os.environ["EMULATOR_MEMORY"] = str(memory)
        self.addCleanup(os.environ.pop, "EMULATOR_MEMORY")

    def run_on(self, ranks, *words, name=None, steps=4):
        """Trains on these ranks; returns the run's folder."""
        out = self.folder / (name or f"ranks-{ranks}")
        log = out.with_suffix(".log")
        printed = self.done(*STEP, *words, "--ranks", ranks, "--log", log, out=out, steps=steps)
        last = [line for line in self.log(log) if "ranks" in line][-1]
        self.assertEqual([r["rank"] for r in last["ranks"]], list(range(ranks)))
        for numbers in last["ranks"]:
            for what in ["peak_bytes", "host_peak_bytes", "sent_bytes"]:
                self.assertEqual(numbers[what], numbers[f"foretold_{what}"], last)
            self.assertEqual(numbers["sent_bytes"] > 0, ranks > 1)
        if ranks > 1:
            self.assertIn(f"{ranks} ranks, processes, which exchange by NCCL\n", printed)
            self.assertRegex(printed, r"\n  NCCL +\S+ MiB +besides, measured")
        return out

    def same(self, one, other):
        for name in FILES:
            theirs = (other / "latest" / name).read_bytes()
            self.assertEqual((one / "latest" / name).read_bytes(), theirs, f"{other.name} {name}")


def main():
    if gpus() < 4:
        print("these ranks need four GPUs, and a build with CUDA and NCCL")
        sys.exit(SKIPPED)
    main_on_cuda()
