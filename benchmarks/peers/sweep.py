"""Spool and PyTorch beside each other: peak memory and time of a GPT-2 step, as one table and frontier.

Same model, shape, type, threads and optimizer on both sides, and products of f32 without TF32.  Both keep
16 bytes a parameter: in f32 the parameter 4, its gradient 4 and AdamW's moments 8; in bf16 the parameter
2, its gradient 2, an f32 master 4 and the moments 8.  Each point is a fresh process with a time limit: a
point that fails is a row with its reason.  Spool's points are measured before PyTorch's and again after
them; the ratio of the two times shows how far the machine drifted.  The ways:
  spool             `spool train` without a budget
  spool-frontier    with budgets from `spool plan --frontier`, --budgets of them
  eager, checkpoint, save-on-cpu, compiled, compiled-budgets, auto-chunker: see torch_point.py

On a cpu memory is the most resident memory in the steps after the warm-up, PyTorch's with freed blocks
given back to the system.  On a GPU it is what was allocated.  --out is written after each point, with the
tables beside it in Markdown; run again, the program goes on where it was stopped.  Points of PyTorch's
that are left then, or that more --ways ask for, have Spool's measured anew before and after them, and a
table of their own.

  python3 benchmarks/peers/sweep.py --self-test
  python3 benchmarks/peers/sweep.py --model gpt2-124m --shapes 4x64,4x256,1x1024 --dtypes f32,bf16 \\
    --ways spool,eager,compiled --threads 2 --out peers.json
"""

import argparse
import os
import pathlib
import re
import signal
import sys
import time

from joint import machine, spool_side, tables, torch_side
from joint.points import RETURNED_STEPS, WAYS, Cell, Counts, budgets_of, points_of
from joint.processes import Failed, sentence
from joint.results import Results, key_of
from models import MODELS

SLOWER = {"checkpoint": 1.6, "compiled-budgets": 1.5}  # a guess of a way's time over Spool's
OTHERS_SLOWER = 1.3
COMPILED = ["compiled", "compiled-budgets", "auto-chunker"]
COMPILATION, START = 100, 8  # seconds
FRACTIONS = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1"


def expected_seconds(point, plan, counts):
    """About how long a point takes."""
    foretold = plan.get("foretold_step_ms", 1000) / 1e3
    if point.is_spool():
        return 2 + foretold * (counts.warm_up + counts.steps + 1)
    untimed = 1 + RETURNED_STEPS + 1 if point.cell.device == "cpu" else 0
    steps = untimed + counts.warm_up + counts.steps
    seconds = foretold * SLOWER.get(point.way, OTHERS_SLOWER) * steps
    return START + seconds + COMPILATION * (point.way in COMPILED)


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def shape(text):
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is not rows x tokens, such as 4x256")
    return int(match[1]), int(match[2])


def list_of(kind, known=None):
    """A comma-separated list of such values, for argparse."""

    def parse(text):
        values = [kind(word) for word in text.split(",")]
        for value in values:
            if known is not None and value not in known:
                raise argparse.ArgumentTypeError(f"{value} is none of {', '.join(known)}")
        return values

    return parse


def fraction(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return value


def parse(words=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--spool", default="build/release/spool", help="the program spool")
    add("--python", help="a python with PyTorch; by default that of an environment made for it")
    add("--venv", type=pathlib.Path, default=torch_side.default_environment(), help="that environment")
    add("--model", default="gpt2-124m", choices=MODELS)
    add("--shapes", type=list_of(shape), default="4x256", help="rows x tokens of a step, such as 4x64,1x1024")
    add("--dtypes", type=list_of(str, ["f32", "bf16"]), default="f32")
    add("--ways", type=list_of(str, WAYS), default=",".join(WAYS))
    add("--budgets", type=int, default=5, help="points of Spool's frontier")
    add("--fractions", type=list_of(fraction), default=FRACTIONS, help="of activation_memory_budget")
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--threads", type=int, default=len(os.sched_getaffinity(0)))
    add("--warm-up", type=int, default=5, help="steps that are not measured")
    add("--steps", type=int, default=7, help="steps that are")
    add("--limit", type=float, default=1800, help="seconds a point may take")
    add("--out", type=pathlib.Path, help="a JSON file; the tables go beside it, as .md")
    add("--again", nargs="?", const="all", choices=["all", "failed"], help="measure these anew")
    add("--dry-run", action="store_true", help="print the points and the time they may take")
    add("--self-test", action="store_true", help="gpt2-tiny, a few points of each kind; fails if one does")
    arguments = parser.parse_args(words)
    if arguments.self_test:
        arguments.model, arguments.shapes, arguments.dtypes = "gpt2-tiny", [(2, 64)], ["f32"]
        arguments.budgets, arguments.fractions = 2, [0.5]
    check(parser, arguments)
    return arguments


def check(parser, arguments):
    context = MODELS[arguments.model].context
    if any(seq > context for _, seq in arguments.shapes):
        parser.error(f"a row of {arguments.model} has {context} tokens at most")
    for name in ["budgets", "threads", "warm_up", "steps", "limit"]:
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is 1 at least")
    if arguments.out and arguments.out.suffix == ".md":
        parser.error("--out is the JSON; the tables go beside it")


class Sweep:
    """Measures the points of the arguments that are not in the results."""

    def __init__(self, arguments):
        self.arguments, self.counts = arguments, Counts(arguments.warm_up, arguments.steps)
        self.results = Results(arguments.out, anew=arguments.again == "all")
        has_peers = any(not way.startswith("spool") for way in arguments.ways)
        conditions = {"machine": machine.processor(), "spool": spool_side.version(arguments.spool)}
        if arguments.device == "cuda":
            conditions["GPU"] = machine.gpu()
        conditions |= {"warm-up": arguments.warm_up, "steps": arguments.steps}
        if has_peers and not arguments.dry_run:
            self.python = arguments.python or torch_side.environment(arguments.venv, arguments.device)
            conditions |= torch_side.conditions(self.python)
        self.results.set_conditions(conditions)
        if arguments.dry_run:
            self.results.file = None  # nothing is written

    def cells(self):
        a = self.arguments
        for dtype in a.dtypes:
            for batch, seq in a.shapes:
                yield Cell(a.model, dtype, batch, seq, a.device, a.threads)

    def plan_of(self, cell):
        """Spool's frontier of a cell, from the results if stored; empty if it fails."""
        plans = self.results.data["plans"]
        if cell.name() not in plans:
            try:
                plans[cell.name()] = spool_side.plan(self.arguments.spool, cell, self.arguments.limit)
            except (Failed, ValueError) as e:
                print(f"{cell.name()}: no plan: {e}", file=sys.stderr, flush=True)
                return {}
            self.results.save()
        return plans[cell.name()]

    def measure_program(self, cell):
        """Stores the memory of a Spool process without a model, if it is not known."""
        programs = self.results.data["programs"]
        if cell.device != "cpu" or cell.program() in programs:
            return
        try:
            found = spool_side.program_bytes(self.arguments.spool, cell, self.arguments.limit)
        except (Failed, OSError, ValueError) as e:
            print(f"Spool's own memory: {sentence(str(e))}", file=sys.stderr, flush=True)
            return
        programs[cell.program()] = found
        self.results.save()

    def due(self):
        """The points to measure, their turns, and the seconds each may take."""
        found, retry = [], self.arguments.again == "failed"
        for cell in self.cells():
            plan = self.plan_of(cell)
            budgets = budgets_of(plan, self.arguments.budgets) if plan else []
            spool, peers = points_of(cell, self.arguments.ways, budgets, self.arguments.fractions)
            found += [
                (point, turn, expected_seconds(point, plan, self.counts))
                for point, turn in self.results.due(cell, spool, peers, retry)
            ]
        return found

    def measure(self, point):
        """A point's numbers, or its error."""
        began = time.monotonic()
        try:
            if point.is_spool():
                numbers = spool_side.measure(self.arguments.spool, point, self.counts, self.arguments.limit)
            else:
                numbers = torch_side.measure(self.python, point, self.counts, self.arguments.limit)
        except (Failed, OSError, ValueError, KeyError) as e:
            numbers = {"error": sentence(str(e)) or type(e).__name__}
        return {**numbers, "seconds": time.monotonic() - began}

    def run(self):
        """Measures what is due, and prints the tables; returns whether a point failed."""
        due, failed = self.due(), False
        left = sum(seconds for *_, seconds in due)
        print(f"{len(due)} point{'s' * (len(due) != 1)}, about {duration(left)}", file=sys.stderr, flush=True)
        for i, (point, turn, seconds) in enumerate(due, 1):
            name = key_of(point, turn)
            if self.arguments.dry_run:
                print(f"{name}: about {duration(seconds)}")
                continue
            if point.is_spool():
                self.measure_program(point.cell)
            numbers = self.measure(point)
            failed |= "error" in numbers
            self.results.add(point, turn, numbers)
            self.write()
            left -= seconds
            said = numbers.get("error") or f"{numbers['step_ms']:.1f} ms a step"
            print(
                f"[{i}/{len(due)}] {name}: {said}; {numbers['seconds']:.0f} s, about"
                f" {duration(max(left, 0))} left",
                file=sys.stderr,
                flush=True,
            )
        if not self.arguments.dry_run:
            print(self.write())
        return failed

    def write(self):
        """Saves the results with their tables; returns these."""
        self.results.data["summary"] = tables.summary(self.results.data)
        self.results.save()
        text = tables.markdown(self.results.data)
        if self.arguments.out:
            self.arguments.out.with_suffix(".md").write_text(text)
        return text


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the programs it runs end with it
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        failed = Sweep(arguments).run()
        sys.exit(failed and arguments.self_test)
    except ValueError as e:
        sys.exit(f"sweep.py: {e}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
