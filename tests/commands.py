"""What the tests of the program share: SCRIPT PROGRAM [CASE...]."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
SHAPE = "--layers 2 --heads 2 --channels 16 --context 32 --seq 16 --batch 2".split()
PROSE = "".join(f"Line {i} of a text that says little: {i * i}.\n" for i in range(400))


def spool(*words, **more):
    """Runs the program; its exit code and what it printed."""
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, timeout=300, **more)
    return done.returncode, *(t.decode(errors="replace") for t in (done.stdout, done.stderr))


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="spool-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.text = self.folder / "text.txt"
        self.text.write_text(PROSE)
        self.out = self.folder / "run"

    def train(self, *words, data=None, out=None, steps=3, **more):
        fixed = ["--data", data or self.text, "--out", out or self.out, "--steps", steps]
        return spool("train", *SHAPE, *fixed, *words, **more)

    def log(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    def refused(self, result, code, *parts):
        """One sentence on standard error, the exit code, and these words."""
        status, _, errors = result
        self.assertEqual(status, code, errors)
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        self.assertTrue(errors.startswith("spool: "), errors)
        for part in parts:
            self.assertIn(part, errors)


def main():
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
