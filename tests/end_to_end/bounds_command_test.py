"""The lower bound that `spool plan` prints is a number, and no plan is faster.

bounds_command_test.py PROGRAM [CASE...]
"""

import json
import math
import re

from commands import Folder, main, spool

# Settings whose smallest plans have their peak in an evaluation, or run in chunks.
STEPS = [
    "--model llama-tiny --layers 2 --context 1024 --seq 1024 --batch 1 --chunk-loss 100 --machine h100",
    "--model gpt2-tiny --layers 3 --context 1024 --seq 1024 --batch 2 --dtype bf16 --machine h200",
    "--model llama-tiny --layers 3 --context 512 --seq 256 --vocab 300 --channels 128 --heads 4 --batch 8"
    " --accumulate 4 --machine rtx4090",
    "--model llama-tiny --layers 1 --seq 64 --vocab 5000 --batch 8 --accumulate 2 --machine a100-40g",
]
NO_NUMBER = re.compile(r"-?\d{12,} min|\binf\b|\bnan\b|-\d+(\.\d+)? %")


class Bounds(Folder):
    def plan(self, words, *more):
        file = self.folder / "plan.json"
        status, printed, errors = spool("plan", *words.split(), *more, "--json", file)
        report = json.loads(file.read_text())
        file.unlink()
        self.assertEqual(status, 1 if "error" in report else 0, errors)
        self.assertNotRegex(printed, NO_NUMBER)
        return printed, report

    def expect_bound(self, point):
        bound, seconds, gap = (point[k] for k in ("lower_bound_ms", "foretold_step_ms", "gap"))
        self.assertIsNotNone(bound)
        self.assertGreater(bound, 0)
        self.assertLessEqual(bound, seconds)
        self.assertGreaterEqual(gap, 0)
        self.assertTrue(math.isclose(gap, seconds / bound - 1, abs_tol=1e-9))

    def test_hold_from_the_smallest_budget_on(self):
        for words in STEPS:
            with self.subTest(words):
                least = self.plan(words, "--memory", "1kB")[1]["minimum_budget_bytes"]
                for budget in [least, least + 512, least * 1003 // 1000, least * 102 // 100, least * 13 // 10]:
                    printed, report = self.plan(words, "--memory", budget)
                    self.expect_bound(report)
                    self.assertRegex(printed, r"\n    lower bound +[\d.]+ (us|ms|s) ")

    def test_hold_on_the_whole_frontier(self):
        printed, report = self.plan(STEPS[0], "--memory", "1GiB", "--frontier")
        self.assertEqual(len(report["frontier"]), 21)
        for point in report["frontier"]:
            self.expect_bound(point)

    def test_are_said_to_be_unknown_where_copies_are_set_by_hand(self):
        words = STEPS[3] + " --optimizer-state streamed --memory 1GiB"
        printed, report = self.plan(words, "--frontier")
        self.assertRegex(printed, r"\n    lower bound +none ")
        self.assertIn("there is no lower bound", " ".join(report["explanation"]))
        for point in [report, *report["frontier"]]:
            self.assertEqual((point["lower_bound_ms"], point["gap"]), (None, None))


if __name__ == "__main__":
    main()
