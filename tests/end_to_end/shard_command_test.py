"""`spool shard`: the ways to cut an op over a mesh, and what each costs.

shard_command_test.py PROGRAM [CASE...]
"""

import json
import pathlib
import re

from commands import Folder, main, spool

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "sharding.md"
LINEAR = "--op linear --shape 4,4,4,16 --out 32".split()
ATTENTION = "--op attention --shape 2,8,40 --heads 6/2".split()
LOSS = "--op loss --shape 4,8,16 --vocab 32".split()
MODEL = ["--model", "gpt2-tiny", "--batch", 4]
HUGE = ["99999999999999999999", str(2**63 - 1), "-4"]


class Shard(Folder):
    def shard(self, *words):
        """The table."""
        status, printed, errors = spool("shard", *words)
        self.assertEqual(status, 0, errors)
        self.assertLessEqual(max(map(len, printed.splitlines())), 80, printed)
        return printed

    def found(self, *words):
        """The JSON, by axes, and those that are refused."""
        status, printed, errors = spool("shard", *words, "--json", "-")
        self.assertEqual(status, 0, errors)
        report = json.loads(printed)
        self.assertEqual(set(report), {"op", "notation", "mesh", "strategies", "refused"})
        return {" ".join(s["axes"]): s for s in report["strategies"]}, report["refused"]

    def test_a_linear_has_36_ways_of_which_colossalai_has_24(self):
        ways, refused = self.found(*LINEAR, "--mesh", "2x2")
        names = [way["colossalai"] for way in ways.values() if way["colossalai"]]
        self.assertEqual([len(ways), len(names), len(set(names)), refused], [36, 24, 24, []])
        way = ways["n0 k"]
        self.assertEqual(way["colossalai"], "S0R = S0S1 x S1R_0")
        self.assertEqual(way["inputs"][0][:6], "S0RRS1")
        self.assertEqual(way["forward"], [{"value": "y", "move": "all-reduce", "axes": [1], "bytes": 4096}])
        self.assertEqual([e["value"] for e in way["backward"]], ["dw", "db"])
        self.assertIsNone(way["seconds"])
        table = self.shard(*LINEAR, "--mesh", "2x2")
        self.assertIn("36 ways on 2x2", table)
        self.assertRegex(table, r"\n n0 k +S0RRS1 +RS1 +R\+P1 +S0RRR +y:1 +dw:0 db:0 .* S0R=S0S1xS1R_0\n")

    def test_a_machine_and_a_link_give_prices(self):
        words = ["--op", "linear", "--shape", "64,1024,1280", "--out", "5120", "--dtype", "bf16"]
        words += ["--mesh", "2x4", "--machine", "8xh200"]
        own = self.found(*words)[0]
        slow = self.found(*words, "--link", "1e9,1e-3")[0]
        for axes, way in own.items():
            sent = sum(e["bytes"] for e in way["forward"] + way["backward"])
            self.assertGreater(way["seconds"], 0)
            if sent == 0:
                self.assertEqual(slow[axes]["seconds"], way["seconds"])
            else:
                self.assertGreater(slow[axes]["seconds"], way["seconds"] + 0.5 * sent / 1e9)
        self.assertLess(own["n0 n1"]["seconds"], own["- -"]["seconds"])
        self.assertRegex(self.shard(*words), r"\nThe fastest: .*, [\d.]+ [mu]s forward and backward\.\n")

    def test_the_loss_joins_parts_of_a_vocabulary(self):
        way = self.found(*LOSS, "--mesh", "2x4")[0]["n0 v"]
        gathered = {"value": "v*", "move": "all-gather", "axes": [1], "bytes": 3 * 4 * 16 * 3}
        self.assertIn(gathered, way["forward"])
        smooth = self.found(*LOSS, "--mesh", "2x4", "--label-smoothing", 0.1)[0]["n0 v"]
        self.assertIn(gathered | {"bytes": 3 * 4 * 16 * 4}, smooth["forward"])

    def test_what_does_not_divide_is_listed_below(self):
        table = self.shard(*ATTENTION, "--mesh", "data=2,tensor=4")
        below = table[table.index("\nDo not divide:\n") :]
        self.assertRegex(below, r"\n - h, b h: the 2 key heads of qkv .* do not divide by 4; 1 or 2\s+would")
        self.assertEqual(len(self.found(*ATTENTION, "--mesh", "data=2,tensor=4")[1]), 6)

    def test_a_file_has_the_same(self):
        file = self.folder / "ways.json"
        printed = self.shard(*LINEAR, "--mesh", "2", "--json", file)
        self.assertIn("6 ways on 2", printed)
        self.assertEqual(len(json.loads(file.read_text())["strategies"]), 6)
        self.assertIn("the strategies of an op", spool("info", file)[1])
        self.assertEqual(spool("shard", *LOSS, "--mesh", "2", "--json", file)[0], 0)
        self.refused(spool("shard", *LINEAR, "--mesh", "2", "--json", self.text), 1, "exists already", "--json")
        missing = self.folder / "none" / "ways.json"
        self.refused(spool("shard", *LINEAR, "--mesh", "2", "--json", missing), 1, str(missing), "--json")

    def test_the_examples_of_the_document_are_what_is_printed(self):
        examples = re.findall(r"^\$ spool shard ((?:[^\n\\]|\\\n)*)\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
        self.assertGreaterEqual(len(examples), 3)
        for words, shown in examples:
            printed = self.shard(*words.replace("\\\n", " ").split())
            for lines in shown.split(" ...\n"):  # which stand for lines that are left out
                self.assertIn(lines, printed)


class Refused(Folder):
    def shard(self, words, *parts, code=1):
        self.refused(spool("shard", *words), code, *parts)

    def test_ops_and_flags(self):
        self.shard(["--op", "conv", "--shape", "4,4", "--mesh", "2"], "no op 'conv'", "linear, matmul", "(--op)")
        self.shard(["--shape", "4,4", "--mesh", "2"], "--op or --model")
        self.shard(["--op", "gelu", "--mesh", "2"], "--shape")
        self.shard(["--op", "gelu", "--shape", "4,4"], "--mesh", code=2)
        self.shard(["--op", "linear", "--shape", "4,4", "--mesh", "2"], "linear needs out", "(--out)")
        self.shard([*LINEAR, "--mesh", "2", "--heads", 4], "linear has no heads", "(--heads)")
        self.shard([*ATTENTION, "--mesh", "2", "--no-bias"], "attention has no no-bias", "heads")

    def test_shapes(self):
        for shape in ["x", "4,,4", ",", "4,4.5", "1e3", *HUGE[:1], *HUGE[2:]]:
            self.shard(["--op", "gelu", f"--shape={shape}", "--mesh", "2"], "is no shape", "4,4,16")
        self.shard(["--op", "gelu", "--shape", "1,2,3,4,5", "--mesh", "2"], "5 dimensions", "at most 4")
        self.shard(["--op", "gelu", "--shape", f"4,{HUGE[1]}", "--mesh", "2"], "2^59", "(--shape)")
        self.shard(["--op", "gelu", "--shape", "4,0", "--mesh", "2"], "no elements", "(--shape)")
        attention = ["--op", "attention", "--mesh", "2"]
        self.shard([*attention, "--heads=6/2", "--shape", "8,40"], "(B, T", "(--shape, --heads)")
        self.shard([*attention, "--heads=6/2", "--shape", "2,8,41"], "10 heads")
        for heads in ["0", "6/0", "6/2/1", "x", *HUGE]:
            self.shard([*attention, f"--heads={heads}", "--shape", "2,8,40"], "are no heads", "24/8")
        self.shard(["--op", "swiglu", "--shape", "4,5", "--mesh", "2"], "even")
        self.shard(["--op", "linear", "--shape", "4,4", "--mesh", "2", f"--out={HUGE[2]}"], "1 or more", "(--out)")
        self.shard(["--op", "linear", "--shape", "4,4", "--mesh", "2", f"--out={HUGE[1]}"], "2^59")
        self.shard(["--op", "linear", "--shape", "4,4", "--mesh", "2", f"--out={HUGE[0]}"], "--out", code=2)

    def test_meshes_and_machines(self):
        for mesh in ["x", "2x", "2x2x2x2x2", "0", "2x0", "-2", "data=2,data=2", "data", HUGE[0], "2,2"]:
            self.shard([*LINEAR, f"--mesh={mesh}"], "mesh '" + mesh, "(--mesh)")
        self.shard([*LINEAR, "--mesh="], "--mesh", code=2)
        self.shard([*LINEAR, "--mesh", "2", "--machine="], "--machine", code=2)
        self.shard([*LINEAR, "--mesh", "2", "--machine", "none"], "no machine 'none'", "h200", "(--machine)")
        self.shard([*LINEAR, "--mesh", "2x2", "--machine", "8xh200"], "8 ranks", "mesh 2x2 has 4", "--machine")
        self.shard([*LINEAR, "--mesh", "2", "--link", "1e9,0"], "name one", "--machine")
        for link in ["1e9", "0,0", "1e9,-1", "nan,0"]:
            self.shard([*LINEAR, "--mesh", "2", "--machine", "h200", f"--link={link}"], "is no link", "(--link)")


class Model(Folder):
    def cut(self, *words):
        """The JSON of how a model is cut."""
        status, printed, errors = spool("shard", *MODEL, *words, "--json", "-")
        self.assertEqual(status, 0, errors)
        return json.loads(printed)

    def test_a_model_is_cut_as_is_fastest_in_a_budget(self):
        free = self.cut("--mesh", "2x2", "--machine", "4xh200")
        by_hand = {"none", "rows", "megatron", "megatron-rows"}
        names = [c["name"] for c in free["candidates"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(by_hand & set(names), names)
        times = [c["foretold_step_ms"] for c in free["candidates"]]
        self.assertEqual(times, sorted(times))
        self.assertEqual(free["chosen"], names[0])
        self.assertAlmostEqual(free["foretold_step_ms"], times[0], delta=0.02 * times[0])
        self.assertEqual(len(free["parameters"]), 52)
        self.assertGreater(sum(e["bytes"] for e in free["exchanges"]), 0)
        budget = free["foretold_peak_bytes"] * 7 // 8
        small = self.cut("--mesh", "2x2", "--machine", "4xh200", "--memory", budget)
        self.assertLessEqual(small["foretold_peak_bytes"], budget)
        self.assertEqual(small["budget_bytes"], budget)
        chosen = next(c for c in small["candidates"] if c["name"] == small["chosen"])
        self.assertTrue(chosen["planned"] and chosen["feasible"])
        for other in small["candidates"]:
            if other["feasible"] is not False:
                self.assertGreaterEqual(other["foretold_step_ms"], 0.995 * chosen["foretold_step_ms"], other)

    def test_a_model_is_cut_by_what_is_saved(self):
        shards, report = self.folder / "shards.json", self.folder / "report.json"
        words = ["--mesh", "tensor=2", "--machine", "2xh200"]
        status, printed, errors = spool("shard", *MODEL, *words, "--save-shard", shards, "--json", report)
        self.assertEqual(status, 0, errors)
        for part in ["along tensor:", "foretold peak", "shards ", "candidates, in"]:
            self.assertIn(part, printed)
        status, planned, errors = spool("plan", *MODEL, *words, "--accumulate", 1, "--shard", shards)
        self.assertEqual(status, 0, errors)
        peak = json.loads(report.read_text())["foretold_peak_bytes"]
        self.assertIn(str(peak), planned.replace(",", ""))

    def test_ranks_of_a_number_are_arranged_in_every_way(self):
        status, printed, errors = spool("shard", *MODEL, "--mesh", 4, "--machine", "4xh200")
        self.assertEqual(status, 0, errors)
        self.assertEqual(spool("shard", *MODEL, "--mesh", 9, "--machine", "9xh200")[0], 0)
        self.assertRegex(printed, r"on (4|2x2) .*iB\n")

    def test_what_no_model_can_be_is_refused(self):
        on = ["--mesh", "2x2", "--machine", "4xh200"]
        for words, parts in [
            ([*MODEL, "--mesh", "2x2"], ["--machine", "8xh200"]),
            ([*MODEL, "--mesh", "2x2", "--machine", "8xh200"], ["8", "4"]),
            ([*MODEL, "--mesh", "data=2", "--machine", "2xh200"], ["--mesh", "data"]),
            ([*MODEL, "--mesh", "7", "--machine", "7xh200"], ["axis 0", "7 ranks", "divide"]),
            ([*MODEL, *on, "--memory", "1MiB", "--host-memory", 0], ["--memory", "takes fewest bytes: the smallest plan"]),
            ([*MODEL, *on, "--op", "linear"], ["--op or --model"]),
            (["--mesh", "2x2"], ["--op or --model"]),
            ([*MODEL, *on, "--shape", "4,4"], ["--shape is of an op", "--model"]),
            (["--op", "gelu", "--shape", "4,4", "--mesh", 2, "--zero", 3], ["--zero is of a model", "--op"]),
            ([*MODEL, *on, "--seq", 5000], ["--seq"]),
            ([*MODEL, "--mesh", "data=2,tensor=2", "--machine", "4xh200", "--accumulate", 3], ["--accumulate"]),
            ([*MODEL, *on, "--json", self.folder / "x", "--save-shard", self.folder / "x"], ["--json", "--save-shard"]),
            (["--op", "linear", "--mesh", "2x2"], ["--shape"]),
            ([*MODEL, *on, "--save-shard", self.folder / "none" / "s.json"], ["none"]),
        ]:
            self.refused(spool("shard", *words), 1, *parts)


if __name__ == "__main__":
    main()
