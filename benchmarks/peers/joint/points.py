"""Cells, each a model, a type and a shape, and points, which are ways to train a cell's model."""

from collections import namedtuple
from dataclasses import dataclass

from models import MODELS

MIB = 2**20
STATE_BYTES = 16  # a parameter: f32 4 + gradient 4 + two moments 8, bf16 2 + 2 + master 4 + moments 8
RETURNED_STEPS = 2  # of PyTorch's on a cpu, in which freed memory goes back to the system
WAYS = [
    "spool",
    "spool-frontier",
    "eager",
    "checkpoint",
    "save-on-cpu",
    "compiled",
    "compiled-budgets",
    "auto-chunker",
]


Counts = namedtuple("Counts", ["warm_up", "steps"])


@dataclass(frozen=True)
class Cell:
    model: str
    dtype: str
    batch: int
    seq: int
    device: str
    threads: int

    def name(self):
        return (
            f"{self.model}, {self.dtype}, B {self.batch}, T {self.seq}, {self.device},"
            f" {self.threads} thread{'s' * (self.threads != 1)}"
        )

    def program(self):
        """What the memory of a program without a model depends on."""
        return f"{self.dtype}, {self.device}, {self.threads} threads"

    def tokens(self):
        return self.batch * self.seq

    def state_bytes(self):
        return STATE_BYTES * MODELS[self.model].parameters()


@dataclass(frozen=True)
class Point:
    """setting: bytes of Spool's budget, or PyTorch's activation_memory_budget."""

    cell: Cell
    way: str
    setting: float | None = None

    def is_spool(self):
        return self.way.startswith("spool")

    def label(self):
        if self.way == "spool":
            return "Spool, no budget"
        if self.is_spool():
            return f"Spool, {self.setting / MIB:.1f} MiB"
        name = self.way if self.setting is None else f"compiled, budget {self.setting:g}"
        return f"PyTorch, {name}"

    def key(self):
        setting = "" if self.setting is None else f" {self.setting}"
        return f"{self.cell.name()}: {self.way}{setting}"


def spread(values, count):
    """A number of the values, evenly spread, with the first and the last."""
    if len(values) <= count:
        return list(values)
    if count == 1:
        return [values[0]]
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def budgets_of(plan, count):
    """Bytes of a number of different plans of Spool's frontier, below those of keeping all."""
    peaks = {at["foretold_peak_bytes"] for at in plan.get("frontier", [])}
    return spread(sorted(peak for peak in peaks if peak < plan["foretold_peak_bytes"]), count)


def points_of(cell, ways, budgets, fractions):
    """Spool's points, and PyTorch's."""
    spool = [Point(cell, "spool")] * ("spool" in ways)
    if "spool-frontier" in ways:
        spool += [Point(cell, "spool-frontier", budget) for budget in budgets]
    peers = []
    for way in ways:
        if way == "compiled-budgets":
            peers += [Point(cell, way, fraction) for fraction in fractions]
        elif not way.startswith("spool"):
            peers.append(Point(cell, way))
    return spool, peers
