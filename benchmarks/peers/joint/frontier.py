"""Rows of the joint table, its frontier, and Spool beside each of PyTorch's points."""

from dataclasses import dataclass

from joint.points import Point
from joint.results import point_of


@dataclass
class Row:
    """A point; for Spool, the mean of its two times, the second over the first, and the larger memory."""

    point: Point
    error: str | None = None
    step_ms: float = 0
    processor_ms: float = 0
    memory: int = 0  # the peak by which points are compared
    kept: int | None = None  # PyTorch's peak on a cpu if its process keeps freed blocks
    program: int | None = None  # of memory on a cpu: a process that trains a model of no size
    tensors: int | None = None  # most bytes of tensors
    reserved: int | None = None  # by PyTorch's allocator on a GPU
    foretold: int | None = None
    drift: float | None = None
    chunks: int | None = None  # how often auto_chunker cut a graph

    def beyond_state(self):
        """Bytes besides those of parameters, gradients and optimizer, which both sides keep."""
        return self.memory - self.point.cell.state_bytes()

    def activations(self):
        """The same without the program."""
        return None if self.program is None else self.beyond_state() - self.program


def memory_of(stored):
    """The peak by which points are compared: the minimum that the process needs."""
    if stored["device"] != "cpu":
        arena = stored.get("arena_peak_bytes")
        return arena if arena is not None else stored["peak_allocated_bytes"]
    peak = stored["steps_peak_bytes"] or stored["process_peak_bytes"]
    return min(peak, stored.get("returned_peak_bytes") or peak)


def row_of(point, times, programs):
    """A row from the one or two stored results of a point."""
    whole = [stored for stored in times if "error" not in stored]
    if len(whole) < len(times):
        return Row(point, error=next(stored["error"] for stored in times if "error" in stored))
    first, is_spool, cuda = whole[0], point.is_spool(), point.cell.device != "cpu"
    program = programs.get(point.cell.program()) if is_spool else first["before_model_bytes"]
    return Row(
        point,
        step_ms=sum(stored["step_ms"] for stored in whole) / len(whole),
        processor_ms=sum(stored["processor_ms"] for stored in whole) / len(whole),
        memory=max(memory_of(stored) for stored in whole),
        kept=None if is_spool or cuda else first["steps_peak_bytes"],
        program=None if cuda else program,
        tensors=first.get("arena_peak_bytes" if is_spool else "tensors_peak_bytes"),
        reserved=first.get("peak_reserved_bytes"),
        foretold=first.get("foretold_peak_bytes"),
        drift=whole[1]["step_ms"] / first["step_ms"] if len(whole) == 2 else None,
        chunks=first.get("auto_chunks"),
    )


def rounds_of(stored):
    """What was stored of a cell, point by point, in lists of what was measured beside each other.

    Of Spool's points each has the turns before and after PyTorch's, and those of the last turn are there
    if nothing of PyTorch's is beside it.
    """
    peers = {}
    for entry in stored:
        if not point_of(entry).is_spool():
            peers.setdefault(entry["turn"], []).append(entry)
    spool = sorted((e for e in stored if point_of(e).is_spool()), key=lambda e: e["turn"])
    rounds = [
        [e for e in spool if e["turn"] in (turn, turn + 1)] + entries for turn, entries in sorted(peers.items())
    ]
    last = spool[-1]["turn"] if spool else None
    if spool and not {last - 1, last} & peers.keys():
        rounds.append([e for e in spool if e["turn"] == last])
    return rounds


def rows_of(entries, programs):
    """The rows by memory, failed ones last."""
    points = {}
    for entry in entries:
        points.setdefault(point_of(entry), []).append(entry)
    rows = [row_of(point, times, programs) for point, times in points.items()]
    return sorted(rows, key=lambda row: (row.error is not None, row.memory, row.step_ms))


def rounds_by_cell(results):
    """Each cell's rounds of rows."""
    cells = {}
    for stored in results["points"].values():
        cells.setdefault(point_of(stored).cell, []).append(stored)
    programs = results["programs"]
    return {
        cell: [rows_of(entries, programs) for entries in rounds_of(stored)] for cell, stored in cells.items()
    }


def frontier(rows):
    """The rows that no other row beats in both memory and time."""
    best, on_it = float("inf"), []
    for row in sorted((row for row in rows if not row.error), key=lambda r: (r.memory, r.step_ms)):
        if row.step_ms < best:
            on_it.append(row)
            best = row.step_ms
    return on_it


@dataclass
class Beside:
    """One of PyTorch's rows, and Spool's row of least memory among those as fast, or the fastest."""

    peer: Row
    spool: Row

    def as_fast(self):
        return self.spool.step_ms <= self.peer.step_ms

    def time(self):
        return self.spool.step_ms / self.peer.step_ms

    def memory(self):
        return self.spool.memory / self.peer.memory

    def beyond_state(self):
        """The ratio, or None if PyTorch needs nothing beyond the state."""
        return ratio(self.spool.beyond_state(), self.peer.beyond_state())

    def activations(self):
        return ratio(self.spool.activations(), self.peer.activations())

    def tensors(self):
        return ratio(self.spool.tensors, self.peer.tensors)


def ratio(a, b):
    return a / b if a is not None and b is not None and b > 0 else None


def beside(rows):
    """A comparison for each of PyTorch's rows that has numbers."""
    ours = [row for row in rows if row.point.is_spool() and not row.error]
    compared = []
    for peer in rows:
        if peer.point.is_spool() or peer.error or not ours:
            continue
        as_fast = [row for row in ours if row.step_ms <= peer.step_ms]
        least = min(as_fast, key=lambda row: row.memory, default=None)
        compared.append(Beside(peer, least or min(ours, key=lambda row: row.step_ms)))
    return compared
