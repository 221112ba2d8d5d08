"""Rows of the joint table, its frontier, and Spool beside each of PyTorch's points."""

from dataclasses import dataclass

from joint.points import Cell, Point


@dataclass
class Row:
    """A point; of Spool's two times the mean, and the second over the first, and the larger memory."""

    point: Point
    error: str | None = None
    step_ms: float = 0
    processor_ms: float = 0
    memory: int = 0  # the peak by which points are compared
    process_peak: int = 0
    own: int | None = None  # of memory: the program's, without a model
    reserved: int | None = None  # by PyTorch's allocator on a GPU
    arena: int | None = None
    foretold: int | None = None
    drift: float | None = None

    def beyond_state(self):
        """Bytes besides those of parameters, gradients and optimizer, which both sides keep."""
        return self.memory - self.point.cell.state_bytes()

    def activations(self):
        """The same without the program's own."""
        return None if self.own is None else self.beyond_state() - self.own


def point_of(stored):
    names = ["model", "dtype", "batch", "seq", "device", "threads"]
    cell = Cell(**{name: stored[name] for name in names})
    return Point(cell, stored["way"], stored["setting"], stored["again"])


def memory_of(stored):
    """The peak by which points are compared, and how much of it is the program's own."""
    arena = stored.get("arena_peak_bytes")
    if stored["device"] != "cpu":
        return (arena if arena is not None else stored["peak_allocated_bytes"]), 0
    peak = stored["steps_peak_bytes"] or stored["process_peak_bytes"]
    return peak, peak - arena if arena is not None else stored.get("before_model_bytes")


def row_of(point, times):
    """A row of what was stored of a point, once or twice."""
    whole = [stored for stored in times if "error" not in stored]
    if len(whole) < len(times):
        return Row(point, error=next(stored["error"] for stored in times if "error" in stored))
    mean = {
        name: sum(stored[name] for stored in whole) / len(whole) for name in ["step_ms", "processor_ms"]
    }
    memory, own = max((memory_of(stored) for stored in whole), key=lambda both: both[0])
    return Row(
        point,
        **mean,
        memory=memory,
        own=own,
        process_peak=max(stored["process_peak_bytes"] for stored in whole),
        reserved=whole[0].get("peak_reserved_bytes"),
        arena=whole[0].get("arena_peak_bytes"),
        foretold=whole[0].get("foretold_peak_bytes"),
        drift=whole[1]["step_ms"] / whole[0]["step_ms"] if len(whole) == 2 else None,
    )


def rows_by_cell(results):
    """Each cell's rows, those that failed last, the others from the least memory on."""
    points = {}
    for stored in results["points"].values():
        point = point_of({**stored, "again": False})
        points.setdefault(point.cell, {}).setdefault(point, []).append(stored)
    cells = {}
    for cell, found in points.items():
        rows = [
            row_of(point, sorted(times, key=lambda stored: stored["again"]))
            for point, times in found.items()
        ]
        cells[cell] = sorted(rows, key=lambda row: (row.error is not None, row.memory, row.step_ms))
    return cells


def frontier(rows):
    """The rows that no other beats in memory or in time without losing in the other."""
    best, on_it = float("inf"), []
    for row in sorted((row for row in rows if not row.error), key=lambda r: (r.memory, r.step_ms)):
        if row.step_ms < best:
            on_it.append(row)
            best = row.step_ms
    return on_it


@dataclass
class Beside:
    """One of PyTorch's rows and the Spool row of the least memory that takes no longer, or the fastest."""

    peer: Row
    spool: Row

    def as_fast(self):
        return self.spool.step_ms <= self.peer.step_ms

    def time(self):
        return self.spool.step_ms / self.peer.step_ms

    def memory(self):
        return self.spool.memory / self.peer.memory

    def beyond_state(self):
        """The ratio, None where PyTorch needs nothing beyond the state."""
        return ratio(self.spool.beyond_state(), self.peer.beyond_state())

    def activations(self):
        return ratio(self.spool.activations(), self.peer.activations())


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
