"""The command calibrate, and what train takes from its table."""

import json
import os
import re
import unittest

from commands import SHAPE, Folder, main, spool

DEVICE = ["--threads", 2]


class Calibrate(Folder):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache)}

    def calibrate(self, *words):
        device = [] if "--threads" in words else DEVICE
        status, out, errors = spool("calibrate", *SHAPE, *device, *words, env=self.environment)
        self.assertEqual(status, 0, errors)
        return out

    def table(self):
        (file,) = (self.cache / "spool").glob("kernels-cpu-*.json")
        return file

    def seconds(self):
        kernels = json.loads(self.table().read_text())["kernels"]
        return {(k["name"], k["dtype"], k["flops"], k["bytes"]): k["seconds"] for k in kernels}

    def test_measures_prints_and_only_lowers(self):
        out = self.calibrate()
        for word in ("matmul", "attention_backward", "adamw", "GFLOP/s", "GB/s", str(self.table())):
            self.assertIn(word, out)
        first = self.seconds()
        self.assertGreater(len(first), 10)
        self.calibrate()
        lowered = self.seconds()
        self.assertEqual(lowered.keys(), first.keys())
        self.assertTrue(all(lowered[k] <= first[k] for k in first))
        self.calibrate("--afresh")
        self.assertEqual(self.seconds().keys(), first.keys())
        self.assertNotEqual(self.seconds(), lowered)

    def test_equal_layers_are_measured_once_and_what_is_left_is_counted(self):
        deep = ["--layers", 6]
        out = self.calibrate(*deep)
        self.assertRegex(out, r"\d+ of the \d+ kernels of a step not measured")
        for words, counts in [(deep, True), ([], False)]:
            self.calibrate(*words)
            status, out, errors = spool("plan", *SHAPE, *DEVICE, *words, env=self.environment)
            self.assertEqual(status, 0, errors)
            counted = re.search(r"kernels +\d+ of \d+ +are not measured", out)
            self.assertEqual(counted is not None, counts, out)
        self.assertNotIn("not measured", self.calibrate())

    def test_train_measures_once_and_corrects_its_foretold_time(self):
        log = self.folder / "log.jsonl"
        status, out, errors = self.train(*DEVICE, "--log", log, steps=5, env=self.environment)
        self.assertEqual(status, 0, errors)
        self.assertIn("kernels of the step were measured", out)
        self.assertIn("foretold step time corrected to", out)
        (corrected,) = [line for line in self.log(log) if "corrected_step_ms" in line]
        self.assertEqual(corrected["step"], 4)
        self.assertGreater(corrected["foretold_step_ms"], 0)
        table = self.table().read_bytes()
        status, out, errors = self.train(*DEVICE, out=self.folder / "again", env=self.environment)
        self.assertEqual(status, 0, errors)
        self.assertNotIn("measured", out)
        self.assertNotIn("corrected", out)
        self.assertEqual(self.table().read_bytes(), table)

    def test_a_run_that_cannot_fit_is_refused_before_anything_is_measured(self):
        words = [*DEVICE, "--memory", "1kB"]
        for result in [
            self.train(*words, env=self.environment),
            self.train(*words, "--recompute", "none", "--chunk-loss", 0, env=self.environment),
            spool("plan", *SHAPE, *words, env=self.environment),
        ]:
            self.refused(result, 1, "needs")
            self.assertNotIn("measured", result[1])
        self.assertEqual(list(self.cache.glob("**/*.json")), [])

    def test_a_run_says_that_another_plan_would_be_faster(self):
        shape = "--layers 6 --heads 2 --channels 64 --context 64 --seq 64 --batch 16 --vocab 300".split()
        report = self.folder / "report.json"
        words = [*shape, *DEVICE, "--chunk-loss", 0]
        spool("plan", *words, "--memory", "1kB", "--json", report, env=self.environment)
        least = json.loads(report.read_text())["minimum_budget_bytes"]
        spool("plan", *words, "--json", report, env=self.environment)
        budget = (least + json.loads(report.read_text())["keep_all_peak_bytes"]) // 2
        table = json.loads(self.table().read_text())
        for kernel in table["kernels"]:  # products cost nothing, so the plan runs them again
            kernel["seconds"] *= 1e-3 if kernel["name"] == "matmul" else 1
        self.table().write_text(json.dumps(table))
        run = ["--data", self.text, "--steps", 5, "--memory", budget]
        status, out, errors = spool(
            "train", *words, *run, "--out", self.folder / "searched", env=self.environment
        )
        self.assertEqual(status, 0, errors)
        self.assertRegex(out, r"another plan would be \d+\.\d % faster, .* this run keeps its own")
        self.assertIn("step 5/5", out)

    def test_of_ranks_measures_all_of_them_and_their_link(self):
        there = self.folder / "there.json"
        words = ["--threads", 1, "--ranks", 2]
        status, out, errors = spool(
            "calibrate", *SHAPE, *words, "--save", there, env=self.environment
        )
        self.assertEqual(status, 0, errors)
        self.assertIn("the link between 2 ranks by threads: ", out)
        table = json.loads(self.table().read_text())
        self.assertEqual(table["device"]["ranks"], "2")
        (link,) = table["links"]
        self.assertEqual((link["backend"], link["ranks"], link["machines"]), ("threads", 2, 1))
        stored = self.table().read_bytes()
        status, out, errors = self.train(*words, "--accumulate", 2, env=self.environment)
        self.assertEqual(status, 0, errors)
        self.assertNotIn("were measured", out)
        self.assertNotIn("the link between", out)
        self.assertEqual(self.table().read_bytes(), stored)
        exchanged = []
        for place in [words, ["--machine", there]]:
            report = self.folder / "report.json"
            step = ["--accumulate", 2, "--json", report]
            status, out, errors = spool("plan", *SHAPE, *step, *place, env=self.environment)
            self.assertEqual(status, 0, errors)
            plan = json.loads(report.read_text())
            exchanged.append((plan["ranks"], plan["exchange"]["seconds"]))
        self.assertEqual(exchanged[0], exchanged[1])
        self.assertEqual(exchanged[0][0], 2)
        self.calibrate()  # without ranks
        self.assertEqual(len(list((self.cache / "spool").glob("kernels-cpu-*.json"))), 2)

    def link_of_plan(self, *words):
        """By what the ranks of a plan exchange, as their link was measured, and the link."""
        report = self.folder / "report.json"
        status, out, errors = spool(
            "plan", *SHAPE, "--accumulate", 2, "--json", report, *words, env=self.environment
        )
        self.assertEqual((status, errors), (0, ""))
        link = json.loads(report.read_text())["exchange"]["link"]
        words = f"measured, by {link['measured']}" if link["measured"] else "not measured"
        self.assertRegex(out, rf"by a link of +[0-9.e+]+ GB/s +each way, and .*s; {words}\n")
        return link["measured"], link["bytes_per_second"]

    def links(self):
        return {one["backend"]: one["bytes_per_second"] for one in json.loads(self.table().read_text())["links"]}

    def test_of_ranks_that_are_processes_measures_their_link(self):
        there = self.folder / "there.json"
        ranks = ["--threads", 1, "--ranks", 2]
        words = [*ranks, "--ranks-as", "processes"]
        out = self.calibrate(*words, "--save", there)
        self.assertEqual(out.count("the link between 2 ranks by sockets: "), 1)
        self.assertEqual(out.count("the table is "), 1)
        stored = self.table().read_bytes()
        self.assertEqual(list(self.links()), ["sockets"])
        here = self.link_of_plan(*words)
        self.assertEqual(here, ("sockets", self.links()["sockets"]))
        self.assertEqual(self.link_of_plan("--machine", there, *words[2:]), here)
        self.assertEqual(self.link_of_plan("--machine", there), here)  # by threads none was measured
        self.assertEqual(self.link_of_plan("--machine", "cpu:2,avx2,3GHz,20GB/s", *ranks[2:])[0], "")
        status, out, errors = self.train(*words, "--accumulate", 2, "--dry-run", env=self.environment)
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("; measured, by sockets", out)
        self.assertEqual(self.table().read_bytes(), stored)
        status, out, errors = self.train(*words, "--accumulate", 2, env=self.environment)
        self.assertEqual((status, errors), (0, ""))
        self.assertNotIn("the link between", out)
        self.assertEqual(self.link_of_plan(*ranks)[0], "threads")
        self.assertEqual(sorted(self.links()), ["sockets", "threads"])

    def test_of_ranks_that_are_processes_says_once_what_is_wrong(self):
        words = ["--threads", 1, "--ranks", 2, "--ranks-as", "processes"]
        for command in ["calibrate", "plan"]:
            name = {"calibrate": "--save", "plan": "--json"}[command]
            result = spool(command, *SHAPE, *words, name, self.text, env=self.environment)
            self.refused(result, 1, str(self.text))
            self.refused(spool(command, *SHAPE, *words, "--accumulate", 3), 1, "3", "ranks")

    def test_a_damaged_table_is_set_aside(self):
        self.calibrate()
        file = self.table()
        file.write_text("{")
        self.assertIn("measured again", self.calibrate())
        self.assertEqual(file.with_name(file.name + ".unread").read_text(), "{")

    def test_a_cache_that_cannot_be_written_is_no_error(self):
        self.cache.write_text("a file")
        self.assertIn("not kept", self.calibrate())


if __name__ == "__main__":
    main()
