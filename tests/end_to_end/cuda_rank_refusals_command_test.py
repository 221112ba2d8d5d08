"""Ranks with a GPU each that cannot train together are refused in one sentence that says what would help.

cuda_rank_refusals_command_test.py PROGRAM [CASE...]
"""

import os
import subprocess

from commands import PROGRAM, SHAPE, spool
from on_cuda import CUDA
from on_cuda_ranks import STEP, CudaRanks, main

EMULATED = "NCCL here is 2.27.5" in spool("--version", env=os.environ | {"EMULATOR_NCCL_VERSION": "22705"})[1]


class Refusals(CudaRanks):
    def test_that_cannot_be_are_refused_in_one_sentence(self):
        cases = {
            ("--ranks", 64): ("64 ranks on one machine need as many GPUs, and it has ", "(--ranks, --device)"),
            ("--ranks", 2, "--ranks-as", "threads"): ("ranks on GPUs are processes",),
            ("--ranks", 2, "--device", "cuda:1"): ("cuda:1", "CUDA_VISIBLE_DEVICES"),
        }
        for words, said in cases.items():
            self.refused(self.train(*CUDA, *STEP, *words), 1, *said)
        environments = {
            ("SPOOL_NCCL", "0"): "ranks on GPUs exchange by NCCL: SPOOL_NCCL is 0 in the environment; unset it",
        }
        if EMULATED:
            environments["EMULATOR_NCCL_VERSION", "22705"] = "NCCL here is 2.27.5, and Spool needs 2.28 or a newer version 2; "
        for (name, value), said in environments.items():
            self.refused(self.train(*CUDA, *STEP, "--ranks", 2, env=os.environ | {name: value}), 1, said)

    def launched(self, flags, **variables):
        """What two ranks of a launcher say, of which rank 1 has flags and variables of its own."""
        words = [PROGRAM, "train", *SHAPE, *STEP, *CUDA, "--data", self.text, "--out", self.out]
        job = os.environ | {"WORLD_SIZE": "2", "SPOOL_MEETING": str(self.out)}
        runs = [subprocess.Popen([*map(str, words), *more], env=job | own, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
                for own, more in [({"RANK": "0"}, []), ({"RANK": "1"} | variables, flags)]]
        for run in runs:
            self.addCleanup(run.communicate)
            self.addCleanup(run.kill)
        said = [run.communicate(timeout=60)[1] for run in runs]
        self.assertEqual([run.returncode for run in runs], [1, 1], said)
        lines = [line for line in self.said("".join(said)) if "the last one counts" not in line]
        self.assertEqual(len(lines), 1, lines)
        return lines[0]

    def test_whose_graphs_differ_are_refused_in_one_sentence(self):
        said = r"rank 0 and rank 1 differ in {}; all ranks of a run need the same$"
        self.assertRegex(self.launched(["--no-graph"]), said.format("graphs of steps: true and false"))
        self.assertRegex(self.launched([], SPOOL_CUDA_SYNC="1"), said.format('environment SPOOL_CUDA_SYNC: none and "1"'))


if __name__ == "__main__":
    main()
