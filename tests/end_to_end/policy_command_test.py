"""Policies for saved values and optimizer state on the command line.

policy_command_test.py PROGRAM [CASE...]
"""

import json
import re

from commands import Folder, main, spool

# The values between blocks have 1 MiB each, so they are offloaded.
WIDE = "--channels 64 --context 128 --seq 128 --batch 32".split()


class Policies(Folder):
    def run_with(self, name, *words):
        """Trains; returns what it printed, the losses and the peak."""
        log = self.folder / f"{name}.jsonl"
        status, printed, errors = self.train(
            *WIDE, *words, "--log", log, out=self.folder / name, steps=2
        )
        self.assertEqual(status, 0, errors)
        peak = self.foretold(printed)
        self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
        return printed, self.losses(log), peak

    def test_each_has_the_losses_of_keeping_all_in_less_memory(self):
        _, kept, kept_peak = self.run_with("kept")
        for i, words in enumerate(
            [
                ["--recompute", "norms,gelu"],
                ["--recompute", "block"],
                ["--recompute", "attention", "--offload", "residual"],
                ["--offload", "all"],
                ["--offload", "all", "--offload-to", f"disk:{self.folder}"],
                ["--optimizer-state", "streamed"],
                ["--optimizer-state", "cpu"],
                ["--recompute", "norms", "--offload", "all", "--optimizer-state", "streamed"],
            ]
        ):
            printed, losses, peak = self.run_with(f"run{i}", *words)
            self.assertEqual(losses, kept, words)
            self.assertLess(peak, kept_peak, words)
            for what in words[::2]:
                if what != "--offload-to":
                    self.assertIn(what[2:].replace("-", " "), printed)
            if "--offload" in words or "--optimizer-state" in words:
                host = re.search(r"host memory (\d+) bytes, foretold (\d+) bytes", printed)
                self.assertEqual(host[1], host[2])
            self.assertEqual("  disk " in printed, "--offload-to" in words)
        self.assertEqual([f.name for f in self.folder.iterdir() if "spill" in f.name.lower()], [])

    def test_mlps_in_chunks_have_the_losses_of_one_in_less_memory(self):
        recompute = ["--recompute", "block", "--chunk-loss", 512]
        _, whole, whole_peak = self.run_with("whole", *recompute)
        plan = self.folder / "plan.json"
        words = [*recompute, "--chunk-mlp", 512]
        printed, losses, peak = self.run_with("chunks", *words, "--save-plan", plan)
        self.assertIn("MLPs in chunks of 512 rows", printed)
        self.assertEqual(list(losses), list(whole))
        for step, (loss, _) in whole.items():
            self.assertAlmostEqual(losses[step][0], loss, delta=1e-6 * loss)
        self.assertLess(peak, whole_peak)
        stored = json.loads(plan.read_text())
        self.assertEqual(stored["spool_plan"], 3)
        run = stored["made_for"]
        self.assertEqual((run["loss_rows"], run["mlp_rows"]), (512, 512))
        self.assertEqual(run["peak_bytes"], peak)
        self.assertTrue(run["machine"])
        chunks = [r["chunks"] for r in stored["regions"] if isinstance(r, dict)]
        self.assertEqual(set(chunks), {8})
        for i, same in enumerate([[], ["--chunk-loss", 512, "--chunk-mlp", 512]]):
            printed, again, same_peak = self.run_with(f"loaded{i}", *same, "--plan", plan)
            self.assertEqual((again, same_peak), (losses, peak))
            self.assertIn("MLPs in chunks of 512 rows", printed)
        for rows in [0, 256]:
            for what in ["--chunk-loss", "--chunk-mlp"]:
                other = self.train(*WIDE, what, rows, "--plan", plan)
                self.refused(other, 1, "made for", "512", f"(--plan, {what})")
        self.check_resumed_chunks(plan)

    def check_resumed_chunks(self, plan):
        """A run that resumes keeps its own chunks, and refuses a plan with others."""
        out, start = self.folder / "resumed", ["--chunk-loss", 256, "--checkpoint-every", 1]
        status, _, errors = self.train(*WIDE, *start, out=out)
        self.assertEqual(status, 0, errors)
        resumed = spool("train", "--resume", "--out", out, "--plan", plan)
        self.refused(resumed, 1, "the run that resumes has 256", "(--plan, --chunk-loss)")

    def test_small_values_are_not_offloaded(self):
        status, printed, errors = self.train("--offload", "all")
        self.assertEqual(status, 0, errors)
        self.assertIn("nothing is offloaded: no value is at least 1 MiB", printed)

    def test_a_saved_plan_gives_the_same_run(self):
        plan = self.folder / "plan.json"
        words = ["--recompute", "norms,gelu", "--offload", "all"]
        _, losses, peak = self.run_with("saved", *words, "--save-plan", plan)
        stored = json.loads(plan.read_text())
        self.assertEqual(stored["spool_plan"], 3)
        printed, again, same_peak = self.run_with("loaded", "--plan", plan)
        self.assertEqual((again, same_peak), (losses, peak))
        self.assertIn("plan.json", printed)
        other = self.train(*WIDE, "--layers", 3, "--plan", plan)
        self.refused(other, 1, "plan: node", "made for a tape that differs")
        whole = plan.read_text()
        for broken in ["", whole[: len(whole) // 2], whole.replace('"spool_plan":', '"a":'), "[]"]:
            plan.write_text(broken)
            self.refused(self.train(*WIDE, "--plan", plan), 1, "plan.json")
        self.refused(self.train("--plan", self.folder / "none"), 1, "none")
        self.refused(self.train("--plan", plan, "--recompute", "block"), 1, "--recompute", "--plan")
        self.assertFalse(self.out.exists())

    def test_refuses_words_it_does_not_know(self):
        for words, parts in [
            (["--recompute", "norms,relu"], ["relu", "attention"]),
            (["--offload", "all", "--offload-to", "tape"], ["tape", "disk:DIRECTORY"]),
            (["--offload", "all", "--offload-to", "disk:"], ["disk:"]),
            (
                ["--recompute", "norms", "--offload-to", f"disk:{self.folder}"],
                ["--offload residual"],
            ),
        ]:
            self.refused(self.train(*words), 1, *parts)
        for words in [["--offload", "some"], ["--optimizer-state", "disk"]]:
            self.refused(self.train(*words), 2, words[1])
        self.refused(self.train("--recompute", ""), 2, "--recompute")
        self.assertFalse(self.out.exists())

    def test_refuses_directories_it_cannot_spill_to(self):
        for place, part in [(self.folder / "none", "none"), (self.text, "text.txt")]:
            words = ["--offload", "all", "--offload-to", f"disk:{place}"]
            self.refused(self.train(*WIDE, *words), 1, part)


if __name__ == "__main__":
    main()
