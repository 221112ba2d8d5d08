"""Ranks have a GPU each: one GPU is refused for several of them, in training and in evaluations.

cuda_rank_devices_command_test.py PROGRAM [CASE...]
"""

import os
import subprocess

from commands import PROGRAM, spool
from on_cuda import CUDA
from on_cuda_ranks import STEP, CudaRanks, main


class Devices(CudaRanks):
    def setUp(self):
        super().setUp()
        status, _, errors = self.train("--device", "cpu", "--no-sample", steps=1)
        self.assertEqual(status, 0, errors)
        self.evaluation = ["eval", "--model", self.out / "latest", "--data", self.text]

    def test_one_gpu_that_is_named_is_none_for_several_ranks(self):
        chosen = os.environ | {"SPOOL_DEVICE": "cuda:1"}
        said = "ranks have a GPU each, not cuda:1 alone{}; say --device cuda, and which GPUs there are in CUDA_VISIBLE"
        of_variable = said.format(", which SPOOL_DEVICE names")
        self.refused(spool(*self.evaluation, "--device", "cuda:1", "--ranks", 2), 1, said.format(""))
        self.refused(spool(*self.evaluation, "--ranks", 2, env=chosen), 1, of_variable)
        self.refused(self.train(*STEP, "--ranks", 2, env=chosen), 1, of_variable)

    def test_evaluations_on_the_same_gpu_are_refused(self):
        words = [str(w) for w in [PROGRAM, *self.evaluation, *CUDA]]
        job = os.environ | {"WORLD_SIZE": "2", "SPOOL_MEETING": str(self.out)}
        own = [{"RANK": "0"}, {"RANK": "1", "CUDA_VISIBLE_DEVICES": "0"}]
        runs = [subprocess.Popen(words, env=job | of_rank, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for of_rank in own]
        for run in runs:
            self.addCleanup(run.communicate)
            self.addCleanup(run.kill)
        said = [run.communicate(timeout=60) for run in runs]
        self.assertEqual([run.returncode for run in runs], [1, 1], said)
        lines = self.said("".join(errors for _, errors in said))
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("rank 0 and rank 1 have the same GPU, and each needs one of its own", lines[0])


if __name__ == "__main__":
    main()
