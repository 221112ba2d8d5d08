"""How much of the validation data a run and `spool eval` read.

evaluation_command_test.py PROGRAM [CASE...]
"""

import json
import signal
import subprocess
import time

from commands import PROGRAM, SHAPE, Folder, last_step, main, spool


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
        for amount in ["0", "-1", "some", "", "1e3"]:
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


if __name__ == "__main__":
    main()
