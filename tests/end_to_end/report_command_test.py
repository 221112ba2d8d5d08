"""The pages that spool plan and spool train write, without a browser: their reports and their files."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from commands import PROGRAM, PROSE, SHAPE, main, spool
from report_pages import report_in

H200 = "--model gpt2-124m --machine h200 --batch 16 --seq 1024".split()


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="spool-runs-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "run.html"
        (self.folder / "text.txt").write_text(PROSE)

    def train(self, *words, out="run", code=0):
        data = ["--data", self.folder / "text.txt", "--final-eval", 1, "--report", self.page]
        done = spool("train", *SHAPE, *data, "--out", self.folder / out, *words)
        self.assertEqual(done[0], code, done)
        return done[1] + done[2]

    def check_log(self, run, log):
        """The page tells what the log tells."""
        lines = [json.loads(line) for line in log.read_text().splitlines()][1:]
        for member, name in {"loss": "loss", "tokens_per_s": "tokens_per_s", "step_ms": "ms"}.items():
            logged = {line["step"]: line[member] for line in lines if member in line}
            told = {entry["step"]: entry[name] for entry in run["log"] if entry[name] is not None}
            self.assertEqual(told.keys(), logged.keys())
            for step, number in logged.items():
                self.assertAlmostEqual(told[step], number, delta=1e-6 * number)
        losses = {line["step"]: line["val_loss"] for line in lines if "val_loss" in line}
        told = {entry["step"]: entry["val_loss"] for entry in run["log"] if entry["val_loss"] is not None}
        self.assertEqual(told, losses)

    def test_tells_the_whole_run(self):
        log = self.folder / "log"
        said = self.train("--steps", 7, "--eval-every", 3, "--log", log)
        self.assertIn("run.html", said)
        report = report_in(self.page)
        run = report["run"]
        self.assertEqual((run["step"], run["steps"], len(run["log"])), (7, 7, 7))
        self.check_log(run, log)
        self.assertEqual(run["measured_peak_bytes"], run["foretold_peak_bytes"])
        self.assertEqual(run["foretold_step_ms"], report["foretold_step_ms"])
        self.assertGreater(run["corrected_step_ms"], 0)
        self.assertGreater(len(report["frontier"]), 1)

    def test_a_resumed_run_tells_its_first_steps_too(self):
        log = self.folder / "log"
        self.train("--steps", 4, "--log", log)
        self.train("--steps", 9, "--log", log, "--resume")
        run = report_in(self.page)["run"]
        self.assertEqual([entry["step"] for entry in run["log"]], list(range(1, 10)))
        self.check_log(run, log)
        self.train("--steps", 2, out="other")
        self.train("--steps", 10, "--log", log, "--resume")  # the page is of another run
        self.assertEqual([entry["step"] for entry in report_in(self.page)["run"]["log"]], [10])

    def test_a_run_in_a_folder_that_was_not_there_resumes_in_its_page(self):
        elsewhere = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, elsewhere)
        data = ["--data", "text.txt", "--out", "runs/a", "--report", self.page, "--steps"]
        for words in ["2", "4 --resume"]:
            done = spool("train", *SHAPE, *data, *words.split())
            self.assertEqual(done[0], 0, done)
        run = report_in(self.page)["run"]
        self.assertEqual((len(run["log"]), run["directory"]), (4, os.path.realpath("runs/a")))

    def test_measured_steps_are_those_of_the_plan(self):
        self.train("--steps", 6)
        self.train("--steps", 6, "--resume")  # finished already
        run = report_in(self.page)["run"]
        self.assertEqual(run["plan_since_step"], 0)
        self.assertGreater(run["measured_step_ms"], 0)
        self.assertEqual(run["measured_peak_bytes"], run["foretold_peak_bytes"])
        self.train("--steps", 9, "--resume", "--recompute", "block")
        run = report_in(self.page)["run"]
        self.assertEqual((run["plan_since_step"], len(run["log"])), (6, 9))
        times = sorted(entry["ms"] for entry in run["log"][6:])
        self.assertEqual(run["measured_step_ms"], times[1])
        self.assertEqual(run["measured_peak_bytes"], run["foretold_peak_bytes"])

    def test_a_resumed_run_that_does_not_begin_keeps_its_steps(self):
        self.train("--steps", 4)
        self.train("--steps", 8, "--resume", "--dry-run")
        self.assertEqual(report_in(self.page)["run"]["step"], 4)
        self.train("--steps", 8, "--resume", "--memory", "100KiB", code=1)
        report = report_in(self.page)
        self.assertIn("error", report)
        self.assertEqual((report["batch"], report["seq"]), (2, 16))
        self.assertEqual(len(report["run"]["log"]), 4)
        elsewhere = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, elsewhere)
        done = spool("train", "--resume", "--steps", 8, "--out", "./run/", "--report", self.page)
        self.assertEqual(done[0], 0, done)
        self.assertEqual([entry["step"] for entry in report_in(self.page)["run"]["log"]], list(range(1, 9)))

    def test_is_there_before_the_first_step_and_at_checkpoints(self):
        (self.folder / "text.txt").write_text(PROSE * 20)
        words = ["--report", self.page, "--out", self.folder / "run", "--checkpoint-every", "50"]
        command = [PROGRAM, "train", *SHAPE, "--data", self.folder / "text.txt", "--steps", "100000", *words]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        told = []
        while not told or told[-1] < 100:
            self.assertIsNone(process.poll())
            if self.page.exists():
                told.append(report_in(self.page)["run"]["step"])
        process.kill()
        process.wait()
        self.assertEqual(told[0], 0)
        self.assertTrue(all(step % 50 == 0 for step in told), told)

    def test_a_dry_run_and_a_refused_one_tell_the_plan(self):
        self.train("--steps", 3, "--dry-run")
        self.assertNotIn("run", report_in(self.page))
        self.assertIn("memory", report_in(self.page))
        self.train("--steps", 3, "--memory", "100KiB", code=1)
        self.assertIn("error", report_in(self.page))
        self.assertFalse((self.folder / "run").exists())

    def test_a_run_that_diverges_tells_its_losses(self):
        self.train("--steps", 50, "--lr", 1e30, "--weight-decay", 0, "--warmup", 0, "--clip", 0, code=1)
        log = report_in(self.page)["run"]["log"]
        self.assertGreaterEqual(len(log), 1)
        self.assertLess(len(log), 50)

    def test_training_goes_on_if_the_page_cannot_be_written(self):
        self.page = self.folder / "pages" / "run.html"
        self.page.parent.mkdir()
        process = subprocess.Popen(
            [PROGRAM, "train", *SHAPE, "--steps", "400", "--checkpoint-every", "20"]
            + ["--data", str(self.folder / "text.txt"), "--report", str(self.page)]
            + ["--out", str(self.folder / "run")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
        )
        while not self.page.exists():
            self.assertIsNone(process.poll())
        shutil.rmtree(self.page.parent)
        _, said = process.communicate(timeout=200)
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(said.count("training goes on, and the report is tried again"), 1, said)


class Files(unittest.TestCase):
    def test_only_a_page_is_replaced(self):
        with tempfile.TemporaryDirectory(prefix="spool-pages-") as folder:
            mine = pathlib.Path(folder) / "mine.html"
            mine.write_text("<html>mine</html>")
            for name in [mine, pathlib.Path(folder) / "missing" / "plan.html", pathlib.Path(folder)]:
                code, _, said = spool("plan", *H200, "--report", name)
                self.assertEqual(code, 1, said)
                self.assertIn(os.path.basename(name), said)
                self.assertIn("--report", said)
            self.assertEqual(mine.read_text(), "<html>mine</html>")
            code, _, said = spool("train", *SHAPE, "--report", mine, "--out", f"{folder}/run")
            self.assertEqual(code, 1, said)
            self.assertFalse(os.path.exists(f"{folder}/run"))

    def test_two_outputs_have_two_names(self):
        with tempfile.TemporaryDirectory(prefix="spool-pages-") as folder:
            name = pathlib.Path(folder) / "out"
            for flag in ["--json", "--save-plan"]:
                code, _, said = spool("plan", *H200, "--report", name, flag, name)
                self.assertEqual(code, 1, said)
                self.assertIn("two outputs", said)
                self.assertFalse(name.exists())


if __name__ == "__main__":
    main()
