"""The pages of reports as a browser draws them: what is drawn is what their JSON says."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import chromium
from commands import PROGRAM, PROSE, SHAPE, main, spool

WIDTHS = [1280, 760, 375]
BEGIN = '<script type="application/json" id="spool-report">'
H200 = "--model gpt2-124m --machine h200 --batch 16 --seq 1024".split()
HOSTILE = "</script><img src=x onerror=alert(1)><b>&amp;\u2028\u202e'\"`"


def report_in(page):
    text = page.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    return json.loads(text[begin : text.index("</script>", begin)])


def page_with(page, report, to):
    """The page with another report, written as Spool writes it."""
    text = page.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    safe = json.dumps(report)
    for character in "<>&":
        safe = safe.replace(character, f"\\u{ord(character):04x}")
    to.write_text(text[:begin] + safe + text[text.index("</script>", begin) :])
    return to


def with_hostile_text(value):
    """Every text of a report, but not the names of its members, ends in markup."""
    if isinstance(value, dict):
        kept = {"format"}
        return {key: part if key in kept else with_hostile_text(part) for key, part in value.items()}
    if isinstance(value, list):
        return [with_hostile_text(part) for part in value]
    return value + HOSTILE if isinstance(value, str) else value


def byte_ms(memory, index):
    """The bytes of a category times how long they are live."""
    times = [*memory["times_ms"], max(phase["end_ms"] for phase in memory["phases"])]
    spans = [end - begin for begin, end in zip(times, times[1:])]
    return sum(span * amount for span, amount in zip(spans, memory["bytes"][index]))


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="spool-pages-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.out = pathlib.Path(cls.folder.name)
        cls.browser = cls.enterClassContext(chromium.Chromium(chromium.find()))
        cls.plan = cls.make("plan.html", *H200, "--memory", "6GiB")

    @classmethod
    def make(cls, name, *words, fits=True):
        page = cls.out / name
        code, _, said = spool("plan", *words, "--report", page)
        if code != (0 if fits else 1):
            raise AssertionError(said)
        return page

    def open(self, page, width=1280):
        self.browser.resize(width)
        self.browser.open(page.as_uri())
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual(self.browser.requests(), [page.as_uri()])
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
        return json.loads(self.browser.run("document.documentElement.dataset.spoolDrawn"))

    def check_memory(self, drawn, memory):
        self.assertEqual(drawn["peak_bytes"], max(memory["total_bytes"]))
        self.assertEqual(drawn["peak_ms"], memory["times_ms"][memory["peak_index"]])
        self.assertEqual(drawn["phases"], len(memory["phases"]))
        self.assertEqual(len(drawn["byte_ms"]), len(memory["categories"]))
        for index, area in enumerate(drawn["byte_ms"]):
            expected = byte_ms(memory, index)
            self.assertAlmostEqual(area / expected, 1, delta=1e-6, msg=memory["categories"][index])

    def check_frontier(self, drawn, report):
        points = [(p["foretold_peak_bytes"], p["foretold_step_ms"]) for p in report["frontier"]]
        points += [(p["peak_bytes"], p["step_ms"]) for p in report["policies"]]
        points.append((report["foretold_peak_bytes"], report["foretold_step_ms"]))
        self.assertEqual(len(drawn), len(points))
        spans = [max(column) - min(column) for column in zip(*points)]
        for at, expected in zip(drawn, points):  # a hundredth of a pixel of about 300
            for i in range(2):
                self.assertAlmostEqual(at[i], expected[i], delta=2e-4 * spans[i] + 1e-9)

    def check_grid(self, drawn, grid):
        cells = [cell for row in grid["cells"] for cell in row if cell]
        self.assertEqual(drawn, {cell: cells.count(cell) for cell in cells})

    def check_lanes(self, drawn, lanes):
        names = {copy["lane"] for copy in lanes}
        self.assertEqual(set(drawn), names)
        for name in names:
            copies = [copy for copy in lanes if copy["lane"] == name]
            self.assertEqual(drawn[name]["count"], len(copies))
            busy = sum(copy["end_ms"] - copy["begin_ms"] for copy in copies)
            self.assertAlmostEqual(drawn[name]["busy_ms"], busy, delta=1e-6 * busy)

    def check_plan(self, page):
        report = report_in(page)
        for width in WIDTHS:
            with self.subTest(page=page.name, width=width):
                drawn = self.open(page, width)
                self.check_memory(drawn["memory"], report["memory"])
                self.check_frontier(drawn["frontier"], report)
                self.check_grid(drawn["grid"], report["grid"])
                if report["lanes"]:
                    self.check_lanes(drawn["lanes"], report["lanes"])
        return report

    def test_what_is_drawn_is_what_the_report_says(self):
        report = self.check_plan(self.plan)
        self.assertTrue(report["lanes"])
        words = self.browser.run("document.body.innerText")
        for sentence in report["explanation"]:
            self.assertIn(sentence, words)

    def test_the_page_holds_the_json_of_the_plan(self):
        both = self.out / "plan.json"
        page = self.make("both.html", *H200, "--memory", "6GiB", "--json", both)
        self.assertEqual(report_in(page), json.loads(both.read_text()))

    def test_pages_of_other_plans(self):
        for name, words in {
            "everything kept": [*H200],
            "micro-batches": [*H200, "--accumulate", "3", "--memory", "8GiB"],
            "on a cpu": "--model gpt2-tiny --memory 35MiB".split(),
            "one layer": "--model gpt2-tiny --layers 1 --batch 1 --seq 8 --recompute block".split(),
            "1558M": "--model gpt2-1558m --machine h200 --memory 40GiB".split(),
        }.items():
            page = self.make(f"{name}.html", *words)
            self.check_plan(page)
            self.assertLess(page.stat().st_size, 1_000_000, name)

    def test_the_page_of_a_run(self):
        page, data = self.out / "run.html", self.out / "text.txt"
        data.write_text(PROSE)
        words = ["--steps", 6, "--eval-every", 2, "--data", data, "--out", self.out / "run"]
        code, _, said = spool("train", *SHAPE, *words, "--report", page)
        self.assertEqual(code, 0, said)
        run = self.check_plan(page)["run"]
        drawn = self.open(page)["run"]
        self.assertAlmostEqual(drawn["peaks"]["measured"] / run["measured_peak_bytes"], 1, delta=1e-3)
        times = sorted(entry["ms"] for entry in run["log"])
        self.assertAlmostEqual(drawn["times"]["measured"], (times[2] + times[3]) / 2, delta=1e-2 * times[5])
        for curve, member in zip(drawn["curves"]["loss"], ["loss", "val_loss"]):
            known = [entry[member] for entry in run["log"] if entry[member] is not None]
            self.assertEqual(curve["points"], len(known))
            self.assertAlmostEqual(curve["last"][1], known[-1], delta=1e-3)

    def test_the_page_of_a_plan_that_does_not_fit(self):
        page = self.make("none.html", *H200, "--memory", "100MiB", fits=False)
        report = report_in(page)
        for width in WIDTHS:
            drawn = self.open(page, width)["refusal"]
            self.assertAlmostEqual(drawn["smallest plan"] / report["minimum_budget_bytes"], 1, delta=1e-3)
            self.assertIn(report["error"], self.browser.run("document.body.innerText"))

    def test_text_of_a_report_is_text(self):
        report = with_hostile_text(report_in(self.plan))
        page = page_with(self.plan, report, self.out / "hostile.html")
        for width in WIDTHS:
            self.open(page, width)
            self.assertEqual(self.browser.run("document.querySelectorAll('img, b').length"), 0)
        self.assertEqual(self.browser.run("document.title"), f"Plan for {report['model']}")
        self.assertIn(report["explanation"][0][:20], self.browser.run("document.body.innerText"))

    def test_an_instant_is_read_with_the_keyboard_and_the_pointer(self):
        memory = report_in(self.plan)["memory"]
        self.open(self.plan)
        self.browser.run("document.querySelector('#memory [role=slider]').focus()")
        said = []
        for key in ["Home", "ArrowRight", "End", "ArrowLeft"]:
            self.browser.press(key)
            now = "document.querySelector('#memory [role=slider]').getAttribute('aria-valuenow')"
            said.append(int(self.browser.run(now)))
        last = len(memory["times_ms"]) - 1
        self.assertEqual(said, [0, 1, last, last - 1])
        self.browser.press("Home")
        first = self.browser.run("document.querySelector('#memory').innerText")
        place = "document.querySelector('#memory svg').getBoundingClientRect()"
        x, y = (self.browser.run(f"{place}.{side}") for side in ["x", "y"])
        width = self.browser.run(f"{place}.width")
        self.browser.point_at(x + 0.3 * width, y + 100)
        then = self.browser.run("document.querySelector('#memory').innerText")
        self.assertNotEqual(first, then)
        self.assertRegex(then, r"kept until ")

    def test_tables_have_the_numbers_of_the_pictures(self):
        report = report_in(self.plan)
        self.open(self.plan)
        self.browser.run("for (const part of document.querySelectorAll('details')) part.open = true")
        rows = self.browser.run("document.querySelectorAll('#memory details table')[0].rows.length")
        self.assertEqual(rows, 1 + len(report["memory"]["times_ms"]))
        words = re.sub(r"[,\s]", "", self.browser.run("document.body.textContent"))
        for copy in report["lanes"]:
            self.assertIn(str(copy["bytes"]), words)
        self.assertEqual(self.browser.complaints(), [])

    def test_light_dark_and_print(self):
        colours = []
        for scheme in ["light", "dark"]:
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            self.browser.page("Emulation.setEmulatedMedia", features=features)
            self.open(self.plan)
            colours.append(self.browser.run("getComputedStyle(document.body).backgroundColor"))
        self.browser.page("Emulation.setEmulatedMedia", features=[])
        self.assertNotEqual(*colours)
        printed = self.browser.page("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
        self.assertGreater(len(printed["data"]), 10_000)
        self.assertEqual(self.browser.complaints(), [])


class Runs(unittest.TestCase):
    """The page of a run; without a browser."""

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
            stderr=subprocess.STDOUT,
            errors="replace",
        )
        while not self.page.exists():
            self.assertIsNone(process.poll())
        shutil.rmtree(self.page.parent)
        said = process.communicate(timeout=200)[0]
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
    if not chromium.find():
        print("no Chromium is here to draw pages: those tests are skipped", file=sys.stderr)
        del Pages
    main()
