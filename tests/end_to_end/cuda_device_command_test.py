"""What the program says of a GPU: what computes attention there, and its errors.

cuda_device_command_test.py PROGRAM [CASE...]
"""

import os

from commands import NIGHTLY, spool
from on_cuda import CUDA, OnCuda, main


class Device(OnCuda):
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

    def test_reports_an_error_of_the_device(self):
        """Only the emulated device fails on demand."""
        if "emulated" not in self.done():
            self.skipTest("this device is not emulated")
        for sync in ("0", "1") if NIGHTLY else "1":
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


if __name__ == "__main__":
    main()
