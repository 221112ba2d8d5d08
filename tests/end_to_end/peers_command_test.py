"""benchmarks/peers/sweep.py: points, tables and frontier, and a sweep where a script stands in for PyTorch."""

import contextlib
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import time
import unittest

from commands import PROGRAM, Folder, main

PEERS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
sys.path.insert(0, str(PEERS))

import sweep
from joint import frontier, points, processes, spool_side, tables, torch_side

CELL = points.Cell("gpt2-tiny", "f32", 2, 64, "cpu", 2)
STATE = CELL.state_bytes()
MIB = points.MIB


def stored(way, step_ms, memory, setting=None, again=False, arena=None, own=None):
    """What a file of results has of a point."""
    numbers = {"step_ms": step_ms, "processor_ms": 2 * step_ms, "steps_peak_bytes": memory}
    numbers |= {"process_peak_bytes": memory + MIB, "before_model_bytes": own}
    if arena is not None:
        numbers |= {"arena_peak_bytes": arena, "foretold_peak_bytes": arena}
    return points.Point(CELL, way, setting, again), numbers


def results_of(*found):
    results = points.Results(None)
    for point, numbers in found:
        results.add(point, numbers)
    return results


def joint_results():
    """Spool is faster in less memory than eager, and no Spool point is as fast as compiled."""
    state, budget = STATE, STATE + 20 * MIB
    return results_of(
        stored("spool", 10, state + 60 * MIB, arena=state + 50 * MIB),
        stored("spool-frontier", 12, state + 30 * MIB, setting=budget, arena=budget),
        stored("eager", 11, state + 120 * MIB, own=70 * MIB),
        stored("checkpoint", 13, state + 100 * MIB, own=70 * MIB),
        stored("compiled", 9, state + 200 * MIB, own=90 * MIB),
        (points.Point(CELL, "auto-chunker"), {"error": "PyTorch 2.0 has no auto_chunker"}),
        stored("spool", 11, state + 58 * MIB, again=True, arena=state + 50 * MIB),
        stored("spool-frontier", 12, state + 30 * MIB, setting=budget, again=True, arena=budget),
    )


def rows():
    (found,) = frontier.rows_by_cell(joint_results().data).values()
    return found


class Points(unittest.TestCase):
    def test_spread_has_both_ends(self):
        self.assertEqual(points.spread([1, 2, 3, 4, 5, 6, 7], 3), [1, 4, 7])
        self.assertEqual(points.spread([1, 2], 5), [1, 2])
        self.assertEqual(points.spread([3, 4], 1), [3])

    def test_budgets_are_of_different_plans_and_below_keeping_all(self):
        peaks = [5, 5, 6, 7, 7, 8, 9, 9]
        plan = {"foretold_peak_bytes": 9, "frontier": [{"foretold_peak_bytes": p} for p in peaks]}
        self.assertEqual(points.budgets_of(plan, 10), [5, 6, 7, 8])
        self.assertEqual(points.budgets_of(plan, 2), [5, 8])

    def test_spool_is_measured_before_and_after(self):
        chosen = ["spool-frontier", "eager", "compiled-budgets", "spool"]
        found = points.points_of(CELL, chosen, [7, 8], [0.1, 1])
        ways = [(point.way, point.setting, point.again) for point in found]
        ours = [("spool", None), ("spool-frontier", 7), ("spool-frontier", 8)]
        peers = [("eager", None, False), ("compiled-budgets", 0.1, False), ("compiled-budgets", 1, False)]
        self.assertEqual(ways, [(*p, False) for p in ours] + peers + [(*p, True) for p in ours])
        self.assertEqual(len({point.key() for point in found}), len(found))
        alone = points.points_of(CELL, ["spool"], [], [])
        self.assertEqual([point.again for point in alone], [False])

    def test_parameters_are_those_of_gpt2(self):
        self.assertEqual(points.MODELS["gpt2-124m"].parameters(), 124_475_904)  # with 50304 tokens


class Frontier(unittest.TestCase):
    def test_both_measurements_are_one_row(self):
        row = next(row for row in rows() if row.point.way == "spool")
        self.assertEqual((row.step_ms, row.processor_ms), (10.5, 21))
        self.assertEqual(row.memory, STATE + 60 * MIB)
        self.assertAlmostEqual(row.drift, 1.1)
        self.assertEqual(row.beyond_state(), 60 * MIB)
        self.assertEqual(row.activations(), 50 * MIB)

    def test_frontier_has_what_nothing_beats(self):
        on_it = [row.point.way for row in frontier.frontier(rows())]
        self.assertEqual(on_it, ["spool-frontier", "spool", "compiled"])

    def test_equal_points_are_on_it_once(self):
        same = [frontier.Row(points.Point(CELL, way), step_ms=5, memory=7) for way in ("eager", "compiled")]
        self.assertEqual(len(frontier.frontier(same)), 1)

    def test_one_failure_of_two_is_a_failure(self):
        point, numbers = stored("spool", 10, 5, arena=3)
        again = points.Point(CELL, "spool", again=True)
        (found,) = frontier.rows_by_cell(results_of((point, numbers), (again, {"error": "no"})).data).values()
        self.assertEqual([row.error for row in found], ["no"])

    def test_beside_is_the_least_memory_at_no_more_time(self):
        found = {pair.peer.point.way: pair for pair in frontier.beside(rows())}
        self.assertEqual(found.keys(), {"eager", "checkpoint", "compiled"})
        chosen = {way: (pair.spool.point.way, pair.as_fast()) for way, pair in found.items()}
        self.assertEqual(chosen["eager"], ("spool", True))
        self.assertEqual(chosen["checkpoint"], ("spool-frontier", True))
        self.assertEqual(chosen["compiled"], ("spool", False))
        self.assertAlmostEqual(found["checkpoint"].beyond_state(), 0.3)
        self.assertAlmostEqual(found["checkpoint"].activations(), 20 / 30)
        self.assertAlmostEqual(found["eager"].time(), 10.5 / 11)

    def test_on_a_gpu_memory_is_what_was_allocated(self):
        cell = points.Cell("gpt2-tiny", "f32", 2, 64, "cuda", 2)
        at = {"step_ms": 1, "processor_ms": 1, "process_peak_bytes": 9, "steps_peak_bytes": 9}
        results = results_of(
            (points.Point(cell, "spool"), at | {"arena_peak_bytes": 5}),
            (points.Point(cell, "eager"), at | {"peak_allocated_bytes": 6, "peak_reserved_bytes": 8}),
        )
        (found,) = frontier.rows_by_cell(results.data).values()
        self.assertEqual([(row.memory, row.reserved) for row in found], [(5, None), (6, 8)])
        self.assertIn("| allocated, MiB | reserved |", tables.markdown(results.data))


class Tables(unittest.TestCase):
    def test_tables_have_rows_reasons_and_drift(self):
        text = tables.markdown(joint_results().data)
        self.assertIn("## gpt2-tiny, f32, B 2, T 64, cpu, 2 threads", text)
        line = next(line for line in text.splitlines() if line.startswith("| Spool, no budget |"))
        memory = f"{STATE / MIB + 60:.1f}"
        for cell in ("yes", "10.5", "21.0", "12190", memory, "60.0", "50.0", "1.100"):
            self.assertIn(f" {cell} |", line)
        self.assertIn("- PyTorch, auto-chunker: PyTorch 2.0 has no auto_chunker", text)
        self.assertIn("took +10 % the second time", text)
        self.assertIn("| PyTorch, checkpoint | Spool, ", text)
        self.assertIn("(none is as fast)", text)
        widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
        self.assertEqual(widths, {13, 7})

    def test_summary_says_the_same(self):
        ((name, found),) = tables.summary(joint_results().data).items()
        self.assertEqual(name, CELL.name())
        self.assertEqual(found["frontier"][-1], points.Point(CELL, "compiled").key())
        checkpoint = next(pair for pair in found["beside"] if pair["peer"].endswith(": checkpoint"))
        self.assertAlmostEqual(checkpoint["peak_less_state"], 0.3)
        json.dumps(found)


class ResultsFile(Folder):
    def test_points_are_kept_and_conditions_are_not_mixed(self):
        file = self.folder / "out.json"
        point, numbers = stored("eager", 1, 2)
        first = points.Results(file)
        first.set_conditions({"spool": "a"})
        first.add(point, numbers)
        second = points.Results(file)
        self.assertTrue(second.has(point))
        self.assertFalse(second.has(points.Point(CELL, "compiled")))
        second.set_conditions({"spool": "a", "torch": "2"})
        with self.assertRaisesRegex(ValueError, "measured with spool a, and this is b: say --again"):
            second.set_conditions({"spool": "b"})
        second.forget()
        second.set_conditions({"spool": "b"})
        self.assertFalse(second.has(point))

    def test_another_file_is_refused(self):
        file = self.folder / "out.json"
        file.write_text('{"format": "else"}')
        with self.assertRaisesRegex(ValueError, "not a file of this program"):
            points.Results(file)


class Processes(Folder):
    def test_a_log_is_read_as_it_grows(self):
        file = self.folder / "log"
        log = spool_side.Log(file)
        self.assertEqual(log.steps(), [])
        file.write_text('{"format": "spool-run"}\n{"step": 1, "loss": 2}\n{"step": 2, "lo')
        self.assertEqual([step["step"] for step in log.steps()], [1])
        with file.open("a") as more:
            more.write('ss": 3}\n{"step": 2, "corrected_step_ms": 1}\n')
        self.assertEqual([step["loss"] for step in log.steps()], [2, 3])

    def test_a_time_limit_ends_a_program_and_its_children(self):
        marker = self.folder / "pid"
        with self.assertRaisesRegex(processes.Failed, "time limit of 1 s"):
            with processes.Child(["sh", "-c", f"sleep 100 & echo $! >{marker}; wait"], 1) as child:
                child.wait()
        pid = int(marker.read_text())
        for _ in range(500):  # a child of a child is reaped by another process
            status = pathlib.Path(f"/proc/{pid}/stat")
            if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.01)
        self.fail("its child still runs")

    def test_reasons_are_a_sentence(self):
        self.assertEqual(processes.sentence("\n  raised:\n   No   compiler\nmore"), "raised: No compiler")
        self.assertEqual(processes.ending(1, "Traceback\nValueError: no\n"), "ValueError: no")
        self.assertIn("SIGKILL", processes.ending(-9, "noise"))
        self.assertIn("status 3", processes.ending(3, ""))

    def test_memory_and_processor_time_are_those_of_the_process(self):
        before = processes.processor_seconds(os.getpid())
        taken = bytearray(os.urandom(1)) * (64 * MIB)
        self.assertGreaterEqual(processes.memory_of(os.getpid(), "VmHWM"), len(taken))
        while time.process_time() < before + 0.05:
            pass
        self.assertGreater(processes.processor_seconds(os.getpid()), before)

    def test_the_last_line_of_pytorch_has_the_numbers(self):
        self.assertEqual(torch_side.parse('warning\n{"step_ms": 1}\n'), {"step_ms": 1})
        self.assertIsNone(torch_side.parse("warning\n"))
        self.assertIsNone(torch_side.parse(""))
        with self.assertRaisesRegex(processes.Failed, "out of memory"):
            torch_side.parse('{"error": "out of memory"}')


class Arguments(unittest.TestCase):
    def refused(self, word, *words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            sweep.parse(words)
        self.assertIn(word, said.getvalue())

    def test_lists(self):
        found = sweep.parse(["--shapes", "4x64,1x1024", "--dtypes", "f32,bf16", "--ways", "spool,eager"])
        self.assertEqual((found.shapes, found.ways), ([(4, 64), (1, 1024)], ["spool", "eager"]))
        self.assertEqual(found.fractions[0], 0.1)
        self.assertEqual(sweep.parse(["--self-test"]).model, "gpt2-tiny")

    def test_what_cannot_be_is_refused(self):
        self.refused("4x is not rows x tokens", "--shapes", "4x")
        self.refused("lazy is none of spool", "--ways", "spool,lazy")
        self.refused("2 is not a number from 0 to 1", "--fractions", "0.5,2")
        self.refused("has 128 tokens at most", "--model", "gpt2-tiny", "--shapes", "1x256")
        self.refused("--warm-up is 1 at least", "--warm-up", "0")


# Stands in for a python with PyTorch: it knows one way, takes too long in one, and fails in the others.
STAND_IN = """#!/bin/sh
case "$*" in
*torch.__version__*) echo 9.9 ;;
*"--way eager "*)
  echo a warning
  echo '{"step_ms": 5000, "processor_ms": 9, "steps_peak_bytes": 900000000,
         "process_peak_bytes": 900000000, "before_model_bytes": 500000000}' | tr -d '\\n' ;;
*"--way compiled "*) sleep 100 ;;
*) echo "RuntimeError: not today" >&2; exit 1 ;;
esac
"""


class WholeSweep(Folder):
    def setUp(self):
        super().setUp()
        self.python = self.folder / "python"
        self.python.write_text(STAND_IN)
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)
        self.json = self.folder / "out.json"

    def sweep(self, *words, ways="spool,spool-frontier,eager,checkpoint"):
        fixed = ["--spool", PROGRAM, "--python", self.python, "--model", "gpt2-tiny", "--shapes", "2x64"]
        fixed += ["--threads", 2, "--budgets", 1, "--steps", 3, "--ways", ways, "--out", self.json]
        command = [sys.executable, PEERS / "sweep.py", *fixed, *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    def points(self):
        return {(p["way"], p["again"]): p for p in json.loads(self.json.read_text())["points"].values()}

    def test_spool_and_a_peer(self):
        status, out, errors = self.sweep()
        self.assertEqual(status, 0, errors)
        self.assertIn("6 points, about", errors)
        self.assertEqual(self.json.with_suffix(".md").read_text(), out.removesuffix("\n"))
        found = self.points()
        for way in ("spool", "spool-frontier"):
            for again in (False, True):
                point = found[way, again]
                self.assertNotIn("error", point)
                self.assertEqual(point["arena_peak_bytes"], point["foretold_peak_bytes"])
                self.assertGreaterEqual(len(point["steps_ms"]), 3)
                self.assertGreater(point["process_peak_bytes"], 1 << 24)
                self.assertGreaterEqual(point["process_peak_bytes"], point["steps_peak_bytes"] or 0)
        budget = found["spool-frontier", False]
        self.assertLessEqual(budget["arena_peak_bytes"], budget["setting"])
        self.assertLess(budget["arena_peak_bytes"], found["spool", False]["arena_peak_bytes"])
        self.assertEqual(found["checkpoint", False]["error"], "RuntimeError: not today")
        self.assertIn("PyTorch, checkpoint: RuntimeError: not today", out)
        self.assertRegex(out, r"\| PyTorch, eager \| Spool, (no budget|\d+\.\d MiB) \| \d+ % \|")

    def test_it_goes_on_where_it_stopped(self):
        self.assertEqual(self.sweep(ways="eager,checkpoint")[0], 0)
        first = self.points()
        status, out, errors = self.sweep(ways="eager,checkpoint")
        self.assertIn("0 points", errors)
        self.assertIn("PyTorch, eager", out)
        self.assertEqual(self.points(), first)
        self.assertIn("1 point,", self.sweep("--again", "failed", ways="eager,checkpoint")[2])
        self.assertIn("2 points", self.sweep("--again", ways="eager,checkpoint")[2])
        status, _, errors = self.sweep("--warm-up", 6, ways="eager")
        self.assertEqual(status, 1)
        self.assertIn("was measured with warm-up 5, and this is 6", errors)

    def test_a_point_that_takes_too_long_is_a_row(self):
        status, out, errors = self.sweep("--limit", 4, ways="compiled")
        self.assertEqual(status, 0, errors)
        self.assertIn("PyTorch, compiled: it was ended after the time limit of 4 s", out)

    def test_what_it_runs_ends_with_it(self):
        fixed = ["--python", self.python, "--model", "gpt2-tiny", "--shapes", "2x64", "--ways", "compiled"]
        command = [sys.executable, PEERS / "sweep.py", "--spool", PROGRAM, *fixed]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        stand_in = []
        while not stand_in:
            self.assertIsNone(process.poll())
            found = [pathlib.Path(f"/proc/{pid}/cmdline") for pid in children.read_text().split()]
            with contextlib.suppress(OSError):
                stand_in = [line.parent for line in found if b"torch_point" in line.read_bytes()]
            time.sleep(0.01)
        process.terminate()
        self.assertEqual(process.wait(30), 130)
        self.assertFalse(stand_in[0].exists())

    def test_a_dry_run_measures_nothing(self):
        status, out, _ = self.sweep("--dry-run", ways="spool,eager")
        self.assertEqual(status, 0)
        self.assertEqual(len(out.splitlines()), 3)
        self.assertEqual(self.points(), {})

    def test_a_missing_program_is_a_sentence(self):
        status, _, errors = self.sweep("--spool", self.folder / "none")
        self.assertEqual(status, 1)
        self.assertRegex(errors, r"^sweep\.py: .*none does not run \(No such file or directory\); --spool")


if __name__ == "__main__":
    main()
