"""The joint table in Markdown, and in the JSON."""

from joint.frontier import beside, frontier, rows_by_cell
from joint.points import MIB

MOST_DRIFT = 0.05


def table(titles, rows):
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def mib(value):
    return "" if value is None else f"{value / MIB:.1f}"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def times(row):
    tokens_per_s = row.point.cell.tokens() / row.step_ms * 1e3
    return [f"{row.step_ms:.1f}", f"{row.processor_ms:.1f}", f"{tokens_per_s:.0f}"]


def cells_of(row, on_frontier):
    cuda = row.point.cell.device != "cpu"
    more = [mib(row.reserved)] if cuda else [mib(row.process_peak)]
    return [
        row.point.label(),
        "yes" if row in on_frontier else "",
        *times(row),
        mib(row.memory),
        *more,
        mib(row.beyond_state()),
        mib(row.activations()),
        mib(row.arena),
        mib(row.foretold),
        "" if row.drift is None else f"{row.drift:.3f}",
    ]


def joint_table(cell, rows):
    cuda = cell.device != "cpu"
    titles = ["point", "frontier", "ms", "processor ms", "tokens/s"]
    titles += ["allocated, MiB", "reserved"] if cuda else ["peak in steps, MiB", "of the process"]
    titles += ["less 16 B a parameter", "and the program", "arena", "foretold", "again / first"]
    on_frontier = frontier(rows)
    return table(titles, [cells_of(row, on_frontier) for row in rows if not row.error])


def beside_table(rows):
    """Empty if one side has no numbers."""
    lines = [
        [
            pair.peer.point.label(),
            pair.spool.point.label() + ("" if pair.as_fast() else " (none is as fast)"),
            percent(pair.time()),
            percent(pair.memory()),
            percent(pair.beyond_state()),
            percent(pair.activations()),
        ]
        for pair in beside(rows)
    ]
    titles = ["", "Spool in the least memory at no more time", "time", "peak"]
    titles += ["less 16 B a parameter", "and the program"]
    return table(titles, lines) if lines else ""


def remarks(rows):
    """Why points have no numbers, and where the machine was not the same in the end."""
    said = [f"{row.point.label()}: {row.error}" for row in rows if row.error]
    drifts = [row for row in rows if row.drift is not None and abs(row.drift - 1) > MOST_DRIFT]
    for row in drifts:
        change = f"took {100 * (row.drift - 1):+.0f} % the second time"
        said.append(f"{row.point.label()} {change}: the machine changed")
    return "\n".join(f"- {line}" for line in said)


def markdown(results):
    """All cells, with what they were measured on."""
    conditions = "; ".join(f"{name} {value}" for name, value in results.get("conditions", {}).items())
    parts = ["# Spool and PyTorch: memory and time of a training step", conditions + "."]
    for cell, rows in rows_by_cell(results).items():
        parts += [f"## {cell.name()}", joint_table(cell, rows)]
        compared = beside_table(rows)
        if compared:
            parts.append(compared)
        said = remarks(rows)
        if said:
            parts.append(said)
    return "\n\n".join(parts) + "\n"


def summary(results):
    """For the JSON: the keys of each cell's frontier, and Spool beside each of PyTorch's points."""
    found = {}
    for cell, rows in rows_by_cell(results).items():
        found[cell.name()] = {
            "frontier": [row.point.key() for row in frontier(rows)],
            "beside": [
                {
                    "peer": pair.peer.point.key(),
                    "spool": pair.spool.point.key(),
                    "as_fast": pair.as_fast(),
                    "time": pair.time(),
                    "peak": pair.memory(),
                    "peak_less_state": pair.beyond_state(),
                    "peak_less_state_and_program": pair.activations(),
                }
                for pair in beside(rows)
            ],
        }
    return found
