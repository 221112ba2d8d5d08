"""The tests that run the program on a GPU, real or emulated; skipped where there is none."""

import re
import subprocess
import sys

import commands
from commands import PROGRAM, SHAPE, SKIPPED, Folder

CUDA = ["--device", "cuda"]
# Each start makes a context, which takes seconds on some machines: scripts stay short by having few.
MOST_STARTS = 12
starts = []
sys.addaudithook(lambda event, args: starts.append(args[0]) if event == "subprocess.Popen" else None)


class OnCuda(Folder):
    def tearDown(self):
        self.assertLessEqual(len(starts), MOST_STARTS, "starts of the program: cut the script in two")

    def done(self, *words, **more):
        status, printed, errors = self.train(*CUDA, *words, **more)
        self.assertEqual(status, 0, errors)
        return printed


def there_is_cuda():
    done = subprocess.run(
        [PROGRAM, "train", *SHAPE, *CUDA, "--data", "/dev/null", "--out", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )
    return not re.search("CUDA|NVIDIA", done.stderr)


def main():
    if not there_is_cuda():
        print("there is no CUDA device here, or this build has no backend for it")
        sys.exit(SKIPPED)
    commands.main()
