"""What a run can be told beside its model: its learning rate, the order of its data, which model is
kept, and when it ends.

schedules_command_test.py PROGRAM [CASE...]
"""

import json
import math
import os
import shutil

from commands import Folder, as_of_an_earlier_version, main, spool

FOREIGN = "zqxjkvb ZQXJKVB 0123456789 " * 70  # the more a run learns, the worse it foretells this


class Schedules(Folder):
    def rates(self, *words, out, steps=10):
        log = self.folder / f"{out}.jsonl"
        status, _, errors = self.train(*words, "--log", log, out=self.folder / out, steps=steps)
        self.assertEqual(status, 0, errors)
        return [e["lr"] for e in self.log(log) if "lr" in e]

    def test_each_schedule_has_the_rates_of_its_formula(self):
        fixed = ["--lr", 0.01, "--min-lr", 0.002, "--warmup", 2, "--lr-schedule"]
        warm = [0.005, 0.01]
        expected = {
            "cosine": [0.006 + 0.004 * math.cos(math.pi * i / 8) for i in range(8)],
            "linear": [0.01 - 0.008 * i / 8 for i in range(8)],
            "wsd": [0.01] * 5 + [0.01 - 0.008 * math.sqrt(i / 4) for i in range(1, 4)],
        }
        for schedule, after in expected.items():
            share = ["--decay-share", 0.4] if schedule == "wsd" else []
            found = self.rates(*fixed, schedule, *share, out=schedule)
            for rate, wanted in zip(found, warm + after, strict=True):
                self.assertAlmostEqual(rate, wanted, places=9)
        words = ["--lr", 0.01, "--warmup", 2, "--lr-schedule", "constant"]
        self.assertEqual(self.rates(*words, out="constant"), warm + [0.01] * 8)

    def test_a_run_that_becomes_longer_before_its_decay_is_what_a_long_one_is(self):
        words = ["--lr-schedule", "wsd", "--decay-share", 0.5, "--warmup", 1]
        long = self.folder / "long"
        self.assertEqual(self.train(*words, out=long, steps=12)[0], 0)
        self.assertEqual(self.train(*words, "--checkpoint-every", 2, "--keep-checkpoints", 9, steps=8)[0], 0)
        (self.out / "latest").unlink()
        (self.out / "latest").symlink_to("step-000004")
        status, printed, errors = spool("train", "--resume", "--out", self.out, "--steps", 12)
        self.assertEqual(status, 0, errors)
        self.assertIn("its learning rate so far is that of a run of this length", printed)
        self.assertEqual(self.weights(self.out), self.weights(long))
        status, printed, errors = spool("train", "--resume", "--out", self.out, "--steps", 14)
        self.assertIn("from here on the learning rate follows that length", printed)

    def test_the_seed_of_the_data_changes_its_order_alone(self):
        losses = []
        for i, words in enumerate([[], ["--data-seed", 1], ["--data-seed", 2], ["--seed", 2]]):
            log = self.folder / f"{i}.jsonl"
            self.assertEqual(self.train(*words, "--log", log, out=self.folder / str(i))[0], 0)
            losses.append(self.losses(log))
        self.assertEqual(losses[0], losses[1])  # by default it is the seed, which is 1
        self.assertNotEqual(losses[0], losses[2])
        self.assertNotEqual(losses[2], losses[3])
        resume = ["train", "--resume", "--out", self.folder / "2"]
        self.refused(spool(*resume, "--data-seed", 3), 1, "--data-seed", "it has 2")
        for i, own in [(0, 1), (3, 2)]:  # runs that were given none
            resume = ["train", "--resume", "--out", self.folder / str(i)]
            stored = self.folder / str(i) / "latest" / "run.json"
            before = json.loads(stored.read_text())
            self.refused(spool(*resume, "--data-seed", 3), 1, "--data-seed", f"it has {own}")
            self.assertEqual(spool(*resume, "--data-seed", own, "--steps", 4)[0], 0)
            after = json.loads(stored.read_text())
            self.assertEqual(after["configuration"], before["configuration"] | {"steps": 4})
        self.refused(spool(*resume, "--seed", 1, "--data-seed", 2), 1, "seed", "it has 2")

    def test_refuses_what_makes_no_schedule_and_no_optimizer(self):
        for words in [
            ["--decay-share", 0.1],
            ["--decay-share", 0, "--lr-schedule", "wsd"],
            ["--decay-share", "nan", "--lr-schedule", "wsd"],
            ["--min-lr", 1e-4, "--lr-schedule", "constant"],
            ["--beta1", 1],
            ["--beta1", -0.1],
            ["--adam-epsilon", 0],
            ["--adam-epsilon", 1e-50],
            ["--adam-epsilon", "inf"],
            ["--keep-best", "--eval-every", 0],
            ["--patience", 1, "--eval-every", 0],
            ["--checkpoint-minutes", -1],
            ["--checkpoint-minutes", "nan"],
        ]:
            self.refused(self.train(*words), 1, words[0])
            self.assertFalse(self.out.exists(), words)
        for words in [["--keep-best"], ["--patience", 1]]:
            remedy = "give the steps between them, or"
            self.refused(self.train(*words, "--eval-every", 0), 1, remedy, words[0], "--eval-every")
        words = ["--lr-schedule", "wsd", "--decay-share", 0.5, "--warmup", 2]
        self.refused(self.train(*words), 1, "a warm-up of 2 steps and a decay of 2", "the 3 steps")

    def test_the_optimizer_s_settings_change_the_run_and_are_kept(self):
        first = {}
        for key, value in [("beta1", 0.5), ("adam-epsilon", 0.01), (None, None)]:
            out, words = self.folder / str(key), [f"--{key}", value] if key else []
            self.assertEqual(self.train(*words, out=out)[0], 0)
            first[key] = self.weights(out)
            if not key:
                continue
            stored = json.loads((out / "latest" / "run.json").read_text())
            self.assertEqual(stored["configuration"][key], value)
            self.refused(spool("train", "--resume", "--out", out, f"--{key}", 0.25), 1, f"--{key}", "it has")
        self.assertEqual(len(set(first.values())), 3)


class Best(Folder):
    """Runs with an early minimum of the validation loss."""

    def setUp(self):
        super().setUp()
        self.foreign = self.folder / "foreign.txt"
        self.foreign.write_text(FOREIGN)
        self.words = ["--val-data", self.foreign, "--eval-every", 2, "--final-eval", "none", "--lr", 0.03]

    def evaluations(self, log):
        return {e["step"]: e["val_loss"] for e in self.log(log) if "val_loss" in e}

    def test_the_best_checkpoint_is_kept_and_its_loss_is_what_eval_finds(self):
        log = self.folder / "log"
        words = [*self.words, "--keep-best", "--keep-checkpoints", 1, "--checkpoint-every", 3]
        words += ["--eval-batches", 999, "--log", log]
        status, printed, errors = self.train(*words, steps=13)
        self.assertEqual(status, 0, errors)
        found = self.evaluations(log)
        self.assertEqual(sorted(found), [2, 4, 6, 8, 10, 12, 13])
        best = min(found, key=found.get)
        self.assertLess(best, 13)
        self.assertEqual((self.out / "best").readlink().name, f"step-{best:06}")
        self.assertIn(f"was {found[best]:.4f}, after step {best}; that model is in", printed)
        kept = sorted(p.name for p in self.out.glob("step-*"))
        self.assertEqual(kept, sorted({f"step-{best:06}", "step-000013"}))
        words = ["eval", "--model", self.out / "best", "--data", self.foreign, "--seq", 16, "--json"]
        status, printed, errors = spool(*words)
        self.assertAlmostEqual(json.loads(printed)["loss"], found[best], places=5, msg=errors)

    def test_the_best_is_remembered_when_a_run_resumes(self):
        words = [*self.words, "--keep-best", "--keep-checkpoints", 1]
        self.assertEqual(self.train(*words, steps=8)[0], 0)
        best = (self.out / "best").readlink()
        (self.out / "best").unlink()  # as if the run had been killed before it wrote the link
        status, printed, errors = spool("train", "--resume", "--out", self.out, "--steps", 12)
        self.assertEqual(status, 0, errors)
        self.assertEqual((self.out / "best").readlink(), best)
        self.assertTrue((self.out / best).is_dir())
        resume = ["train", "--resume", "--out", self.out, "--no-keep-best", "--steps", 14]
        self.assertNotIn("the best validation loss", spool(*resume)[1])

    def test_something_else_named_best_is_not_replaced(self):
        self.out.mkdir()
        (self.out / "best").write_text("mine")
        words = "best: is not a link to a checkpoint"
        self.refused(self.train(*self.words, "--keep-best", steps=3), 1, words, "--out, --keep-best")
        self.assertEqual(os.listdir(self.out), ["best"])  # before anything is trained
        self.assertEqual(self.train(*self.words, steps=3)[0], 0)
        resume = ["train", "--resume", "--out", self.out, "--steps", 4, "--keep-best"]
        self.refused(spool(*resume), 1, words)
        self.assertEqual((self.out / "best").read_text(), "mine")
        self.assertEqual((self.out / "latest").readlink().name, "step-000003")

    def test_patience_ends_a_run_and_a_resumed_one_at_the_same_step(self):
        log = self.folder / "log"
        words = [*self.words, "--patience", 2, "--checkpoint-every", 3, "--keep-checkpoints", 9]
        status, printed, errors = self.train(*words, "--log", log, steps=60)
        self.assertEqual(status, 0, errors)
        found = self.evaluations(log)
        best = min(found, key=found.get)
        end = best + 4
        self.assertEqual(max(found), end)
        self.assertIn(f"the run ends after step {end}: in 2 evaluations no validation loss", printed)
        self.assertEqual((self.out / "latest").readlink().name, f"step-{end:06}")
        resume = ["train", "--resume", "--out", self.out]
        self.assertIn(f"the run is finished: it ended after step {end}", spool(*resume)[1])
        killed = self.folder / "killed"
        shutil.copytree(self.out, killed, symlinks=True)
        (killed / "latest").unlink()
        (killed / "latest").symlink_to("step-000003")
        self.assertEqual(spool("train", "--resume", "--out", killed)[0], 0)
        self.assertEqual(self.weights(killed), self.weights(self.out))
        run = [json.loads((r / "latest" / "run.json").read_text()) for r in (killed, self.out)]
        self.assertEqual(run[0], run[1])
        status, printed, errors = spool(*resume, "--patience", 3)
        self.assertIn(f"the run ends after step {end + 2}: in 3 evaluations", printed)

    def test_evaluations_that_no_run_has_are_refused(self):
        self.assertEqual(self.train(*self.words, "--patience", 2, steps=3)[0], 0)
        file = self.out / "latest" / "run.json"
        run = json.loads(file.read_text())
        for evaluations, words in [({"since_best": 5}, ["evaluations.last is missing"]),
                                   (run["evaluations"] | {"since_best": 2**63 - 1}, ["evaluations.since_best"]),
                                   (run["evaluations"] | {"last": {"step": 9, "val_loss": 1}}, ["evaluations.last.step"])]:
            file.write_text(json.dumps(run | {"evaluations": evaluations}))
            resume = spool("train", "--resume", "--out", self.out, "--steps", 5)
            self.refused(resume, 1, "run.json: ", *words)

    def test_a_run_of_an_earlier_version_resumes_with_the_defaults(self):
        self.assertEqual(self.train()[0], 0)
        stored = as_of_an_earlier_version(self.out / "latest")
        run = json.loads(stored.read_text())
        for key in ["lr-schedule", "decay-share", "beta1", "adam-epsilon", "data-seed", "eval-every"]:
            del run["configuration"][key]
        for key in ["eval-batches", "keep-best", "patience"]:
            del run["configuration"][key]
        stored.write_text(json.dumps(run))
        status, _, errors = spool("train", "--resume", "--out", self.out, "--steps", 4)
        self.assertEqual(status, 0, errors)
        now = json.loads((self.out / "latest" / "run.json").read_text())["configuration"]
        self.assertEqual((now["lr-schedule"], now["beta1"], now["eval-every"]), ("cosine", 0.9, 100))

    def test_checkpoints_by_time_change_nothing_but_their_number(self):
        words = ["--checkpoint-every", 0, "--keep-checkpoints", 99]
        self.assertEqual(self.train(*words, "--checkpoint-minutes", 1e-6, steps=6)[0], 0)
        self.assertEqual(len(list(self.out.glob("step-*"))), 6)
        other = self.folder / "other"
        self.assertEqual(self.train(*words, "--checkpoint-minutes", 1000, out=other, steps=6)[0], 0)
        self.assertEqual(len(list(other.glob("step-*"))), 1)
        self.assertEqual(self.weights(other), self.weights(self.out))


if __name__ == "__main__":
    main()
