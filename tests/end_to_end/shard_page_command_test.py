"""The page of `spool shard --model`: how ranks share the ops of a model, and the ways that were judged.

What is drawn is what its JSON says, and that adds up to the exchanges of a whole step.
"""

import collections
import json
import re
import sys

import chromium
from commands import SKIPPED, main, spool
from report_pages import DrawnPages, page_with, report_in

WIDTHS = [1280, 760, 375]
MODEL = "--model gpt2-124m --layers 4 --batch 8 --seq 512 --dtype bf16".split()
MOST_BOXES = 8  # of an axis
HOSTILE = "</script><img src=x onerror=alert(1)>&amp;"


def ops_of(cuts):
    return [op for part in cuts["parts"] for op in part["ops"]]


def kind_of(cut):
    if cut is None:
        return "whole"
    return "summed" if cut["summed"] else "rows" if cut["rows"] else "part"


def sent_by(cuts):
    """The bytes that a rank sends in a step, by the name of the exchanges."""
    sent = collections.Counter()
    for part in cuts["parts"]:
        times = part["layers"] or 1
        for move in (move for op in part["ops"] for move in op["moves"]):
            sent[f"{move['move']} along {cuts['axes'][move['axis']]['name']}"] += times * move["bytes"]
    return sent


class Page(DrawnPages):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = cls.make("shards.html", "--mesh", "2x4", "--machine", "8xh200")

    @classmethod
    def make(cls, name, *words):
        page = cls.out / name
        code, _, said = spool("shard", *MODEL, *words, "--report", page)
        if code != 0:
            raise AssertionError(said)
        return page

    def check_cuts(self, drawn, cuts):
        boxes, moves = collections.Counter(), collections.Counter()
        for op in ops_of(cuts):
            for axis, cut in zip(cuts["axes"], op["along"]):
                boxes[kind_of(cut)] += min(axis["ranks"], MOST_BOXES)
            moves.update("backward" if move["backward"] else "forward" for move in op["moves"])
        self.assertEqual(drawn["boxes"], dict(boxes))
        self.assertEqual(drawn["moves"], dict(moves))

    def check_points(self, drawn, points):
        """Each within a part in a hundred of a number: the axes may be logarithmic."""
        self.assertEqual(len(drawn), len(points))
        for at, expected in zip(sorted(drawn), sorted(points)):
            for i in range(2):
                self.assertAlmostEqual(at[i] / expected[i], 1, delta=1e-2)

    def test_ops_and_ways_are_drawn_as_the_report_says(self):
        report = report_in(self.page)
        self.assertEqual([axis["ranks"] for axis in report["cuts"]["axes"]], [2, 4])
        ways = [(c["foretold_peak_bytes"], c["foretold_step_ms"]) for c in report["sharding"]["candidates"]]
        for width in WIDTHS:
            with self.subTest(width=width):
                drawn = self.open(self.page, width)
                self.check_cuts(drawn["cuts"], report["cuts"])
                self.check_points(drawn["candidates"], ways)
                self.assertIn("exchange", drawn["lanes"])
        self.assertIn(report["sharding"]["chosen"], self.browser.run("document.querySelector('#candidates').innerText"))

    def test_the_moves_of_a_block_add_up_to_the_exchanges_of_a_step(self):
        for words in [["--mesh", "2x4", "--machine", "8xh200"], ["--mesh", "tensor=4", "--machine", "4xh200"]]:
            for policy in ["auto", "megatron", "megatron-rows"]:
                report = self.out / "plan.json"
                keeps = ["--accumulate", 1, "--recompute", "none"]
                code, _, said = spool("plan", *MODEL, *words, *keeps, "--shard", policy, "--json", report)
                self.assertEqual(code, 0, said)
                plan = json.loads(report.read_text())
                report.unlink()
                sent = sent_by(plan["cuts"])
                self.assertTrue(sent, (words, policy))
                moves = [e for e in plan["exchange"]["list"] if re.match("(all|reduce)-.* along", e["name"])]
                foretold = {e["name"]: e["bytes"] for e in moves if e["bytes"] > 100}  # but the loss
                self.assertEqual({name: round(n) for name, n in sent.items() if n > 100}, foretold, (words, policy))

    def test_an_op_is_read_with_the_keyboard(self):
        ops = ops_of(report_in(self.page)["cuts"])
        self.open(self.page)
        self.browser.run("document.querySelector('#cuts [role=slider]').focus()")
        for key, op in [("Home", ops[0]), ("ArrowDown", ops[1]), ("ArrowRight", ops[2]), ("End", ops[-1])]:
            self.browser.press(key)
            said = self.browser.run("document.querySelector('#cuts .reading').textContent")
            self.assertTrue(said.startswith(op["name"] + ", "), said)
            for move in op["moves"]:
                self.assertIn(f"{move['move']} along", said)

    def test_many_ranks_and_arrangements(self):
        page = self.make("ranks.html", "--mesh", "16", "--machine", "16xh200", "--accumulate", 1)
        report = report_in(page)
        known = [(m["foretold_peak_bytes"], m["foretold_step_ms"]) for m in report["meshes"] if "why" not in m]
        self.assertGreater(len(known), 3)
        for width in WIDTHS:
            drawn = self.open(page, width)
            self.check_cuts(drawn["cuts"], report["cuts"])
            self.check_points(drawn["meshes"], known)
        self.browser.run("for (const part of document.querySelectorAll('details')) part.open = true")
        words = self.browser.run("document.querySelector('#meshes').innerText")
        for tried in report["meshes"]:
            self.assertIn(tried["mesh"], words)

    def test_text_of_a_report_is_text(self):
        report = report_in(self.page)
        for op in ops_of(report["cuts"]):
            op["name"] += HOSTILE
            for move in op["moves"]:
                move["value"] += HOSTILE
        report["sharding"]["candidates"][0]["name"] += HOSTILE
        report["sharding"]["refused"] = [{"name": "rows" + HOSTILE, "why": HOSTILE}]
        page = page_with(self.page, report, self.out / "hostile.html")
        for width in WIDTHS:
            self.open(page, width)
            self.assertEqual(self.browser.run("document.querySelectorAll('img').length"), 0)

    def test_a_file_that_is_no_page_is_left_alone(self):
        other = self.out / "other.html"
        other.write_text("mine")
        code, _, said = spool("shard", *MODEL, "--mesh", "2x2", "--machine", "4xh200", "--report", other)
        self.assertEqual(code, 1)
        self.assertIn("--report", said)
        self.assertEqual(other.read_text(), "mine")


if __name__ == "__main__":
    if not chromium.find():
        print("no Chromium is here to draw pages: these tests are skipped", file=sys.stderr)
        sys.exit(SKIPPED)
    main()
