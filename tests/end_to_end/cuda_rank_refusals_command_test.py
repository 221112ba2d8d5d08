"""Ranks with a GPU each that cannot train together are refused in one sentence that says what would help.

cuda_rank_refusals_command_test.py PROGRAM [CASE...]
"""

import os

from commands import spool
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
            ("CUDA_VISIBLE_DEVICES", ""): "and it has 0 in CUDA_VISIBLE_DEVICES; name more there, or choose the device cpu",
            ("CUDA_VISIBLE_DEVICES", "0"): "and it has 1 in CUDA_VISIBLE_DEVICES; name more there, start 1 rank, or ",
        }
        if EMULATED:
            environments["EMULATOR_NCCL_VERSION", "22705"] = "NCCL here is 2.27.5, and Spool needs 2.28 or a newer version 2; "
        for (name, value), said in environments.items():
            self.refused(self.train(*CUDA, *STEP, "--ranks", 2, env=os.environ | {name: value}), 1, said)


if __name__ == "__main__":
    main()
