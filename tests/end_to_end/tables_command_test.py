"""The table of a plan: what `spool plan` and `spool train --dry-run` print.

tables_command_test.py PROGRAM [CASE...]
"""

import json
import re
import subprocess

from commands import PROGRAM, Folder, main, spool
from comparison import masks

MODELS = [words.split() for words in [
    "--layers 2 --heads 2 --channels 32 --context 64 --seq 64 --batch 8 --vocab 600",
    "--layers 2 --heads 2 --channels 64 --seq 64 --batch 4 --accumulate 2 --dtype bf16 --clip 0",
    "--model llama-tiny --layers 2 --seq 64 --batch 8",
    "--model qwen3-0.6b --layers 1 --channels 256 --seq 64 --batch 2 --vocab 512 --dropout 0.1",
]]
POLICIES = [words.split() for words in [
    "--recompute norms,gelu",
    "--recompute block --chunk-mlp 128",
    "--recompute none --chunk-loss 0",
    "--offload all --offload-to disk:.",
    "--recompute attention --offload residual --optimizer-state streamed",
    "--optimizer-state cpu",
]]
SENTENCE = re.compile(r"spool: .+ (needs|takes) .+ (is|are) available in the budget")
ROWS = ["foretold peak", "  in bytes", "  with --threads", "foretold step time", "  planned in"]


class Table(Folder):
    def setUp(self):
        super().setUp()
        self.report = self.folder / "report.json"
        self.count = 0

    def printed(self, command, *words):
        """Exit code, the output of both streams in order, and the errors."""
        whole = [PROGRAM, command, "--threads", 2, *words]
        run = subprocess.run([*map(str, whole)], cwd=self.folder, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, timeout=300)
        lines = self.said(masks.text(run.stdout.decode(), self.folder))
        return run.returncode, [line for line in lines if line.strip()]

    def same(self, code, *words):
        """What planning prints; a dry run prints the same after its line about the data."""
        self.count += 1
        planned = self.printed("plan", *words)
        status, lines = self.printed("train", "--data", self.text, "--out", self.out, "--dry-run", *words)
        of_data = [line for line in lines if re.match(r"\d+ tokens to train on, \d+ to validate with", line)]
        self.assertEqual(of_data, lines[:1])
        self.assertEqual((status, lines[1:]), planned)
        self.assertEqual(status, code)
        self.assertFalse(self.out.exists())
        for row in ROWS:
            self.assertTrue(any(line.startswith(f"  {row} ") for line in lines), row)
        return lines

    def fits(self, *words):
        with self.subTest(words=" ".join(map(str, words))):
            lines = self.same(0, *words)
            self.assertEqual(len([line for line in lines if line.startswith("  budget ")]), 1)
            self.assertEqual("--memory" not in words, "  budget                       none" in lines)

    def is_refused(self, *words):
        """The table comes first, without a bound; then the sentence."""
        with self.subTest(words=" ".join(map(str, words))):
            lines = self.same(1, *words)
            self.assertRegex(lines[-1], SENTENCE)
            self.assertEqual([line for line in lines if "bound" in line or "from the fastest" in line], [])

    def planned(self, *words):
        """The report of a plan or of a refusal."""
        spool("plan", "--threads", 2, *words, "--json", self.report)
        return json.loads(self.report.read_text())

    def budgets(self, *words):
        """What keeping all takes, and the smallest budget."""
        whole = self.planned(*words)["keep_all_peak_bytes"]
        return whole, self.planned(*words, "--memory", "1kB")["minimum_budget_bytes"]


class Tables(Table):
    def test_of_planning_and_of_a_dry_run_are_one(self):
        for words in MODELS:
            whole, least = self.budgets(*words)
            self.fits(*words)
            for budget in [whole, (whole + least) // 2, least]:
                self.fits(*words, "--memory", budget)
            self.is_refused(*words, "--memory", least * 9 // 10)
        self.assertEqual(self.count, 20)

    def test_by_policies_are_one(self):
        for i, policy in enumerate(POLICIES):
            words = [*MODELS[i % len(MODELS)], *policy]
            self.fits(*words)
            self.is_refused(*words, "--memory", self.budgets(*words)[1] * 9 // 10)
        self.assertEqual(self.count, 12)

    def test_of_a_given_plan_are_one(self):
        plan = self.folder / "plan.json"
        for words in MODELS[:2]:
            whole, least = self.budgets(*words)
            peak = self.planned(*words, "--memory", (whole + least) // 2, "--save-plan", plan)["foretold_peak_bytes"]
            self.fits(*words, "--plan", plan)
            self.fits(*words, "--plan", plan, "--memory", peak)
            for less in [peak - 1, least // 2]:
                self.is_refused(*words, "--plan", plan, "--memory", less)
        self.assertEqual(self.count, 8)

    def test_of_a_given_plan_that_does_not_fit_are_of_that_plan(self):
        plan, words = self.folder / "plan.json", MODELS[0]
        whole, least = self.budgets(*words)
        peak = self.planned(*words, "--memory", (whole + least) // 2, "--save-plan", plan)["foretold_peak_bytes"]
        for command in [["plan"], ["train", "--data", self.text, "--out", self.out, "--dry-run"]]:
            for less in [peak - 1, peak // 2]:
                status, lines = self.printed(*command, *words, "--plan", plan, "--memory", less)
                self.assertEqual(status, 1)
                self.assertIn(f"    in bytes {peak:>22}", lines)
                for part in [f"({peak} bytes)", f"({less} bytes)", "--memory"]:
                    self.assertIn(part, lines[-1])
                self.assertNotIn("differs", lines[-1])
            self.assertIn("another plan may fit (--memory, --plan)", lines[-1])

    def test_end_with_a_warning_of_a_budget_above_the_memory(self):
        for command in [["plan"], ["train", "--data", self.text, "--out", self.out, "--dry-run"]]:
            status, lines = self.printed(*command, *MODELS[0], "--memory", "1000TiB")
            self.assertEqual(status, 0)
            self.assertRegex(lines[-1], "spool: the budget of 1000 TiB is more than the .+, and becomes that")

    def test_for_a_machine_have_no_bound_where_nothing_fits(self):
        words = ["--model", "gpt2-124m", "--layers", 1, "--machine", "h200"]
        for memory in ["400MB", "1kB"]:
            status, printed, errors = spool("plan", *words, "--memory", memory)
            self.assertEqual(status, 1)
            self.assertRegex(errors, SENTENCE)
            self.assertIn("  foretold peak ", printed)
            self.assertNotIn("bound", printed)
        self.assertIn("  lower bound ", spool("plan", *words, "--memory", "3GB")[1])
        self.assertIn("\n  budget                       none\n", spool("plan", *words)[1])


if __name__ == "__main__":
    main()
