"""What one rank can tell of a GPU and of NCCL: every answer, and what is said where one is no.

one_rank_test.py PROGRAM, built with the emulated NCCL"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
NAMES = ["init", "arena", "window", "exchange", "capture", "replay", "end", "abort", "ranks"]


def ask(**more):
    """The exit status, the lines, and the answers by name."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "answers.json"
        env = os.environ | {"SPOOL_ONE_RANK_SECONDS": "100"} | more
        run = subprocess.run([PROGRAM, file], capture_output=True, text=True, env=env, timeout=300)
        answers = json.loads(file.read_text())["answers"] if file.exists() else []
    return run.returncode, run.stdout, {answer["name"]: answer for answer in answers}


class OneRank(unittest.TestCase):
    def test_all_answers_are_as_ranks_need_them(self):
        status, lines, answers = ask()
        self.assertEqual(status, 0, lines)
        self.assertEqual(list(answers), NAMES)
        self.assertEqual({answer["outcome"] for answer in answers.values()}, {"yes"})
        self.assertEqual(answers["replay"]["replays"], 100)
        self.assertGreater(answers["init"]["taken_bytes"], 0)

    def test_without_a_gpu_or_nccl_nothing_is_asked(self):
        self.assertEqual(ask(CUDA_VISIBLE_DEVICES="")[:2], (77, "there is no CUDA device here\n"))
        self.assertEqual(ask(SPOOL_NCCL="0")[:2], (77, "SPOOL_NCCL is 0 in the environment; unset it\n"))

    def test_a_no_says_what_it_means(self):
        status, lines, answers = ask(EMULATOR_NCCL="no_windows")
        self.assertEqual(status, 1)
        self.assertEqual([name for name in answers if answers[name]["outcome"] == "no"], ["window"], lines)
        self.assertIn("no: window: NCCL takes no window of this memory, without an error;", lines)
        self.assertIn("this means that exchanges go through NCCL's own buffers", lines)

    def test_questions_that_rest_on_a_no_are_left_out(self):
        status, lines, answers = ask(SPOOL_CUDA_SYNC="1")
        self.assertEqual(status, 1)
        self.assertEqual(answers["capture"]["outcome"], "no")
        self.assertIn("communicators that do not block may not be captured", answers["capture"]["meaning"])
        self.assertEqual((answers["replay"]["outcome"], answers["replay"]["why"]), ("left out", "nothing was captured"))
        self.assertEqual(answers["end"]["outcome"], "yes")

    def test_an_answer_that_does_not_come_is_a_no(self):
        status, lines, answers = ask(EMULATOR_NCCL_FAILS_AT="20", SPOOL_ONE_RANK_SECONDS="4")
        self.assertEqual(status, 1)
        self.assertEqual(list(answers), NAMES[:6])
        self.assertEqual(answers["replay"]["outcome"], "no")
        self.assertEqual(answers["replay"]["why"], "no answer in 4 s")


if __name__ == "__main__":
    unittest.main()
