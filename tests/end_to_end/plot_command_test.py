"""spool plot: the losses and the speed of runs, from their logs."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest

from commands import PROGRAM, PROSE, SHAPE, last_step, main, spool
from report_pages import report_in

ROOT = pathlib.Path(__file__).parents[2]


class Plot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="spool-plot-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "text.txt").write_text(PROSE)
        for name in ["a", "b"]:
            cls.train(name, "--steps", 6, "--eval-every", 2)

    @classmethod
    def train(cls, name, *words):
        log = cls.folder / name / "log.jsonl"
        log.parent.mkdir(exist_ok=True)
        command = ["train", *SHAPE, "--data", cls.folder / "text.txt", "--final-eval", 1]
        done = spool(*command, "--out", log.parent / "run", "--log", log, *words)
        assert done[0] == 0, done
        return log

    def plot(self, *runs, code=0):
        page = self.folder / "page.html"
        page.unlink(missing_ok=True)
        status, output, errors = spool("plot", *runs, "--out", page)
        self.assertEqual(status, code, errors)
        if code:
            self.assertFalse(page.exists())
            return errors
        self.assertIn(str(page), output)
        return report_in(page)["runs"], errors

    def test_two_runs(self):
        logs = [self.folder / name / "log.jsonl" for name in ["a", "b"]]
        runs, errors = self.plot(*logs)
        self.assertEqual(errors, "")
        self.assertEqual([run["name"] for run in runs], ["a", "b"])
        for run, log in zip(runs, logs):
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            for member in ["loss", "val_loss", "tokens_per_s"]:
                logged = {line["step"]: line[member] for line in lines if member in line}
                told = {step["step"]: step[member] for step in run["log"] if step[member] is not None}
                self.assertEqual(told, logged)

    def test_a_run_that_was_killed(self):
        log = self.folder / "killed" / "log.jsonl"
        log.parent.mkdir()
        (self.folder / "long.txt").write_text(PROSE * 20)
        words = [*SHAPE, "--data", self.folder / "long.txt", "--checkpoint-every", 20]
        words += ["--out", log.parent / "run", "--log", log]
        process = subprocess.Popen(list(map(str, [PROGRAM, "train", *words, "--steps", 10**6])),
                                   stdout=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        while last_step(log) < 50:
            self.assertIsNone(process.poll())
        process.kill()
        process.wait()
        log.write_text(log.read_text() + '{"step":')
        runs, errors = self.plot(log)
        self.assertRegex(errors, r"log\.jsonl, line \d+ is broken off")
        self.assertGreaterEqual(runs[0]["log"][-1]["step"], 40)
        steps = [step["step"] for step in runs[0]["log"]]
        self.assertEqual(steps, sorted(set(steps)))

    def test_a_run_that_was_resumed(self):
        log = self.train("resumed", "--steps", 5)
        log.write_text(log.read_text() + '{"step":6,')
        self.train("resumed", "--steps", 9, "--resume")
        runs, errors = self.plot(log)
        self.assertEqual(errors, "")
        self.assertEqual([step["step"] for step in runs[0]["log"]], list(range(1, 10)))

    def test_what_is_no_run(self):
        binary = self.folder / "binary"
        binary.write_bytes(bytes(range(256)) * 5000)
        log = self.folder / "a" / "log.jsonl"
        text = self.folder / "text.txt"
        for runs, word in [([binary], "binary"), ([text], "text.txt"), ([self.folder], "directory"),
                           ([self.folder / "none"], "none"), ([log, text], "text.txt"),
                           ([log, self.folder / "a/../a/log.jsonl"], "twice")]:
            self.assertIn(word, self.plot(*runs, code=1))
        self.plot(code=2)
        self.assertEqual(spool("plot", log)[0], 2)

    def test_no_other_file_is_replaced(self):
        mine = self.folder / "mine.html"
        mine.write_text("mine")
        status, _, errors = spool("plot", self.folder / "a" / "log.jsonl", "--out", mine)
        self.assertEqual((status, mine.read_text()), (1, "mine"))
        self.assertIn("--out", errors)

    def test_a_run_that_is_drawn_is_not_replaced(self):
        page = self.folder / "own.html"
        self.train("own", "--steps", 2, "--report", page)
        content = page.read_bytes()
        link, hard = self.folder / "link.html", self.folder / "hard.html"
        link.symlink_to("own.html")
        os.link(page, hard)
        for run, out in [(page, page), (page, self.folder / "a" / ".." / "own.html"), (page, link),
                         (link, page), (page, hard)]:
            status, _, errors = spool("plot", self.folder / "a" / "log.jsonl", run, "--out", out)
            self.assertEqual((status, page.read_bytes()), (1, content), errors)
            self.assertIn("is one of the runs that are drawn", errors)
            self.assertIn("--out", errors)
        other = self.folder / "drawn.html"
        for _ in range(2):
            self.assertEqual(spool("plot", page, "--out", other)[0], 0)

    def test_pipes_and_damaged_pages_are_refused(self):
        pipe, page, log = self.folder / "pipe", self.folder / "torn.html", self.folder / "a" / "log.jsonl"
        os.mkfifo(pipe)
        self.train("torn", "--steps", 2, "--report", page)
        page.write_text(page.read_text()[:3000])
        self.assertIn("is not a regular file", self.plot(pipe, code=1))
        with subprocess.Popen(["cat", log], stdout=subprocess.PIPE) as cat:
            words = ["plot", f"/dev/fd/{cat.stdout.fileno()}", "--out", self.folder / "page.html"]
            status, _, errors = spool(*words, pass_fds=[cat.stdout.fileno()])
        self.assertEqual(status, 1)
        self.assertIn("is not a regular file", errors)
        self.assertIn("the report in this page is damaged", self.plot(page, code=1))
        status, _, errors = spool("plot", log, "--out", pipe)
        self.assertEqual(status, 1)
        self.assertIn("not a regular file", errors)
        status, _, errors = spool("info", page)
        self.assertEqual(status, 1)
        self.assertIn("the report in this page is damaged", errors)

    def test_the_lines_that_bring_a_log_to_tensorboard(self):
        """Runs the loop of docs/reports.md with a writer that records its calls."""
        text = (ROOT / "docs" / "reports.md").read_text()
        code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
        self.assertLessEqual(len(code.splitlines()), 10)
        written = []

        class SummaryWriter:
            def __init__(self, folder):
                self.folder = folder

            def add_scalar(self, name, value, step):
                written.append((name, value, step))

            def close(self):
                written.append(self.folder)

        stand_in = types.ModuleType("torch.utils.tensorboard")
        stand_in.SummaryWriter = SummaryWriter
        modules = {"torch": types.ModuleType("torch"), "torch.utils": types.ModuleType("torch.utils"),
                   "torch.utils.tensorboard": stand_in}
        arguments = sys.argv
        before = {name: sys.modules.get(name) for name in modules}
        sys.modules.update(modules)
        try:
            log = str(self.folder / "a" / "log.jsonl")
            sys.argv = ["board.py", log, "board"]
            exec(compile(code, "docs/reports.md", "exec"), {})
        finally:
            sys.argv = arguments
            for name, module in before.items():
                sys.modules.pop(name) if module is None else sys.modules.update({name: module})
        lines = [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()][1:]
        for member in ["loss", "val_loss", "tokens_per_s", "grad_norm", "lr"]:
            expected = [(member, line[member], line["step"]) for line in lines if member in line]
            self.assertEqual([w for w in written if w[0] == member], expected)


if __name__ == "__main__":
    main()
