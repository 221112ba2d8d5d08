"""How much of the validation data a run and `spool eval` read.

evaluation_command_test.py PROGRAM [CASE...]
"""

import json
import signal
import subprocess
import time

from commands import PROGRAM, SHAPE, Folder, last_step, main, spool

FOREIGN = "zqxjkvb ZQXJKVB 0123456789 " * 70  # the more a run learns, the worse it foretells this
NUMBERS = {"step", "loss", "grad_norm", "lr", "val_loss", "val_targets", "whole"}


class Evaluations(Folder):
    def evaluated(self, *words):
        """Trains; returns what it printed, and the targets of each evaluation by step."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        out = self.folder / "-".join(map(str, words))
        status, printed, errors = self.train(*words, "--log", log, out=out, steps=4)
        self.assertEqual(status, 0, errors)
        entries = [e for e in self.log(log) if "val_loss" in e]
        return printed, {e["step"]: (e["val_targets"], e["whole"]) for e in entries}

    def test_read_as_many_batches_as_is_said(self):
        batch = 2 * 16  # tokens
        printed, targets = self.evaluated("--eval-every", 2)
        self.assertEqual(targets, {2: (20 * batch, False), 4: (1741, True)})
        self.assertIn("over all 1741 targets", printed)
        printed, targets = self.evaluated("--eval-every", 2, "--eval-batches", 3, "--final-eval", 7)
        self.assertEqual(targets, {2: (3 * batch, False), 4: (7 * batch, False)})
        self.assertIn(f"over {7 * batch} of 1741 targets", printed)
        printed, targets = self.evaluated("--final-eval", "none")
        self.assertEqual(targets, {})
        self.assertNotIn("validation loss", printed)
        self.assertIn("the model is in", printed)

    def test_refuses_other_amounts(self):
        for amount in ["0", "-1", "some", "1e3"]:
            self.refused(self.train("--final-eval", amount), 1, "--final-eval", f"'{amount}'")
        self.refused(self.train("--eval-batches", 0), 2, "--eval-batches: 0 is too little")
        self.assertEqual(self.train()[0], 0)
        result = spool("eval", "--model", self.out, "--data", self.text, "--limit", -1)
        self.refused(result, 2, "--limit")

    def test_eval_reads_so_many_rows(self):
        self.assertEqual(self.train()[0], 0)
        words = ["eval", "--model", self.out, "--data", self.text, "--seq", 16, "--json"]
        whole = json.loads(spool(*words)[1])
        some = json.loads(spool(*words, "--limit", 10)[1])
        self.assertEqual(some["tokens"], 160)
        self.assertLess(abs(some["loss"] - whole["loss"]), 1)
        self.assertEqual(json.loads(spool(*words, "--limit", 10**9)[1]), whole)

    def test_an_interrupt_ends_the_final_evaluation_after_the_model_is_saved(self):
        self.text.write_text(self.text.read_text() * 60)
        log = self.folder / "log"
        words = ["--data", self.text, "--out", self.out, "--steps", 1, "--log", log]
        run = subprocess.Popen(
            [str(w) for w in [PROGRAM, "train", *SHAPE, *words]], stdout=subprocess.PIPE, text=True
        )
        while last_step(log) < 1 or not (self.out / "latest").exists():
            time.sleep(0.001)
        run.send_signal(signal.SIGINT)
        printed = run.communicate(timeout=100)[0]
        self.assertEqual(run.returncode, 130, printed)
        self.assertIn("stopped in the final evaluation; the model is in", printed)
        self.assertIn("finished", spool("train", "--out", self.out, "--resume")[1])


class Owed(Folder):
    """Evaluations that a stop cut short, or that are due because the run was extended."""

    def setUp(self):
        super().setUp()
        self.val = self.folder / "val.txt"
        self.val.write_text(FOREIGN)
        self.words = ["--val-data", self.val, "--eval-every", 3, "--lr", 0.03, "--lr-schedule", "constant"]
        self.words += ["--final-eval", "none", "--keep-checkpoints", 99]

    def lines(self, log):
        return [{key: line[key] for key in NUMBERS & line.keys()}
                for line in self.log(log) if {"loss", "val_loss"} & line.keys()]

    def interrupted(self, log, *words, until):
        """Interrupts a run after its first logged step, or before it; returns what it printed."""
        command = [PROGRAM, "train", "--out", self.out, "--log", log, *words]
        run = subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, text=True)
        printed = ""
        while "foretold peak" not in printed:
            printed += run.stdout.readline()
        while last_step(log) < until:
            self.assertIsNone(run.poll())
            time.sleep(0.001)
        run.send_signal(signal.SIGINT)
        printed += run.communicate(timeout=100)[0]
        self.assertIn(run.returncode, [130, -signal.SIGINT], printed)
        return printed

    def test_are_made_up_when_the_run_resumes(self):
        self.val.write_text(FOREIGN * 100)
        for decides, steps, end in [(["--keep-best"], 8, 8), (["--patience", 2], 30, None)]:
            names = ["whole", "cut", "log", "expected"]
            whole, out, log, expected = (self.folder / f"{name}-{steps}" for name in names)
            words = [*self.words, "--eval-batches", 10**6, *decides]
            status, _, errors = self.train(*words, "--log", expected, out=whole, steps=steps)
            self.assertEqual(status, 0, errors)
            evaluated = [line["step"] for line in self.lines(expected) if "val_loss" in line]
            end = end or evaluated[-1]
            self.assertLess(evaluated[0], end)
            self.out = out
            begin = [*SHAPE, "--data", self.text, "--steps", steps, *words]
            for step in evaluated:
                printed = self.interrupted(log, *begin, until=step)
                self.assertIn(f"stopped after step {step};", printed)
                begin = ["--resume", "--final-eval", "none"]
                self.interrupted(log, *begin, until=step)  # while it is made up, or before
                self.assertEqual((out / "latest").readlink().name, f"step-{step:06}")
            status, printed, errors = spool("train", "--out", out, "--log", log, *begin)
            self.assertEqual(status, 0, errors)
            self.assertIn("the model is in", printed)
            self.assertEqual(self.lines(log), self.lines(expected))
            stored = [json.loads((r / "latest" / "run.json").read_text()) for r in (whole, out)]
            self.assertEqual(stored[0], stored[1])
            self.assertEqual(self.weights(out), self.weights(whole))
            if "--keep-best" in decides:
                self.assertEqual((out / "best").readlink(), (whole / "best").readlink())
            self.assertIn("the run is finished", spool("train", "--out", out, "--resume")[1])

    def test_of_a_run_that_becomes_longer_is_made_where_it_ended(self):
        expected, log = self.folder / "expected", self.folder / "log"
        self.assertEqual(self.train(*self.words, "--log", expected, out=self.folder / "long", steps=9)[0], 0)
        words = ["--final-eval", "all", "--log", log]
        self.assertEqual(self.train(*self.words, *words, steps=6)[0], 0)
        resume = ["train", "--resume", "--out", self.out, "--log", log, "--final-eval", "none"]
        status, _, errors = spool(*resume, "--steps", 9)
        self.assertEqual(status, 0, errors)
        self.assertEqual(self.lines(log), self.lines(expected))


if __name__ == "__main__":
    main()
