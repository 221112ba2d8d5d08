"""Stores results in a JSON file that is complete at any time, and lists what is left to measure.

The machine may change while a sweep runs, and between two sweeps, so PyTorch's points are compared
with Spool's that were measured just before and after them.  In a cell Spool has turns, numbered from 0:
in each all its points are measured.  A point of PyTorch's is stored with the turn before it; the next
turn is the one after it.
"""

import dataclasses
import json
import time

from joint.points import Cell, Point

VERSION = 2


def point_of(stored):
    """The point of a file's entry."""
    names = [field.name for field in dataclasses.fields(Cell)]
    return Point(Cell(**{name: stored[name] for name in names}), stored["way"], stored["setting"])


def key_of(point, turn):
    return f"{point.key()}, turn {turn}" if point.is_spool() else point.key()


class Results:
    """anew: whether the file's results are replaced."""

    def __init__(self, file, anew=False):
        self.file = file
        self.data = {"format": "spool-peers", "format_version": VERSION}
        self.data |= {"conditions": {}, "plans": {}, "programs": {}, "points": {}}
        if file and file.exists():
            old = json.loads(file.read_text())
            if not isinstance(old, dict) or old.get("format") != "spool-peers":
                raise ValueError(f"{file} is not a file of this program; name another --out")
            if not anew:
                self.data = self.of_this_version(old)

    def of_this_version(self, old):
        version = old.get("format_version")
        if version != VERSION:
            raise ValueError(
                f"{self.file} has version {version}, and this program writes {VERSION}, which measures"
                " more: say --again to measure all anew, or name another --out"
            )
        return old

    def set_conditions(self, conditions):
        """Refuses to mix points that were measured under other conditions."""
        old = self.data["conditions"]
        for name, value in conditions.items():
            if old.get(name, value) != value:
                raise ValueError(
                    f"{self.file} was measured with {name} {old[name]}, and this is {value}:"
                    " say --again to measure all anew, or name another --out"
                )
        old.update(conditions)

    def find(self, point, turn=None):
        """A point's stored result, or None; for Spool's points, that of this turn."""
        return self.data["points"].get(key_of(point, turn))

    def add(self, point, turn, numbers):
        """Numbers of a point, or its error."""
        self.data["points"][key_of(point, turn)] = {
            **dataclasses.asdict(point.cell),
            "way": point.way,
            "setting": point.setting,
            "turn": turn,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **numbers,
        }
        self.save()

    def save(self):
        if self.file:
            part = self.file.with_name(self.file.name + ".part")
            part.write_text(json.dumps(self.data, indent=2) + "\n")
            part.replace(self.file)

    def turns(self, cell):
        """Spool's turns in a cell, and those that precede PyTorch's points."""
        spool, peers = set(), set()
        for stored in self.data["points"].values():
            point = point_of(stored)
            if point.cell == cell:
                (spool if point.is_spool() else peers).add(stored["turn"])
        return spool, peers

    def due(self, cell, spool, peers, retry):
        """What is left to measure of these points, in order, with turns; failed points are if `retry`.

        PyTorch's points are due as well if one of Spool's was not measured in the turn before them.
        """

        def lacks(point, turn):
            stored = self.find(point, turn)
            return stored is None or ("error" in stored and retry)

        def peer_lacks(point):
            stored = self.find(point)
            if stored is None or "error" in stored:
                return lacks(point, None)
            return any(lacks(ours, stored["turn"]) for ours in spool)

        turns, after = self.turns(cell)
        last = max(turns | after, default=-1)
        due = [point for point in peers if peer_lacks(point)]
        if due:
            before = [(point, last + 1) for point in spool]
            return before + [(p, last + 1) for p in due] + [(point, last + 2) for point in spool]
        if peers:  # the turn after them may have been left unfinished
            newest = max(self.find(point)["turn"] for point in peers)
            return [(p, newest + 1) for p in spool if last <= newest + 1 and lacks(p, newest + 1)]
        own = last if last >= 0 and not after & {last - 1, last} else last + 1
        found = [p for p in spool if all(lacks(p, turn) for turn in turns)]
        return [(p, own) for p in found]
