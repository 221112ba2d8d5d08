"""Policies for saved values and optimizer state on the command line.

policy_command_test.py PROGRAM [CASE...]
"""

import json
import re

from commands import SHAPE, Folder, main, spool

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

    def test_parameters_on_the_host_have_the_losses_of_all_on_the_device(self):
        _, clipped, _ = self.run_with("kept")
        _, unclipped, peak_of_all = self.run_with("unclipped", "--clip", 0)
        _, summed, _ = self.run_with("summed", "--accumulate", 3)
        backward = ["--update", "backward", "--clip", 0]
        for i, (words, losses, said) in enumerate(
            [
                (["--parameters", "host"], clipped, "parameters and gradients of 4 of 4 units on the host"),
                (["--parameters", "250kB"], clipped, r"parameters and gradients of [123] of 4 units on the host"),
                (["--parameters", "host", "--accumulate", 3], summed, "of 4 of 4 units"),
                (["--parameters", "host", "--recompute", "block"], clipped, "of 4 of 4 units"),
                (["--parameters", "host", "--offload", "all"], clipped, "of 4 of 4 units"),
                (["--parameters", "host", *backward], unclipped, "units on the host, updated in backward"),
                (backward, unclipped, "parameters updated in backward"),
            ]
        ):
            printed, found, peak = self.run_with(f"home{i}", *words)
            self.assertEqual(found, losses, words)
            self.assertRegex(printed, said)
            is_away = "--parameters" in words
            if is_away:  # else activations alone are the peak
                self.assertLess(peak, peak_of_all, words)
            self.assertEqual("a cpu's own processors copy them" in printed, is_away)
            self.assertEqual(bool(re.search(r"\n  parameters .* on the host\n", printed)), is_away)
            sends = is_away and words[-4:] != backward
            self.assertEqual(bool(re.search(r"\n  gradients .* on the host\n", printed)), sends)
            if is_away:
                host = re.search(r"host memory (\d+) bytes, foretold (\d+) bytes", printed)
                self.assertEqual(host[1], host[2])

    def test_a_run_goes_on_with_other_homes(self):
        every = ["--checkpoint-every", 1, "--keep-checkpoints", 9]
        words = [*WIDE, "--clip", 0, *every]
        status, _, errors = self.train(*words, "--log", self.folder / "w.jsonl", out=self.folder / "whole")
        self.assertEqual(status, 0, errors)
        homes = [["--parameters", "host"], ["--parameters", "host", "--update", "backward"], []]
        for i, first in enumerate(homes):
            out, log = self.folder / f"run{i}", self.folder / f"{i}.jsonl"
            status, _, errors = self.train(*words, *first, "--log", log, out=out)
            self.assertEqual(status, 0, errors)
            self.assertEqual(self.weights(out), self.weights(self.folder / "whole"))
            for then in homes:
                (out / "latest").unlink()
                (out / "latest").symlink_to("step-000001")
                resume = ["--resume", "--out", out, "--log", log, *every]
                status, _, errors = spool("train", *resume, *then)
                self.assertEqual(status, 0, errors)
                self.assertEqual(self.losses(log), self.losses(self.folder / "w.jsonl"))
                self.assertEqual(self.weights(out), self.weights(self.folder / "whole"))

    def test_a_plan_moves_between_machines_with_its_homes(self):
        _, kept, _ = self.run_with("kept", "--clip", 0)
        plan, again = self.folder / "sheet.json", self.folder / "again.json"
        homes = ["--parameters", "250kB", "--update", "backward"]
        shape = [*SHAPE, *WIDE, "--clip", 0]
        sheet = spool("plan", *shape, *homes, "--machine", "rtx4090", "--save-plan", plan)
        self.assertEqual(sheet[0], 0, sheet[2])
        units = json.loads(plan.read_text())["units"]
        away = [unit for unit in units if "away" in unit]
        words = f"of {len(away)} of {len(units)} units on the host, updated in backward"
        self.assertTrue(0 < len(away) < len(units))
        self.assertIn(words, sheet[1])
        printed, losses, _ = self.run_with("moved", "--clip", 0, "--plan", plan, "--save-plan", again)
        self.assertEqual(losses, kept)
        self.assertIn("sheet.json", printed)
        self.assertIn(words, printed)
        here, there = (json.loads(file.read_text()) for file in (again, plan))
        for key in ["units", "update", "units_leaving"]:
            self.assertEqual(here[key], there[key])
        back = spool("plan", *shape, "--machine", "h200", "--plan", again)
        self.assertEqual(back[0], 0, back[2])
        self.assertIn(words, back[1])
        other = self.train(*WIDE, "--plan", plan)
        self.refused(other, 1, "clip", "--update")

    def planned(self, *words):
        status, printed, errors = spool("plan", *words)
        self.assertEqual(status, 0, errors)
        return printed

    def test_says_what_lives_on_the_host(self):
        file = self.folder / "homes.json"
        words = "--model gpt2-124m --machine rtx4090 --batch 1 --seq 512 --accumulate 1".split()
        table = self.planned(*words, "--parameters", "host", "--json", file)
        report = json.loads(file.read_text())
        homes, host = report["homes"], report["host_bytes_by_purpose"]
        self.assertIn(f"\n  {homes['words']}\n", table)
        self.assertIn(f"\n  the link is the limit below {homes['link_limit_tokens']} tokens", table)
        self.assertGreater(homes["link_limit_tokens"], 512)
        self.assertEqual(sum(host.values()), report["host_bytes"])
        self.assertEqual(sorted(host), ["gradients", "optimizer", "parameters"])
        for purpose in host:
            self.assertRegex(table, rf"\n  {purpose} .* [KMG]i?B   [\d.]+ [MG]iB on the host\n")
        many = self.planned(*words[:-6], "--batch", 64, "--seq", 1024, "--accumulate", 1, "--recompute",
                          "block", "--parameters", "host")
        self.assertNotIn("the link is the limit", many)
        few = spool("plan", *words, "--parameters", "host", "--host-memory", "1GiB")
        self.refused(few, 1, "what lives on the host needs", str(report["host_bytes"]), "1.00 GiB",
                     "keep more parameters on the device", "--parameters")
        self.planned(*words, "--parameters", "host", "--host-memory", report["host_bytes"])
        self.assertIn("units on the host", many)

    def test_a_search_keeps_homes_that_are_set_by_hand(self):
        run = ["--model", "llama-3.2-1b", "--batch", 1, "--seq", 512, "--accumulate", 1, "--dtype", "bf16"]
        run += ["--rounding", "stochastic", "--machine", "h100", "--clip", 0, "--parameters", "host"]
        for update in ["end", "backward"]:
            status, table, errors = spool("plan", *run, "--memory", "60GiB", "--update", update)
            self.assertEqual(status, 0, errors)
            self.assertIn(", updated in backward" if update == "backward" else "on the host", table)
            self.assertRegex(table, r"parameters and gradients of (\d+) of \1 units on the host")

    def test_homes_that_contradict_other_settings_are_refused(self):
        host = ["--parameters", "host"]
        for words, parts in [
            ([*host, "--optimizer-state", "device"], ["streamed, not device; leave", "--parameters, --opt"]),
            ([*host, "--optimizer-state", "cpu"], ["streamed, not cpu; leave", "--parameters, --opt"]),
            (["--update", "backward", "--optimizer-state", "cpu", "--clip", 0], ["is done by the device"]),
            (["--update", "backward"], ["a clip of 1 cuts", "(--update, --clip)"]),
            (["--update", "backward", "--clip", 0.5], ["a clip of 0.5 cuts", "give a clip of 0"]),
            (["--parameters", "some"], ["'some', is neither device, nor host", "6GiB"]),
            (["--parameters", "-1GiB"], ["'-1GiB', is neither"]),
            ([*host, "--ranks", 2, "--accumulate", 2, "--zero", 3], ["stage 3 of ZeRO", "not fetched", "--zero"]),
            ([*host, "--ranks", 2, "--accumulate", 2], ["one rank", "--ranks"]),
            ([*host, "--plan", self.folder / "any.json"], ["--parameters", "--plan"]),
            (["--update", "backward", "--clip", 0, "--plan", self.folder / "any.json"], ["--update", "--plan"]),
        ]:
            with self.subTest(words=words):
                self.refused(self.train(*words), 1, *parts)
        self.refused(self.train("--update", "later"), 2, "--update", "backward")
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
