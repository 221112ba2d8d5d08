"""How many threads the program takes by default.

threads_command_test.py PROGRAM [CASE...]
"""

import os

from commands import SHAPE, Folder, main, spool


class Threads(Folder):
    def plan(self, *words, cores=None):
        keep = {} if cores is None else {"preexec_fn": lambda: os.sched_setaffinity(0, cores)}
        status, printed, errors = spool("plan", *SHAPE, *words, **keep)
        self.assertEqual(status, 0, errors)
        return printed

    def test_are_at_most_those_that_the_process_may_run_on(self):
        allowed = sorted(os.sched_getaffinity(0))
        self.assertIn("on cpu (1 thread):", self.plan(cores=allowed[:1]))
        self.assertIn("on cpu (1 thread):", self.plan(cores=allowed[-1:]))

    def test_are_as_many_as_a_user_says(self):
        allowed = sorted(os.sched_getaffinity(0))
        self.assertIn("on cpu (3 threads):", self.plan("--threads", 3, cores=allowed[:1]))
        self.assertIn("on cpu (1 thread):", self.plan("--threads", 0, cores=allowed[:1]))


if __name__ == "__main__":
    main()
