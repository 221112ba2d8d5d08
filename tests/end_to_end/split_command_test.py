"""Tokens of a step, split into micro-batches for a budget: `--tokens-per-step`.

split_command_test.py PROGRAM [CASE...]
"""

import json
import re

from commands import Folder, main, spool

MODEL = "--layers 4 --heads 2 --channels 32 --context 64 --seq 64 --vocab 600 --threads 2".split()
ROWS = 24
STEP = ["--tokens-per-step", ROWS * 64]
SPLIT_ROW = re.compile(r"\n  split of a step +(\d+) x (\d+) ")


class Splits(Folder):
    def plan(self, *words):
        """Plans; returns the report and the table."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        status, printed, errors = spool("plan", *MODEL, *words, "--json", report)
        found = json.loads(report.read_text())
        self.assertEqual(status, 1 if "error" in found else 0, errors)
        return found, printed

    def smallest(self, batch, threads=2):
        words = ["--batch", batch, "--accumulate", ROWS // batch, "--memory", "1kB"]
        return self.plan(*words, "--threads", threads)[0]["minimum_budget_bytes"]

    def between(self):
        """A budget within which some splits fit, but not all rows at once."""
        return (self.smallest(6, threads=8) + self.smallest(ROWS)) // 2

    def begin(self, *words, steps=2):
        fixed = ["--data", self.text, "--out", self.out, "--steps", steps]
        return spool("train", *MODEL, *fixed, *words)

    def configuration(self):
        return json.loads((self.out / "latest" / "run.json").read_text())["configuration"]

    def test_a_run_has_the_split_and_keeps_it(self):
        budget, log = self.between(), self.folder / "log"
        planned, table = self.plan(*STEP, "--memory", budget)
        status, printed, errors = self.begin(*STEP, "--memory", budget, "--log", log)
        self.assertEqual(status, 0, errors)
        kept = self.configuration()
        split = kept["batch"], kept["accumulate"]
        self.assertEqual(split[0] * split[1], ROWS)
        self.assertLess(split[0], ROWS)
        self.assertNotIn("tokens-per-step", kept)
        self.assertEqual(split, (planned["batch"], planned["accumulate"]))
        for text in [table, printed]:
            self.assertEqual(SPLIT_ROW.search(text).groups(), tuple(map(str, split)))
        head = self.log(log)[0]["configuration"]
        self.assertEqual((head["batch"], head["accumulate"]), split)
        self.assertEqual([e["tokens"] for e in self.log(log) if "loss" in e], [ROWS * 64, 2 * ROWS * 64])

        resume = ["train", "--resume", self.out, "--threads", 2, "--steps", 3]
        whole = spool(*resume, "--memory", "4GiB", *STEP)
        self.assertEqual(whole[0], 0, whole[2])
        self.assertEqual((self.configuration()["batch"], self.configuration()["accumulate"]), split)
        self.assertNotRegex(whole[1], SPLIT_ROW)
        resume[-1] = 4
        other = spool(*resume, "--tokens-per-step", 2 * ROWS * 64)
        self.refused(other, 1, f"keeps its {ROWS * 64}", "(--tokens-per-step, --out)")
        seq = spool(*resume, *STEP, "--seq", 32)
        self.refused(seq, 1, "cannot be resumed with seq 32: it has 64")
        tight = spool(*resume, "--memory", "1kB", *STEP)
        self.refused(tight, 1, "the smallest plan of this run needs", "keeps its batch", "--memory")

    def test_of_the_same_split_by_hand_losses_are_the_same(self):
        budget = self.between()
        logs = []
        for words in [STEP, None]:
            kept = self.configuration() if words is None else {}
            split = words or ["--batch", kept["batch"], "--accumulate", kept["accumulate"]]
            logs.append(self.folder / f"{len(logs)}.jsonl")
            out = self.out if words else self.folder / "by-hand"
            fixed = ["--data", self.text, "--out", out, "--steps", 2, "--memory", budget]
            done = spool("train", *MODEL, *fixed, *split, "--log", logs[-1])
            self.assertEqual(done[0], 0, done[2])
        self.assertEqual(self.losses(logs[0]), self.losses(logs[1]))

    def test_plans_say_every_split_and_the_neighbours(self):
        found, table = self.plan(*STEP, "--memory", self.between())
        self.assertEqual([s["batch"] for s in found["splits"]], [1, 2, 3, 4, 6, 8, 12, 24])
        fitting = [s for s in found["splits"] if s["fits"]]
        best = min(fitting, key=lambda s: s["step_ms"])
        self.assertEqual((best["batch"], best["accumulate"]), (found["batch"], found["accumulate"]))
        self.assertFalse(found["splits"][-1]["fits"])
        self.assertIsNone(found["splits"][-1]["step_ms"])
        said = " ".join(table[SPLIT_ROW.search(table).start() :].split())
        at = found["splits"].index(best)
        for beside in found["splits"][max(at - 1, 0) : at] + found["splits"][at + 1 : at + 2]:
            name = f"{beside['batch']} x {beside['accumulate']}"
            self.assertRegex(said, f"{name} (does not fit|takes (at least )?[0-9.]+ )")
        self.assertIsNone(self.plan("--batch", 2)[0]["splits"])
        whole, table = self.plan(*STEP)
        self.assertEqual((whole["batch"], whole["accumulate"]), (ROWS, 1))
        away, _ = self.plan(*STEP, "--machine", "h100", "--memory", self.between())
        self.assertEqual(away["batch"] * away["accumulate"], ROWS)

    def test_a_budget_for_no_split_names_the_smallest(self):
        found, _ = self.plan(*STEP, "--memory", "1kB")
        self.assertEqual((found["batch"], found["accumulate"]), (1, ROWS))
        self.assertEqual(found["minimum_budget_bytes"], self.smallest(1))
        self.assertNotIn("may fit", found["error"])

    def test_a_refused_batch_says_that_a_split_would_fit(self):
        refused, _ = self.plan("--batch", ROWS, "--memory", self.smallest(2))
        self.assertIn("a split that fits can be chosen", refused["error"])

    def test_refuses_what_is_no_number_of_tokens(self):
        for words, code, *parts in [
            ([*STEP, "--batch", 2], 1, "--batch and --tokens-per-step both say"),
            ([*STEP, "--accumulate", 2], 1, "--accumulate and --tokens-per-step both say"),
            ([*STEP, "--plan", "p.json"], 1, "--plan is of one split"),
            (["--tokens-per-step", 1000], 1, "the nearest are 960 and 1024", "--seq"),
            (["--tokens-per-step", 63], 1, "the nearest is 64"),
            (["--tokens-per-step", 0], 2, "0 is too little"),
            (["--tokens-per-step", -64], 2, "-64 is too little"),
            (["--tokens-per-step", 2**63 - 1], 1, "at most 2147483647"),
            (["--tokens-per-step", 2**64], 2, "--tokens-per-step"),
            (["--tokens-per-step", "1e6"], 2, "--tokens-per-step"),
        ]:
            for command in ["plan", "train"]:
                self.refused(spool(command, *MODEL, *words), code, *parts)
        status, _, errors = spool("calibrate", *MODEL, *STEP)
        self.assertEqual(status, 2)
        self.assertIn("--tokens-per-step", errors)


if __name__ == "__main__":
    main()
