"""Plans for a budget on the command line: `spool plan`, and `spool train --memory`.

plan_command_test.py PROGRAM [CASE...]
"""

import json
import os
import re

from commands import Folder, as_of_an_earlier_version, main, spool

# Activations are most of the memory, and the loss can be cut into chunks of 128 rows.
SHAPE = (
    "--layers 4 --heads 2 --channels 32 --context 64 --seq 64 --batch 16 --vocab 600 --threads 2"
).split()
MACHINES = ["h200", "h100", "a100-80g", "a100-80g-pcie", "a100-40g", "rtx4090", "this"]
FIELDS = (
    "format format_version model batch seq accumulate dtype parameters machine splits budget_bytes "
    "foretold_peak_bytes foretold_step_ms peak_is_in keep_all_peak_bytes keep_all_step_ms "
    "lower_bound_ms gap plan_ms rehearsals fingerprint loss_chunk region_chunks budget_is "
    "chunks_hold_for_threads slowed_by_chunks state_bytes_on_device host_bytes disk_bytes "
    "peak_bytes_by_purpose host_bytes_by_purpose homes layers attention memory grid lanes "
    "lane_totals explanation"
).split()


class Planned(Folder):
    def plan(self, *words):
        """Plans; returns the report of a plan or of a refusal."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        status, printed, errors = spool("plan", *SHAPE, *words, "--json", report)
        found = json.loads(report.read_text())
        self.assertEqual(status, 1 if "error" in found else 0, errors)
        self.printed, self.errors = printed, errors
        return found

    def table(self, *words):
        """Plans a model with these words only; returns the table, which is short."""
        status, printed, errors = spool("plan", *words)
        self.assertEqual(status, 0, errors)
        self.assertLessEqual(len(printed.splitlines()), 28)
        return printed

    def run_with(self, name, *words, steps=3):
        """Trains; returns what it printed, the configuration, the losses and the peak."""
        log = self.folder / f"{name}.jsonl"
        fixed = ["--data", self.text, "--out", self.folder / name, "--steps", steps, "--log", log]
        status, printed, errors = spool("train", *SHAPE, *fixed, *words)
        self.assertEqual(status, 0, errors)
        peak = self.foretold(printed)
        self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
        return printed, self.log(log)[0]["configuration"], self.losses(log), peak

    def train_refused(self, *words):
        fixed = ["--data", self.text, "--out", self.folder / "refused", "--steps", 3]
        return spool("train", *SHAPE, *fixed, *words)

    def smallest(self, *words):
        return self.plan("--memory", "1kB", *words)["minimum_budget_bytes"]

    def small(self, *words):
        """A little more than the smallest budget, which depends on this machine's measurements."""
        return self.smallest(*words) * 51 // 50


class Training(Planned):
    def test_stays_in_every_budget_with_the_losses_of_keeping_all(self):
        kept = self.run_with("kept")
        self.assertIn("layers 0–3: keep all", kept[0])
        self.assertEqual(kept[1]["chunk-loss"], 0)
        by_chunk = {0: kept[2]}
        least = self.small()
        self.assertLess(least, kept[3])
        chosen = set()
        for i, part in enumerate([0, 0.1, 0.3, 0.6, 1]):
            budget = least + int(part * (kept[3] - least))
            printed, configuration, losses, peak = self.run_with(f"run{i}", "--memory", budget)
            self.assertLessEqual(peak, budget)
            rows = configuration["chunk-loss"]
            self.assertEqual("the loss in chunks" in printed, rows > 0)
            # Other chunks change the order of sums (planned_run_test.cpp keeps all in the same).
            if not configuration["nodes-in-chunks"]:
                if rows not in by_chunk:
                    by_chunk[rows] = self.run_with(f"kept{i}", "--chunk-loss", rows)[2]
                self.assertEqual(losses, by_chunk[rows])
            for step, (loss, _) in kept[2].items():
                self.assertAlmostEqual(losses[step][0], loss, delta=1e-5 * loss)
            chosen.add(re.search(r"\n((?:  (?:the|layer|outside).*\n)+)", printed)[1])
        self.assertGreater(len(chosen), 2)

    def test_resumes_under_another_budget_with_the_same_losses(self):
        least = self.small()
        words = ["--checkpoint-every", 2, "--keep-checkpoints", 9]
        whole = self.run_with("whole", "--memory", least, *words, steps=4)
        rows = whole[1]["chunk-loss"]
        self.assertGreater(rows, 0)
        weights = self.weights(self.folder / "whole")
        latest = self.folder / "whole" / "latest"
        larger = self.run_with("kept", "--chunk-loss", rows)[3]
        for budget in [["--memory", larger], ["--memory", (least + larger) // 2], []]:
            latest.unlink()
            latest.symlink_to("step-000002")
            log = self.folder / "whole.jsonl"
            resume = ["--out", self.folder / "whole", "--resume", "--log", log, "--threads", 2]
            status, printed, errors = spool("train", *resume, *budget)
            self.assertEqual(status, 0, errors)
            self.assertIn(f"the loss in chunks of {rows} rows", printed)
            self.assertEqual(self.losses(log), whole[2])
            self.assertEqual(self.weights(self.folder / "whole"), weights)

    def test_a_run_keeps_its_nodes_in_chunks(self):
        printed, configuration, *_ = self.run_with("chunks", "--memory", self.small())
        in_chunks = configuration["nodes-in-chunks"]
        self.assertGreater(len(in_chunks), 0)
        self.assertRegex(printed, r"layers? .* in \d+ chunks")
        out = ["--out", self.folder / "chunks", "--threads", 2]
        for words in [["--memory", "64MiB"], ["--recompute", "none"], []]:
            log = self.folder / "again.jsonl"
            status, _, errors = spool("train", *out, "--resume", "--log", log, *words)
            self.assertEqual(status, 0, errors)
            self.assertEqual(self.log(log)[0]["configuration"]["nodes-in-chunks"], in_chunks)
        plan = self.folder / "whole.json"
        self.plan("--save-plan", plan, "--chunk-loss", configuration["chunk-loss"])
        other = spool("train", *out, "--resume", "--plan", plan)
        self.refused(other, 1, "chosen for a budget", "--plan")
        stored = as_of_an_earlier_version(self.folder / "chunks" / "latest")
        for damage in [[[1, 10]], [[1, 10, 99]], [["a", 1, 2]], 7]:
            run = json.loads(stored.read_text())
            run["configuration"]["nodes-in-chunks"] = damage
            stored.write_text(json.dumps(run))
            self.assertEqual(spool("train", *out, "--resume")[0], 1)

    def test_a_run_keeps_its_chunks_of_the_loss(self):
        self.run_with("kept")
        resume = ["--out", self.folder / "kept", "--resume", "--threads", 2]
        other = spool("train", *resume, "--chunk-loss", 128)
        self.refused(other, 1, "cannot be resumed with chunk-loss 128", "--chunk-loss")
        tight = spool("train", *resume, "--memory", self.small())
        self.refused(tight, 1, "keeps its batch, and its chunks of the loss (all rows)", "--memory")

    def test_flags_fix_what_they_name(self):
        least = self.small()
        printed, configuration, *_ = self.run_with(
            "chunks", "--chunk-loss", 300, "--memory", self.small("--chunk-loss", 300)
        )
        self.assertEqual(configuration["chunk-loss"], 300)
        self.assertRegex(printed, r"\n  layers .*(recompute|in \d+ chunks)")
        tight = self.small("--recompute", "norms,gelu")
        self.assertGreater(tight, least)
        printed, configuration, *_ = self.run_with(
            "norms", "--recompute", "norms,gelu", "--memory", tight
        )
        self.assertIn("\n  recompute norms,gelu\n", printed)
        self.assertGreater(configuration["chunk-loss"], 0)
        state = self.small("--optimizer-state", "cpu")
        self.assertLess(state, least)
        printed = self.run_with("state", "--optimizer-state", "cpu", "--memory", state)[0]
        self.assertIn("optimizer state cpu", printed)
        for words in [["--recompute", "none"], ["--offload", "none"]]:
            tight = self.train_refused(*words, "--memory", least)
            self.refused(tight, 1, "leave those settings out", "--recompute")
            self.refused(spool("plan", *SHAPE, *words, "--memory", least), 1, "leave those")
        printed = self.run_with(
            "mlp", "--chunk-mlp", 256, "--memory", self.small("--chunk-mlp", 256)
        )[0]
        self.assertIn("MLPs in chunks of 256 rows", printed)

    def test_a_saved_plan_brings_its_chunks(self):
        plan, again = self.folder / "plan.json", self.folder / "again.json"
        budget = self.small()
        report = self.plan("--memory", budget, "--save-plan", plan)
        # Before the plan's kernels are measured: with their times another plan may be chosen.
        searched = self.run_with("searched", "--memory", budget, "--save-plan", again)
        self.assertEqual(plan.read_text(), again.read_text())
        _, configuration, losses, peak = self.run_with("plan", "--plan", plan)
        # Without a budget an evaluation takes no more than the step.
        self.assertLessEqual(peak, report["foretold_peak_bytes"])
        self.assertEqual(configuration["chunk-loss"], report["loss_chunk"])
        in_chunks = configuration["nodes-in-chunks"]
        self.assertEqual([chunks for _, _, chunks in in_chunks], report["region_chunks"])
        self.assertGreater(len(in_chunks), 0)
        self.assertEqual(searched[2], losses)
        self.refused(self.train_refused("--plan", plan, "--chunk-mlp", 64), 1, "--chunk-mlp")
        self.run_with("rows", "--plan", plan, "--chunk-loss", report["loss_chunk"])
        for rows in [0, 600]:
            other = self.train_refused("--plan", plan, "--chunk-loss", rows)
            self.refused(other, 1, "made for", "--plan", "--chunk-loss")
        other = self.train_refused("--plan", plan, "--layers", 3)
        self.refused(other, 1, "made for a tape that differs")
        self.refused(spool("plan", *SHAPE, "--plan", plan, "--seq", 32), 1, "made for a tape")
        self.refused(self.train_refused("--plan", plan, "--memory", "1kB"), 1, "another plan")


class Reports(Planned):
    def test_has_every_number(self):
        report = self.plan("--memory", "8MiB", "--machine", "h200")
        self.assertEqual(sorted(report), sorted(FIELDS))
        self.assertEqual(report["format_version"], 2)
        self.assertLessEqual(report["foretold_peak_bytes"], report["budget_bytes"])
        self.assertLessEqual(report["keep_all_step_ms"], report["foretold_step_ms"])
        self.assertLessEqual(report["lower_bound_ms"], report["foretold_step_ms"])
        gap = report["foretold_step_ms"] / report["lower_bound_ms"] - 1
        self.assertAlmostEqual(report["gap"], gap)
        self.assertRegex(report["fingerprint"], r"^[0-9a-f]{16}$")
        self.assertEqual(report["region_chunks"], [])
        again = self.plan("--memory", "8MiB", "--machine", "h200")
        del report["plan_ms"], again["plan_ms"]
        self.assertEqual(again, report)
        described = {key: report[key] for key in "model batch seq accumulate dtype".split()}
        shape = {"model": "gpt2-tiny", "batch": 16, "seq": 64, "accumulate": 1, "dtype": "f32"}
        self.assertEqual(described, shape)
        status, printed, errors = spool("plan", *SHAPE, "--machine", "h200", "--json", "-")
        self.assertEqual(status, 0, errors)
        self.assertEqual(json.loads(printed)["budget_bytes"], 141_000_000_000)

    def test_the_report_of_a_large_model_adds_up_and_is_small(self):
        words = "--model gpt2-1558m --batch 16 --dtype bf16 --machine h200 --memory 40GiB".split()
        file = self.folder / "report.json"
        printed = self.table(*words, "--accumulate", 4, "--json", file)
        self.assertRegex(printed, r"\n  layers .*recompute .*ln_1")
        self.assertRegex(printed, r"\n    lower bound ")
        text = file.read_text()
        self.assertLess(len(text), 700_000)
        report = json.loads(text)
        memory = report["memory"]
        self.assertEqual([sum(at) for at in zip(*memory["bytes"])], memory["total_bytes"])
        most = memory["total_bytes"][memory["peak_index"]]
        self.assertEqual(most + memory["holes_bytes"], report["foretold_peak_bytes"])
        self.assertEqual(memory["micro_batches_shown"], 3)
        self.assertIn("copies in flight", memory["categories"])
        self.assertIn("recompute", {cell for row in report["grid"]["cells"] for cell in row})
        self.assertEqual({len(row) for row in report["grid"]["cells"]}, {48})
        self.assertEqual({copy["lane"] for copy in report["lanes"]}, {"copy out", "copy in"})
        told = " ".join(report["explanation"])
        self.assertRegex(told, r"Keeping everything would take .+ GiB and .+ s a step")

    def test_says_what_computes_attention(self):
        on = ["--machine", "h200"]
        cudnn, own = {"method": "cuDNN", "why": ""}, {"method": "plain", "why": "values are not bf16"}
        self.assertEqual(
            self.plan(*on)["attention"],
            {"forward": own, "backward": own, "backward_parts": 1, "backward_without_cudnn": 0},
        )
        words = ["--model", "gpt2-124m", "--layers", 1, "--dtype", "bf16", "--batch", 16, *on]
        report = lambda *more: json.loads(spool("plan", *words, *more, "--json", "-")[1])
        fixed = report()
        self.assertEqual(
            fixed["attention"],
            {"forward": cudnn, "backward": cudnn, "backward_parts": 1, "backward_without_cudnn": 0},
        )
        self.assertRegex(self.table(*words), r"attention +cuDNN\n")
        loose = report("--nondeterministic")
        self.assertEqual(loose["attention"]["backward_parts"], 1)
        self.assertNotEqual(loose["fingerprint"], fixed["fingerprint"])
        table = self.table(*words, "--nondeterministic")
        self.assertRegex(table, r"attention +cuDNN   nondeterministic\n")

    def test_says_what_is_the_smallest_budget(self):
        for words in [["--machine", "h200"], ["--machine", "rtx4090", "--accumulate", 5]]:
            refusal = self.plan("--memory", "1kB", *words)
            self.assertEqual(refusal["budget_bytes"], 1000)
            self.assertIn(str(refusal["minimum_budget_bytes"]), refusal["error"])
            self.assertRegex(refusal["binding_op"], r"\(node \d+\)|optimizer|sample")
            self.assertIn(refusal["binding_op"], self.errors)
            self.assertRegex(self.printed, rf"\n    in bytes +{refusal['minimum_budget_bytes']}\n")
            least = refusal["minimum_budget_bytes"]
            report = self.plan("--memory", least, *words)
            self.assertEqual(report["foretold_peak_bytes"], least)
            self.assertEqual(self.plan("--memory", least - 512, *words)["minimum_budget_bytes"], least)
            self.refused((1, "", self.errors), 1, "the smallest plan of this run needs", "--memory")

    def test_plans_for_every_machine_in_a_short_table(self):
        for machine in MACHINES:
            report = self.plan("--machine", machine)
            self.assertLessEqual(len(self.printed.splitlines()), 25)
            self.assertIn("foretold peak", self.printed)
            self.assertIn("layers 0–3: keep all", self.printed)
            self.assertEqual(report["foretold_peak_bytes"], report["keep_all_peak_bytes"])

    def test_a_budget_above_the_memory_becomes_the_memory(self):
        report = self.plan("--memory", "1000TB", "--machine", "h200")
        self.assertEqual(report["budget_bytes"], 141_000_000_000)
        self.assertIn("becomes that", self.errors)
        report = self.plan("--memory", "1000TB")
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertLess(report["budget_bytes"], physical)
        self.assertIn("becomes that", self.errors)
        words = ["--data", self.text, "--dry-run", "--memory", "1000TB", "--out", self.out]
        _, printed, errors = spool("train", *SHAPE, *words)
        self.assertIn("becomes that", errors)
        self.assertRegex(printed, r"\n  the program itself +[\d.]+ MiB ")

    def test_what_leaves_a_gpu_stays_within_the_hosts_memory(self):
        words = "--model gpt2-1558m --batch 16 --machine rtx4090 --memory 22GiB".split()
        printed = self.table(*words)
        self.assertRegex(printed, r"\n  optimizer state streamed, .* of it on the device\n")
        self.assertRegex(printed, r"\n  host memory ")
        refusal = spool("plan", *words, "--host-memory", 0)
        self.refused(refusal, 1, "the smallest plan of this run needs")
        small = ["--dtype", "bf16", "--rounding", "stochastic"]
        self.assertNotIn("host", self.table(*words, *small, "--host-memory", 0))
        self.assertGreater(self.smallest("--machine", "h200", "--host-memory", 0),
                           self.smallest("--machine", "h200"))

    def test_a_frontier_goes_from_the_smallest_budget_to_keeping_all(self):
        least = self.smallest("--machine", "h200")
        report = self.plan("--machine", "h200", "--frontier")
        points = report["frontier"]
        self.assertGreaterEqual(len(points), 20)
        self.assertEqual(points[0]["budget_bytes"], least)
        self.assertEqual(points[-1]["budget_bytes"], report["keep_all_peak_bytes"])
        for point in points:
            self.assertLessEqual(point["foretold_peak_bytes"], point["budget_bytes"])
        times = [point["foretold_step_ms"] for point in points]
        self.assertEqual(times, sorted(times, reverse=True))
        policies = report["policies"]
        self.assertEqual(policies[0]["name"], "keep all")
        self.assertEqual(policies[0]["peak_bytes"], report["keep_all_peak_bytes"])
        self.assertIn("recompute norms,gelu", [policy["name"] for policy in policies])
        self.assertGreaterEqual(self.printed.count(" MiB"), 40)


class Refusals(Planned):
    def test_refuses_words_it_does_not_know(self):
        for words, part in [
            (["--memory", "2 apples"], "2GiB"),
            (["--memory", "0"], "'0'"),
            (["--memory", "-1GiB"], "-1GiB"),
            (["--host-memory", "much"], "512MiB"),
            (["--machine", "h2000"], "rtx4090"),
            (["--val-data", "text"], "--val-data"),
        ]:
            self.refused(spool("plan", *SHAPE, *words), 2, words[0], part)
        both = spool("plan", *SHAPE, "--machine", "h200", "--device", "cpu")
        self.refused(both, 1, "--device", "--machine h200")
        self.refused(spool("plan", *SHAPE, "--heads", 3), 1, "--heads")
        self.refused(spool("plan", "--model", "gpt5"), 1, "gpt2-124m")
        self.refused(spool("plan", *SHAPE, "--chunk-loss", -1), 1, "--chunk-loss")

    def test_refuses_a_budget_below_the_parameters(self):
        self.refused(self.train_refused("--memory", "100kB"), 1, "the smallest plan", "its peak is in")
        self.assertFalse((self.folder / "refused").exists())

    def test_says_what_would_fit(self):
        budget = self.small("--batch", 8)
        tight = self.train_refused("--memory", budget)
        self.refused(tight, 1, " would fit", "(--memory, --batch, --tokens-per-step)")
        batch = int(re.search(r"a batch of (\d+) would fit", tight[2])[1])
        self.assertGreaterEqual(batch, 4)
        self.assertLess(batch, 16)
        self.assertNotIn("error", self.plan("--memory", budget, "--batch", batch))

    def test_says_how_many_threads_fit(self):
        wide = ["--channels", 192, "--vocab", 2000]  # products of several tiles
        budget = self.small(*wide)  # for two threads
        self.assertLess(budget, self.smallest(*wide, "--threads", 9))
        tight = self.train_refused(*wide, "--threads", 9, "--memory", budget)
        self.refused(tight, 1, "it would fit", "(--memory, --threads")
        threads = int(re.search(r"with (\d) threads it would fit", tight[2])[1])
        self.assertGreaterEqual(threads, 2)
        self.plan(*wide, "--threads", threads, "--memory", budget)

    def test_finds_before_planning_what_it_cannot_write(self):
        closed = self.folder / "closed"
        closed.mkdir(mode=0o500)
        places = [
            ("/dev/full", "not a regular file"),
            (self.folder, "is a directory"),
            (self.folder / "none" / "file.json", "none/file.json: cannot be written"),
        ]
        if not os.access(closed, os.W_OK):  # the root user may write there
            places.append((closed / "file.json", "closed/file.json: cannot be written"))
        never = ["--memory", "1kB"]  # which planning would refuse
        for place, part in places:
            for flag in ["--json", "--save-plan"]:
                self.refused(spool("plan", *SHAPE, *never, flag, place), 1, part, flag)
            for flag in ["--save-plan", "--trace"]:
                self.refused(self.train_refused(*never, flag, place), 1, part, flag)
        for place in [self.folder, self.folder / "none" / "file"]:
            self.refused(self.train_refused(*never, "--log", place), 1, str(place), "--log")
        below = ["--data", self.text, "--out", self.text / "run", *never]
        self.refused(spool("train", *SHAPE, *below), 1, "text.txt")
        self.assertEqual({p.name for p in self.folder.iterdir()}, {"closed", "text.txt"})

    def test_overwrites_nothing_but_what_it_wrote(self):
        precious, mine = self.text.read_text(), self.folder / "mine.json"
        for flag in ["--json", "--save-plan"]:
            self.refused(spool("plan", *SHAPE, flag, self.text), 1, "text.txt", flag)
        self.assertEqual(self.text.read_text(), precious)
        self.refused(spool("plan", *SHAPE, "--json", self.folder / "none" / "a"), 1, "none/")
        for flag in ["--json", "--save-plan"]:
            for status, _, errors in [spool("plan", *SHAPE, flag, mine) for _ in range(2)]:
                self.assertEqual(status, 0, errors)
            mine.unlink()


if __name__ == "__main__":
    main()
