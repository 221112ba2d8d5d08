"""Random hostile command lines, damaged files, kills and full disks, each judged alike by
hostile/oracle.py.

hostile_command_test.py PROGRAM [CASE...]

SPOOL_HOSTILE_SEED=N repeats the cases of a nightly run, SPOOL_HOSTILE_CASE=17 one of them,
SPOOL_HOSTILE_SECONDS=N sets how long each kind of case is tried.
"""

import collections
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import unittest

from commands import main
from hostile.damage import Files
from hostile.flags import Flags
from hostile.given import copy_given, make_given
from hostile.oracle import contents, faults, outcome, report
from hostile.runs import RunFailed, Runs

ONE = os.environ.get("SPOOL_HOSTILE_CASE")
NIGHTLY = os.environ.get("SPOOL_NIGHTLY") == "1"
# The same cases for every commit; other ones each night.
SEED = os.environ.get("SPOOL_HOSTILE_SEED") or str(random.SystemRandom().randrange(10**6) if NIGHTLY else 1)
SECONDS = float(os.environ.get("SPOOL_HOSTILE_SECONDS", 800 if NIGHTLY else 10))
CASE_SECONDS = 8  # after these, a case is interrupted


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="spool-hostile-"))
        cls.whole, cls.folder = cls.root / "given", cls.root / "here"
        cls.given = make_given(cls.whole)
        print(f"SPOOL_HOSTILE_SEED={SEED}", flush=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root, ignore_errors=True)

    def numbered_dice(self, kind):
        """A number and a random generator for each case, until time is up."""
        end, number = time.monotonic() + SECONDS, int(ONE or 0)
        while time.monotonic() < end:
            yield number, random.Random(f"{SEED} {kind} {number}")
            number += 1
            if ONE:
                return

    def keep(self):
        """Keeps the folder of a failed case."""
        return shutil.move(self.folder, tempfile.mkdtemp(prefix="spool-hostile-failed-"))

    def judged(self, kind, make):
        """Runs cases; counts those with faults."""
        wrong, total, codes = 0, 0, collections.Counter()
        copy_given(self.whole, self.folder)
        for number, dice in self.numbered_dice(kind):
            case = make(dice)
            before = contents(self.folder)
            o = outcome(case, self.folder, CASE_SECONDS)
            after = contents(self.folder)
            total += 1
            codes[o.code if o else None] += 1
            if found := faults(case, o, before, after):
                wrong += 1
                where = f"SPOOL_HOSTILE_SEED={SEED} SPOOL_HOSTILE_CASE={number} {self.id()}"
                report(where, case, o, found, self.keep())
            if kind == "files" or found or before != after:
                copy_given(self.whole, self.folder)
        print(f"{total} cases, exit codes {dict(codes)}", end=" ", flush=True)
        self.assertEqual(wrong, 0, f"of {total} cases")

    def test_odd_flags(self):
        self.judged("flags", Flags(self.given).case)

    def test_damaged_files(self):
        self.judged("files", Files(self.folder).case)

    def tried(self, kind, attempt):
        """Tries to lose a run, by `attempt`."""
        wrong = total = 0
        for number, dice in self.numbered_dice(kind):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            total += 1
            try:
                attempt(Runs(self.folder, dice))
            except RunFailed as failure:
                wrong += 1
                where = f"SPOOL_HOSTILE_SEED={SEED} SPOOL_HOSTILE_CASE={number} {self.id()}"
                print(f"{where}: {failure}\n  in {self.keep()}", file=sys.stderr, flush=True)
        print(f"{total} runs", end=" ", flush=True)
        self.assertEqual(wrong, 0, f"of {total} runs")

    def test_interrupted_runs(self):
        self.tried("signals", lambda runs: runs.interrupted())

    def test_full_disks(self):
        self.tried("disks", lambda runs: runs.on_a_full_disk())


if __name__ == "__main__":
    main()
