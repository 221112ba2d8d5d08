"""The pages of reports as a browser draws them: what is drawn is what their JSON says.

With SPOOL_NIGHTLY=1 of models with all their layers; else of a few.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

import chromium
from commands import PROGRAM, PROSE, SHAPE, SKIPPED, main, spool
from report_pages import DrawnPages, page_with, report_in

WIDTHS = [1280, 760, 375]
NIGHTLY = os.environ.get("SPOOL_NIGHTLY") == "1"
H200 = "--model gpt2-124m --machine h200 --batch 16 --seq 1024".split()
LARGE = "--model gpt2-1558m --machine h200".split()
if NIGHTLY:
    BUDGET, OF_MICRO_BATCHES, OF_LARGE = "6GiB", "8GiB", "40GiB"
else:  # a plan of fewer layers has as many kinds of lines, and a frontier is searched much sooner
    H200 += ["--layers", "3"]
    LARGE += ["--layers", "8"]
    BUDGET, OF_MICRO_BATCHES, OF_LARGE = "1500MiB", "1700MiB", "4GiB"
HOSTILE = "</script><img src=x onerror=alert(1)><b>&amp;\u2028\u202e'\"`"


def with_hostile_text(value):
    """The report with markup at the end of every text, except the names of members."""
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


class Pages(DrawnPages):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.json = cls.out / "plan.json"
        cls.plan = cls.make("plan.html", *H200, "--memory", BUDGET, "--json", cls.json)

    @classmethod
    def make(cls, name, *words, fits=True):
        page = cls.out / name
        code, _, said = spool("plan", *words, "--report", page)
        if code != (0 if fits else 1):
            raise AssertionError(said)
        return page

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
        policies = sorted(report["policies"], key=lambda p: p["name"] == "keep all")
        points += [(p["peak_bytes"], p["step_ms"]) for p in policies]
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

    def check_phases(self, memory):
        """Each phase of the step has its name in the picture."""
        said = self.browser.run("document.querySelector('#memory .phases').textContent")
        for phase in memory["phases"]:
            self.assertIn(phase["name"], said)

    def check_plan(self, page):
        report = report_in(page)
        for width in WIDTHS:
            with self.subTest(page=page.name, width=width):
                drawn = self.open(page, width)
                self.check_memory(drawn["memory"], report["memory"])
                self.check_phases(report["memory"])
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
        self.assertEqual(report_in(self.plan), json.loads(self.json.read_text()))

    def test_copies_of_what_lives_on_the_host_are_named(self):
        words = "--model gpt2-tiny --machine rtx4090 --parameters host --accumulate 2".split()
        page = self.make("homes.html", *words)
        report = self.check_plan(page)
        names = {copy["name"] for copy in report["lanes"]}
        self.assertLessEqual({"parameters in", "gradients in", "gradients out", "parameters out"}, names)
        words = self.browser.run("document.body.textContent")
        for said in ["Bytes on the host by purpose", "Parameters and gradients on the host", *names]:
            self.assertIn(said, words)

    def test_pages_of_other_plans(self):
        for name, words in {
            "everything kept": [*H200],
            "micro-batches": [*H200, "--accumulate", "3", "--memory", OF_MICRO_BATCHES],
            "on a cpu": "--model gpt2-tiny --memory 35MiB".split(),
            "one layer": "--model gpt2-tiny --layers 1 --batch 1 --seq 8 --recompute block".split(),
            "parameters on the host": "--model gpt2-tiny --machine rtx4090 --parameters host".split(),
            "1558M": [*LARGE, "--memory", OF_LARGE],
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
        drawn = self.open(page)
        drawn = {**drawn["run"], "curves": drawn["losses"]}
        first = self.browser.run("document.querySelector('main > header + *').innerText")
        self.assertIn("Loss (nats per token)", first)
        self.assertAlmostEqual(drawn["peaks"]["measured"] / run["measured_peak_bytes"], 1, delta=1e-3)
        times = sorted(entry["ms"] for entry in run["log"])
        self.assertAlmostEqual(run["measured_step_ms"], (times[2] + times[3]) / 2, delta=1e-9 * times[5])
        self.assertAlmostEqual(drawn["times"]["measured"], run["measured_step_ms"], delta=1e-2 * times[5])
        for curve, member in zip(drawn["curves"]["loss"], ["loss", "val_loss"]):
            known = [entry[member] for entry in run["log"] if entry[member] is not None]
            self.assertEqual(curve["points"], len(known))
            self.assertAlmostEqual(curve["last"][1], known[-1], delta=1e-3)

    def plot_of(self, losses):
        """Opens the page of a plot of runs with these losses; returns what is drawn, and its numbers beside the loss."""
        runs = []
        for i, of_run in enumerate(losses):
            log = [{"step": 10 * (s + 1), "loss": loss, "val_loss": loss + 0.25 if s % 2 else None, "ms": 2.0 + s,
                    "tokens_per_s": 1000.0 + s, "tokens": 640 * (s + 1)} for s, loss in enumerate(of_run)]  # fmt: skip
            runs.append({"name": f"run {i}", "log": log})
        report = {"format": "spool-plot", "format_version": 1, "runs": runs}
        drawn = self.open(page_with(self.plan, report, self.out / "plot.html"))
        texts = "document.querySelector('#runs .curves .axis').querySelectorAll('text')"
        labels = self.browser.run(f"JSON.stringify([...{texts}].map((label) => label.textContent))")
        return drawn, json.loads(labels)

    def test_the_page_of_a_plot_has_a_table_of_its_runs(self):
        self.plot_of([[3.0, 2.5, 2.75, 2.625], [4.0, 3.5, 3.25]])
        rows = "JSON.stringify([...document.querySelectorAll('#summary tr')].map((r) => [...r.cells].map((c) => c.innerText)))"
        head, *runs = json.loads(self.browser.run(rows))
        self.assertEqual(head[:6], ["run", "steps", "last loss", "last validation loss", "best validation loss", "after step"])
        self.assertEqual(runs[0], ["run 0", "40", "2.625", "2.875", "2.75", "20", "3.5", "1,002", "2,560"])
        self.assertEqual(runs[1], ["run 1", "30", "3.25", "3.75", "3.75", "20", "3", "1,001", "1,920"])
        self.assertTrue(self.browser.run("document.querySelector('#summary table').checkVisibility()"))

    def test_losses_are_read_at_their_axis(self):
        falling = [11.0 * 0.9**s for s in range(40)]
        for losses, logarithmic in [
            ([falling], True),
            ([falling, [3.0, 1e30, 1e33]], True),
            ([[3.1, 3.0, 2.9, 2.95]], False),
            ([[3.00001, 3.00002, 3.00003]], False),
            ([[0.0, 0.5, 2.0]], False),
        ]:
            drawn, labels = self.plot_of(losses)
            self.assertGreaterEqual(len(labels), 4, labels)
            self.assertEqual(len(labels), len(set(labels)))
            heading = self.browser.run("document.querySelector('#runs h3').innerText")
            self.assertEqual(heading, "Loss (nats per token)" + (", logarithmic" if logarithmic else ""))
            last = next(c for c in drawn["runs"]["loss"] if c["name"].endswith("training"))["last"]
            self.assertAlmostEqual(last[1] / losses[0][-1], 1, delta=1e-2)

    def test_the_page_of_a_sweep_names_its_model(self):
        sweep = pathlib.Path(PROGRAM).parent / "benchmarks" / "peak_memory"
        if not sweep.exists():
            raise unittest.SkipTest("the benchmarks are not built")
        page = self.out / "sweep.html"
        words = ["--model=llama-tiny", "--batch=2", "--seq=64", "--policies=1", "--points=2", f"--report={page}"]
        done = subprocess.run([sweep, *words], capture_output=True)  # 1 where a simple policy is better
        self.assertIn(done.returncode, [0, 1], done.stderr)
        self.open(page)
        said = self.browser.run("document.querySelector('header').innerText")
        for words in ["llama-tiny", "h200", "2 rows of 64 tokens", "bf16"]:
            self.assertIn(words, said)

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

    def test_pictures_are_read_with_the_keyboard_where_their_mark_is_seen(self):
        self.open(self.plan)
        for part in ["frontier", "grid", "lanes"]:
            place = f"document.querySelector('#{part} [role=slider]')"
            mark = f"getComputedStyle({place}.querySelector('.outline')).visibility"
            self.browser.run("document.activeElement.blur()")
            self.browser.point_at(1, 1)
            self.assertEqual(self.browser.run(mark), "hidden", part)
            self.browser.run(f"{place}.focus()")
            self.assertEqual(self.browser.run(mark), "visible", part)
            said = []
            for key in ["Home", "ArrowRight", "End"]:
                self.browser.press(key)
                said.append(self.browser.run(f"document.querySelector('#{part} .reading').textContent"))
                self.assertEqual(self.browser.run(f"{place}.getAttribute('aria-valuetext')"), said[-1])
            self.assertEqual(len(set(said)), 3, part)

    def test_the_keys_up_and_down_stay_in_a_layer_of_the_grid(self):
        self.open(self.plan)
        self.browser.run("document.querySelector('#grid [role=slider]').focus()")
        words = "document.querySelector('#grid .reading').textContent"
        self.browser.press("Home")
        self.browser.press("ArrowRight")
        self.assertIn("of layer 1:", self.browser.run(words))
        for key in ["ArrowUp"] + 20 * ["ArrowDown"]:
            self.browser.press(key)
            self.assertIn("of layer 1:", self.browser.run(words))

    def test_a_part_that_cannot_be_drawn_says_so(self):
        report = report_in(self.plan)
        report["memory"]["phases"] = None
        self.browser.open(page_with(self.plan, report, self.out / "damaged.html").as_uri())
        said = self.browser.run("document.body.innerText")
        self.assertIn("cannot be drawn", said)
        self.assertIn(report["explanation"][0], said)
        self.browser.open("about:blank")  # the page fails again when the next test resizes it

    def test_copies_beyond_those_drawn_are_counted(self):
        words = "--model gpt2-124m --machine rtx4090 --batch 4 --seq 256 --memory 2GiB --optimizer-state streamed"
        report = report_in(self.make("copies.html", *words.split()))
        lanes = report["lanes"]
        lanes[3:] = []
        page = page_with(self.out / "copies.html", report, self.out / "few.html")
        self.browser.open(page.as_uri())
        said = self.browser.run("document.querySelector('#lanes').innerText")
        self.assertIn("the 3 longest are drawn", said)
        for total in report["lane_totals"]:
            if total["lane"] in {copy["lane"] for copy in lanes}:
                self.assertIn(f"{total['lane']}: {total['copies']:,} copies", said)

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

    def test_pictures_fit_the_paper(self):
        """Pictures that were drawn for a screen shrink to the width of a printed page."""
        self.open(self.plan)
        self.browser.page("Emulation.setEmulatedMedia", media="print")
        styles = "[...document.querySelectorAll('.plot > svg')].map((svg) => getComputedStyle(svg).maxWidth)"
        found = self.browser.run(styles)
        self.browser.page("Emulation.setEmulatedMedia", media="")
        self.assertGreater(len(found), 3)
        self.assertEqual(set(found), {"100%"})


if __name__ == "__main__":
    if not chromium.find():
        print("no Chromium is here to draw pages: these tests are skipped", file=sys.stderr)
        sys.exit(SKIPPED)
    main()
