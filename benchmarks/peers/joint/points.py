"""What is measured: cells, which are a model, a type and a shape, and points, the ways to train one."""

import dataclasses
import json
import time
from dataclasses import dataclass

from models import MODELS

MIB = 2**20
STATE_BYTES = 16  # a parameter: it, its gradient and AdamW's state, with masters if it is bf16
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

    def tokens(self):
        return self.batch * self.seq

    def state_bytes(self):
        return STATE_BYTES * MODELS[self.model].parameters()


@dataclass(frozen=True)
class Point:
    """setting: bytes of Spool's budget, or PyTorch's activation_memory_budget.

    Spool is measured twice, before PyTorch and again after it.
    """

    cell: Cell
    way: str
    setting: float | None = None
    again: bool = False

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
        return f"{self.cell.name()}: {self.way}{setting}{', again' * self.again}"


def spread(values, count):
    """So many of the values, the first and the last among them, evenly spread."""
    if len(values) <= count:
        return list(values)
    if count == 1:
        return [values[0]]
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def budgets_of(plan, count):
    """Bytes of so many different plans of Spool's frontier, fewer than those of keeping all."""
    peaks = {at["foretold_peak_bytes"] for at in plan.get("frontier", [])}
    return spread(sorted(peak for peak in peaks if peak < plan["foretold_peak_bytes"]), count)


def points_of(cell, ways, budgets, fractions):
    """Spool's points, PyTorch's, Spool's again."""
    spool = [Point(cell, "spool")] * ("spool" in ways)
    if "spool-frontier" in ways:
        spool += [Point(cell, "spool-frontier", budget) for budget in budgets]
    peers = []
    for way in ways:
        if way == "compiled-budgets":
            peers += [Point(cell, way, fraction) for fraction in fractions]
        elif not way.startswith("spool"):
            peers.append(Point(cell, way))
    if not peers:
        return spool
    return spool + peers + [dataclasses.replace(point, again=True) for point in spool]


class Results:
    """The points so far, in a JSON file that is complete at any time."""

    def __init__(self, file):
        self.file = file
        self.data = {"format": "spool-peers", "format_version": 1, "plans": {}, "points": {}}
        if file and file.exists():
            self.data = json.loads(file.read_text())
            if self.data.get("format") != "spool-peers":
                raise ValueError(f"{file} is not a file of this program; name another --out")

    def set_conditions(self, conditions):
        """Refuses to mix points that were measured under other conditions."""
        old = self.data.setdefault("conditions", {})
        for name, value in conditions.items():
            if old.get(name, value) != value:
                raise ValueError(
                    f"{self.file} was measured with {name} {old[name]}, and this is {value}:"
                    " say --again to measure all anew, or name another --out"
                )
        old.update(conditions)

    def forget(self):
        self.data |= {"plans": {}, "points": {}, "conditions": {}}

    def has(self, point):
        return point.key() in self.data["points"]

    def add(self, point, numbers):
        """Numbers of a point, or its error."""
        self.data["points"][point.key()] = {
            **dataclasses.asdict(point.cell),
            "way": point.way,
            "setting": point.setting,
            "again": point.again,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **numbers,
        }
        self.save()

    def save(self):
        if self.file:
            part = self.file.with_name(self.file.name + ".part")
            part.write_text(json.dumps(self.data, indent=2) + "\n")
            part.replace(self.file)
