"""How benchmarks/peers/sweep.py evaluates its numbers: due points, rows, frontier and tables."""

import json
import pathlib
import sys
import unittest

from commands import Folder, main

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "peers"))

from joint import frontier, points, tables
from joint.results import Results

CELL = points.Cell("gpt2-tiny", "f32", 2, 64, "cpu", 2)
STATE = CELL.state_bytes()
MIB = points.MIB


def stored(way, step_ms, memory, setting=None, turn=0, arena=None, own=None):
    """A point's entry in a file of results."""
    numbers = {"step_ms": step_ms, "processor_ms": 2 * step_ms, "steps_peak_bytes": memory}
    numbers |= {"process_peak_bytes": memory + MIB}
    if arena is not None:
        numbers |= {"arena_peak_bytes": arena, "foretold_peak_bytes": arena}
    else:
        numbers |= {"returned_peak_bytes": memory, "before_model_bytes": own, "tensors_peak_bytes": memory - own}
    return points.Point(CELL, way, setting), turn, numbers


def results_of(*found):
    results = Results(None)
    results.data["programs"] = {CELL.program(): 10 * MIB}
    for point, turn, numbers in found:
        results.add(point, turn, numbers)
    return results


def both_sides():
    """Spool is faster in less memory than eager, and no Spool point is as fast as compiled."""
    state, budget = STATE, STATE + 20 * MIB
    return results_of(
        stored("spool", 10, state + 60 * MIB, arena=state + 50 * MIB),
        stored("spool-frontier", 12, state + 30 * MIB, setting=budget, arena=budget),
        stored("eager", 11, state + 120 * MIB, own=70 * MIB),
        stored("checkpoint", 13, state + 100 * MIB, own=70 * MIB),
        stored("compiled", 9, state + 200 * MIB, own=90 * MIB),
        (points.Point(CELL, "auto-chunker"), 0, {"error": "PyTorch 2.0 has no auto_chunker"}),
        stored("spool", 11, state + 58 * MIB, turn=1, arena=state + 50 * MIB),
        stored("spool-frontier", 12, state + 30 * MIB, setting=budget, turn=1, arena=budget),
    )


def rounds(results):
    (found,) = frontier.rounds_by_cell(results.data).values()
    return found


def rows():
    (found,) = rounds(both_sides())
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

    def test_a_way_is_a_point_for_each_of_its_settings(self):
        chosen = ["spool-frontier", "eager", "compiled-budgets", "spool"]
        spool, peers = points.points_of(CELL, chosen, [7, 8], [0.1, 1])
        ways = [(point.way, point.setting) for point in spool]
        self.assertEqual(ways, [("spool", None), ("spool-frontier", 7), ("spool-frontier", 8)])
        ways = [(point.way, point.setting) for point in peers]
        self.assertEqual(ways, [("eager", None), ("compiled-budgets", 0.1), ("compiled-budgets", 1)])
        self.assertEqual(len({point.key() for point in spool + peers}), 6)

    def test_parameters_are_those_of_gpt2(self):
        self.assertEqual(points.MODELS["gpt2-124m"].parameters(), 124_475_904)  # with 50304 tokens


class Turns(unittest.TestCase):
    """The points that are due, measured one after another until this many are done."""

    def setUp(self):
        self.results = Results(None)

    def due(self, ways, retry=False):
        found = [points.Point(CELL, way) for way in ways.split()]
        sides = [[p for p in found if p.is_spool() == is_spool] for is_spool in (True, False)]
        return self.results.due(CELL, *sides, retry)

    def measure(self, ways, most=None, failing=(), retry=False):
        """The measurements, as `way turn`."""
        done = self.due(ways, retry)[:most]
        for point, turn in done:
            self.results.add(point, turn, {"error": "no"} if point.way in failing else {"step_ms": 1})
        return " ".join(f"{point.way} {turn}" for point, turn in done)

    def test_spool_is_measured_before_and_after(self):
        self.assertEqual(self.measure("spool eager compiled"), "spool 0 eager 0 compiled 0 spool 1")
        self.assertEqual(self.measure("spool eager compiled"), "")

    def test_more_peers_have_spool_beside_them(self):
        self.measure("spool eager")
        self.assertEqual(self.measure("spool eager compiled"), "spool 2 compiled 2 spool 3")
        self.assertEqual(self.measure("spool eager compiled"), "")

    def test_what_is_left_after_an_interruption_has_spool_beside_it(self):
        self.measure("spool eager compiled", most=2)
        self.assertEqual(self.measure("spool eager compiled"), "spool 1 compiled 1 spool 2")
        self.measure("spool save-on-cpu", most=2)
        self.assertEqual(self.measure("spool save-on-cpu"), "spool 4")  # the turn after it

    def test_peers_are_measured_anew_where_spool_was_not_beside_them(self):
        self.measure("spool eager")
        self.assertEqual(
            self.measure("spool spool-frontier eager"),
            "spool 2 spool-frontier 2 eager 2 spool 3 spool-frontier 3",
        )
        self.assertEqual(self.measure("eager"), "")
        self.assertEqual(self.measure("spool eager"), "")

    def test_failures_are_measured_again_with_spool_beside_them(self):
        self.measure("spool eager compiled", failing=["compiled"])
        self.assertEqual(self.measure("spool eager compiled"), "")
        again = self.measure("spool eager compiled", retry=True)
        self.assertEqual(again, "spool 2 compiled 2 spool 3")

    def test_spool_alone_is_measured_once(self):
        self.assertEqual(self.measure("spool", most=1), "spool 0")
        self.assertEqual(self.measure("spool spool-frontier"), "spool-frontier 0")
        self.assertEqual(self.measure("spool spool-frontier"), "")

    def test_peers_are_compared_with_the_turns_around_them(self):
        ours = [stored("spool", ms, STATE, turn=turn, arena=STATE) for turn, ms in enumerate([10, 12, 14])]
        peers = [stored("eager", 20, STATE, own=0), stored("compiled", 20, STATE, turn=1, own=0)]
        first, second = rounds(results_of(*ours, *peers))
        for found, way, step_ms, drift in ((first, "eager", 11, 1.2), (second, "compiled", 13, 14 / 12)):
            self.assertEqual({row.point.way for row in found}, {"spool", way})
            spool = next(row for row in found if row.point.way == "spool")
            self.assertEqual((spool.step_ms, spool.drift), (step_ms, drift))
        text = tables.markdown(results_of(*ours, *peers).data)
        self.assertIn("Measured in 2 rounds", text)
        self.assertNotIn("Measured in", tables.markdown(both_sides().data))

    def test_spool_alone_has_a_table_when_it_is_the_last(self):
        ours = [stored("spool", 10, STATE, turn=turn, arena=STATE) for turn in (0, 1)]
        more = stored("spool-frontier", 10, STATE, setting=7, turn=2, arena=STATE)
        first, second = rounds(results_of(*ours, stored("eager", 20, STATE, own=0), more))
        self.assertEqual([row.point.way for row in second], ["spool-frontier"])
        self.assertEqual({row.point.way for row in first}, {"spool", "eager"})


class Frontier(unittest.TestCase):
    def test_both_measurements_are_one_row(self):
        row = next(row for row in rows() if row.point.way == "spool")
        self.assertEqual((row.step_ms, row.processor_ms), (10.5, 21))
        self.assertEqual(row.memory, STATE + 60 * MIB)
        self.assertAlmostEqual(row.drift, 1.1)
        self.assertEqual(row.beyond_state(), 60 * MIB)
        self.assertEqual(row.program, 10 * MIB)
        self.assertEqual(row.activations(), 50 * MIB)
        self.assertEqual(row.tensors, STATE + 50 * MIB)

    def test_frontier_has_what_nothing_beats(self):
        on_it = [row.point.way for row in frontier.frontier(rows())]
        self.assertEqual(on_it, ["spool-frontier", "spool", "compiled"])

    def test_equal_points_are_on_it_once(self):
        same = [frontier.Row(points.Point(CELL, way), step_ms=5, memory=7) for way in ("eager", "compiled")]
        self.assertEqual(len(frontier.frontier(same)), 1)

    def test_one_failure_of_two_is_a_failure(self):
        again = (points.Point(CELL, "spool"), 1, {"error": "no"})
        (found,) = rounds(results_of(stored("spool", 10, 5, arena=3), stored("eager", 1, 2, own=1), again))
        self.assertEqual([row.error for row in found], [None, "no"])

    def test_memory_of_pytorch_is_that_with_freed_blocks_returned(self):
        point, turn, numbers = stored("eager", 1, 100, own=10)
        kept = {**numbers, "steps_peak_bytes": 130}
        for returned, memory in ((100, 100), (140, 130), (None, 130)):
            ((row,),) = rounds(results_of((point, turn, {**kept, "returned_peak_bytes": returned})))
            self.assertEqual((row.memory, row.kept, row.tensors), (memory, 130, 90))

    def test_without_the_memory_of_the_program_its_column_is_empty(self):
        results = both_sides()
        results.data["programs"] = {}
        (found,) = rounds(results)
        spool = next(row for row in found if row.point.way == "spool")
        self.assertEqual((spool.program, spool.activations()), (None, None))
        self.assertIn("less program", tables.markdown(results.data))

    def test_beside_is_the_least_memory_at_no_more_time(self):
        found = {pair.peer.point.way: pair for pair in frontier.beside(rows())}
        self.assertEqual(found.keys(), {"eager", "checkpoint", "compiled"})
        chosen = {way: (pair.spool.point.way, pair.as_fast()) for way, pair in found.items()}
        self.assertEqual(chosen["eager"], ("spool", True))
        self.assertEqual(chosen["checkpoint"], ("spool-frontier", True))
        self.assertEqual(chosen["compiled"], ("spool", False))
        self.assertAlmostEqual(found["checkpoint"].beyond_state(), 0.3)
        self.assertAlmostEqual(found["checkpoint"].activations(), 20 / 30)
        self.assertAlmostEqual(found["checkpoint"].tensors(), (STATE + 20 * MIB) / (STATE + 30 * MIB))
        self.assertAlmostEqual(found["eager"].time(), 10.5 / 11)

    def test_on_a_gpu_memory_is_what_was_allocated(self):
        cell = points.Cell("gpt2-tiny", "f32", 2, 64, "cuda", 2)
        at = {"step_ms": 1, "processor_ms": 1, "process_peak_bytes": 9, "steps_peak_bytes": 9}
        at["before_model_bytes"] = 3
        results = results_of(
            (points.Point(cell, "spool"), 0, at | {"arena_peak_bytes": 5}),
            (points.Point(cell, "eager"), 0, at | {"peak_allocated_bytes": 6, "peak_reserved_bytes": 8}),
        )
        (found,) = rounds(results)
        self.assertEqual([(row.memory, row.reserved) for row in found], [(5, None), (6, 8)])
        text = tables.markdown(results.data)
        self.assertIn("| allocated, MiB | reserved |", text)
        self.assertIn("- *allocated*:", text)
        self.assertNotIn("program", text)


class Tables(unittest.TestCase):
    def test_tables_have_rows_reasons_and_drift(self):
        text = tables.markdown(both_sides().data)
        self.assertIn("## gpt2-tiny, f32, B 2, T 64, cpu, 2 threads", text)
        line = next(line for line in text.splitlines() if line.startswith("| Spool, no budget |"))
        memory = f"{STATE / MIB + 60:.1f}"
        for cell in ("yes", "10.5", "21.0", "12190", memory, "10.0", "60.0", "50.0", "1.100"):
            self.assertIn(f" {cell} |", line)
        self.assertIn("- PyTorch, auto-chunker: PyTorch 2.0 has no auto_chunker", text)
        self.assertIn("took +10 % the second time", text)
        self.assertIn("| PyTorch, checkpoint | Spool, ", text)
        self.assertIn("(none is as fast)", text)
        widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
        self.assertEqual(widths, {14, 8})

    def test_every_column_is_explained(self):
        text = tables.markdown(both_sides().data)
        titles = next(line for line in text.splitlines() if line.startswith("| point |"))
        named = ", ".join(line.split("*")[1] for line in text.splitlines() if line.startswith("- *"))
        named = [*named.split(", "), "point"]
        for title in titles.strip("| ").split(" | "):
            self.assertIn(title.removesuffix(", MiB"), named)
        self.assertIn("in f32 parameters 4, gradients 4 and two moments 8.", text)
        self.assertNotIn("masters", text)

    def test_what_is_said_is_of_the_file(self):
        results = both_sides()
        self.assertNotIn("libraries are a part", tables.markdown(results.data))
        results.set_conditions({"torch built": "for CUDA 13.2", "steps": 7, "warm-up": 5})
        text = tables.markdown(results.data)
        self.assertIn("built for CUDA 13.2, whose libraries are a part", text)
        self.assertIn("the median of 7 steps at least, after 5", text)
        alone = tables.markdown(results_of(stored("spool", 1, 2, arena=1)).data)
        self.assertNotIn("The table below it", alone)

    def test_it_is_said_whether_auto_chunker_cut_anything(self):
        point, turn, numbers = stored("auto-chunker", 1, 2, own=1)
        for chunks, said in ((0, "it cut nothing"), (1, "it cut 1 graph"), (None, "does not tell whether")):
            text = tables.markdown(results_of((point, turn, numbers | {"auto_chunks": chunks})).data)
            self.assertIn(said, text)

    def test_summary_says_the_same(self):
        ((name, (found,)),) = tables.summary(both_sides().data).items()
        self.assertEqual(name, CELL.name())
        self.assertEqual(found["frontier"][-1], points.Point(CELL, "compiled").key())
        checkpoint = next(pair for pair in found["beside"] if pair["peer"].endswith(": checkpoint"))
        self.assertAlmostEqual(checkpoint["peak_less_state"], 0.3)
        json.dumps(found)


class ResultsFile(Folder):
    def test_points_are_kept_and_conditions_are_not_mixed(self):
        file = self.folder / "out.json"
        point, turn, numbers = stored("eager", 1, 2, own=1)
        first = Results(file)
        first.set_conditions({"spool": "a"})
        first.add(point, turn, numbers)
        second = Results(file)
        self.assertEqual(second.find(point)["step_ms"], 1)
        self.assertIsNone(second.find(points.Point(CELL, "compiled")))
        second.set_conditions({"spool": "a", "torch": "2"})
        with self.assertRaisesRegex(ValueError, "measured with spool a, and this is b: say --again"):
            second.set_conditions({"spool": "b"})
        anew = Results(file, anew=True)
        anew.set_conditions({"spool": "b"})
        self.assertIsNone(anew.find(point))

    def test_another_file_is_refused(self):
        file = self.folder / "out.json"
        for text in ('{"format": "else"}', "[]"):
            file.write_text(text)
            for anew in (False, True):
                with self.assertRaisesRegex(ValueError, "not a file of this program"):
                    Results(file, anew)

    def test_a_file_of_another_version_is_refused_or_replaced(self):
        file = self.folder / "out.json"
        file.write_text('{"format": "spool-peers", "format_version": 1, "points": {}}')
        with self.assertRaisesRegex(ValueError, "has version 1, and this program writes 2"):
            Results(file)
        self.assertEqual(Results(file, anew=True).data["format_version"], 2)


if __name__ == "__main__":
    main()
