"""Ranks that mpirun starts exchange bytes by MPI, and end together: mpi_test.py PROGRAM."""

import os
import re
import shutil
import subprocess
import sys
import time
import unittest

PROGRAM = sys.argv.pop(1)
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def ranks(count, case):
    """The exit status of mpirun, what the ranks printed, in order, and the seconds it took."""
    begin = time.monotonic()
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(count), PROGRAM, case]
    done = subprocess.run(command, env=os.environ | ROOT_MAY, capture_output=True, text=True, timeout=120)
    return done.returncode, sorted(done.stdout.splitlines()), time.monotonic() - begin


class MpiTest(unittest.TestCase):
    def ends(self, count, case, said, told=None, within=10):
        """All end with exit status 1, and one of the ranks says why; the others were told or killed."""
        status, lines, seconds = ranks(count, case)
        self.assertLess(seconds, within)
        own = [line for line in lines if not line.startswith("told: ")]
        self.assertEqual(len(own), 1, lines)
        self.assertRegex(own[0], f"^{said}$")
        for line in set(lines) - set(own):
            self.assertRegex(line, f"^told: {told or said}$")
        return status, lines

    def test_bytes_arrive_as_they_were_sent(self):
        for count in 2, 4:
            status, lines, _ = ranks(count, "exchanges")
            self.assertEqual(lines, [f"rank {r} of {count} by mpi: well" for r in range(count)])
            self.assertEqual(status, 0)

    def test_ranks_at_different_exchanges_are_told(self):
        at_others = "rank 0 is at the exchange 'gradients 3', and rank 1 at 'parameters 7'"
        self.assertEqual(self.ends(4, "other_names", at_others)[0], 1)

    def test_messages_of_other_sizes_are_refused(self):
        others = "exchange 'gradients 3': rank 1 gives rank 0 other messages than that one takes"
        self.assertEqual(self.ends(2, "other_sizes", others)[0], 1)

    def test_the_others_throw_the_reason_of_a_failure(self):
        status, lines = self.ends(4, "fail_one", "own disk is full", "rank 1: the disk is full")
        self.assertEqual(status, 1)
        self.assertIn("told: rank 1: the disk is full", lines)

    def test_a_rank_that_throws_ends_all(self):
        self.assertEqual(self.ends(4, "leave_without_a_word", "a fault", "rank 1: it ended")[0], 1)

    def test_ranks_that_all_fail_say_it_once(self):
        self.assertEqual(self.ends(4, "fail_all", "no such data")[0], 1)

    def test_a_rank_that_told_the_others_of_its_error_says_it(self):
        said = self.ends(2, "tell_then_ask", "no such data", "rank 1: no such data")
        self.assertEqual(said[0], 1)

    def test_a_rank_that_ends_before_the_others_is_named(self):
        at_others = "rank 0 is at the exchange 'texts', and rank 1 at 'end of the run'"
        self.assertEqual(self.ends(4, "return_early", at_others)[0], 1)

    def test_a_killed_rank_ends_all(self):
        for case in "kill_one", "ask_twice":
            status, _ = self.ends(4, case, "rank 1 disappeared in step 3, at the exchange 'texts'")
            self.assertNotEqual(status, 0)

    def test_a_rank_that_does_not_come_is_named(self):
        absent = "rank 1 did not come to the exchange 'gradients' within 1 s"
        self.assertEqual(self.ends(4, "hang_one", absent)[0], 1)

    def test_a_stopped_rank_is_named(self):
        absent = "rank 1 did not come to the exchange 'texts' within 1 s"
        self.assertEqual(self.ends(4, "stop_one", absent)[0], 1)

    def test_another_number_of_ranks_than_the_launcher_s_is_said(self):
        status, lines, _ = ranks(2, "other_count")
        self.assertEqual(status, 0)
        for line in lines:
            self.assertRegex(line, "^no ranks: .* counts 2 ranks, and the launcher 3$")
        self.assertEqual(len(lines), 2)


if not shutil.which("mpirun"):
    print("skipped: there is no mpirun (Debian's openmpi-bin)")
    sys.exit(77)
library = subprocess.run([PROGRAM, "library"], capture_output=True, text=True, check=True).stdout
if library.startswith("no MPI"):
    print(f"skipped: {library}")
    sys.exit(77)
unittest.main()
