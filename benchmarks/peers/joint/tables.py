"""Writes the joint table in Markdown, with a description of each column, and in the JSON."""

from collections import namedtuple

from joint.frontier import beside, frontier, rounds_by_cell
from joint.points import MIB

MOST_DRIFT = 0.05
STATE = {
    "f32": "in f32 parameters 4, gradients 4 and two moments 8",
    "bf16": "in bf16 parameters 2, gradients 2, f32 masters 4 and two moments 8",
}
Column = namedtuple("Column", ["title", "cell"])  # cell: of a row and of the rows on the frontier


def mib(value):
    return "" if value is None else f"{value / MIB:.1f}"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def tokens_per_s(row):
    return f"{row.point.cell.tokens() / row.step_ms * 1e3:.0f}"


FIRST = [
    Column("point", lambda row, _: row.point.label()),
    Column("frontier", lambda row, on_frontier: "yes" if row in on_frontier else ""),
    Column("ms", lambda row, _: f"{row.step_ms:.1f}"),
    Column("processor ms", lambda row, _: f"{row.processor_ms:.1f}"),
    Column("tokens/s", lambda row, _: tokens_per_s(row)),
]
LESS_STATE = Column("less state", lambda row, _: mib(row.beyond_state()))
LAST = [
    Column("foretold", lambda row, _: mib(row.foretold)),
    Column("again / first", lambda row, _: "" if row.drift is None else f"{row.drift:.3f}"),
]
ON_CPU = [
    Column("peak, MiB", lambda row, _: mib(row.memory)),
    Column("kept", lambda row, _: mib(row.kept)),
    Column("program", lambda row, _: mib(row.program)),
    LESS_STATE,
    Column("less program", lambda row, _: mib(row.activations())),
    Column("tensors", lambda row, _: mib(row.tensors)),
]
ON_GPU = [
    Column("allocated, MiB", lambda row, _: mib(row.memory)),
    Column("reserved", lambda row, _: mib(row.reserved)),
    LESS_STATE,
]


def explained(conditions, cells):
    """Describes the columns of the tables of these cells."""
    devices, dtypes = {cell.device for cell in cells}, sorted({cell.dtype for cell in cells}, reverse=True)
    state = "; ".join(STATE[dtype] for dtype in dtypes)
    steps = f"{conditions.get('steps', 'some')} steps at least, after {conditions.get('warm-up', 'some')}"
    said = [
        ("frontier", "whether no other point has less memory at no more time."),
        ("ms, processor ms, tokens/s", f"a step, the median of {steps}; the processor's time in it, of all"
         " threads; tokens by the first. Spool is measured twice: they are the mean, and memory is the larger."),
    ]  # fmt: skip
    if "cpu" in devices:
        said += explained_on_cpu(conditions, state)
    if devices - {"cpu"}:
        said += [
            ("allocated", "on a GPU, what Spool's arena and PyTorch's tensors took at most."),
            ("reserved", "what PyTorch's allocator took of the GPU for that."),
            ("less state", f"that less the 16 bytes a parameter that both keep: {state}."),
        ]
    said += [
        ("foretold", "what Spool said before the first step that its arena would take."),
        ("again / first", "Spool's time after PyTorch's points over that before them."),
    ]
    return "\n".join(f"- *{title}*: {sentence}" for title, sentence in said)


def explained_on_cpu(conditions, state):
    built = conditions.get("torch built", "")
    libraries = f" PyTorch is built {built}, whose libraries are a part." if "for CUDA" in built else ""
    return [
        ("peak", "the most resident memory of the process in these steps. PyTorch's is that of steps in which"
         " freed blocks go back to the system at once, which are not timed."),
        ("kept", "PyTorch's in the steps that are timed, where its process keeps freed blocks, to be faster."),
        ("program", "how much of it a process has without a model: PyTorch's after a step of gpt2-tiny in the"
         f" same way, Spool's beside its arena in steps of gpt2-tiny.{libraries}"),
        ("less state", f"the peak less the 16 bytes a parameter that both keep: {state}."),
        ("less program", "that less the program: activations, scratch memory, and what lies between them."),
        ("tensors", "the most bytes of tensors at a time: Spool's arena, in which its kernels' scratch memory is,"
         " and PyTorch's by its profiler, which does not see that of its libraries."),
    ]  # fmt: skip


BESIDE = (
    "The table below it has for each point of PyTorch's the one of Spool's with the least memory that takes"
    " no more time, or if there is none the fastest, and Spool's numbers as shares of PyTorch's."
)


def table(titles, rows):
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def joint_table(cell, rows):
    columns = FIRST + (ON_CPU if cell.device == "cpu" else ON_GPU) + LAST
    on_frontier = frontier(rows)
    lines = [[column.cell(row, on_frontier) for column in columns] for row in rows if not row.error]
    return table([column.title for column in columns], lines)


def beside_table(cell, rows):
    """The comparison; empty if one side has no numbers."""
    titles = ["", "Spool in the least memory at no more time", "time", "peak", "less state"]
    more = ["less program", "tensors"] if cell.device == "cpu" else []
    lines = []
    for pair in beside(rows):
        shares = [pair.time(), pair.memory(), pair.beyond_state()]
        shares += [pair.activations(), pair.tensors()] if more else []
        spool = pair.spool.point.label() + ("" if pair.as_fast() else " (none is as fast)")
        lines.append([pair.peer.point.label(), spool, *map(percent, shares)])
    return table(titles + more, lines) if lines else ""


def chunker_remark(row):
    if row.chunks is None:
        return "this PyTorch does not tell whether it cut anything"
    return "it cut nothing" if not row.chunks else f"it cut {row.chunks} graph{'s' * (row.chunks != 1)}"


def remarks(rows):
    """Why points have no numbers, what the chunker did, and where the machine changed meanwhile."""
    said = [f"{row.point.label()}: {row.error}" for row in rows if row.error]
    chunked = [row for row in rows if row.point.way == "auto-chunker" and not row.error]
    said += [f"{row.point.label()}: {chunker_remark(row)}" for row in chunked]
    drifts = [row for row in rows if row.drift is not None and abs(row.drift - 1) > MOST_DRIFT]
    for row in drifts:
        change = f"took {100 * (row.drift - 1):+.0f} % the second time"
        said.append(f"{row.point.label()} {change}: the machine changed")
    return "\n".join(f"- {line}" for line in said)


def markdown(results):
    """All cells, with what they were measured on."""
    cells, conditions = rounds_by_cell(results), results["conditions"]
    said = "; ".join(f"{name} {value}" for name, value in conditions.items())
    parts = ["# Spool and PyTorch: memory and time of a training step", said + "."]
    parts.append(explained(conditions, cells))
    parts += [BESIDE] * any(beside(rows) for rounds in cells.values() for rows in rounds)
    for cell, rounds in cells.items():
        parts.append(f"## {cell.name()}")
        if len(rounds) > 1:
            parts.append(f"Measured in {len(rounds)} rounds: in each Spool before PyTorch and after it.")
        for rows in rounds:
            parts += [joint_table(cell, rows), beside_table(cell, rows), remarks(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary_of(rows):
    return {
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
                "tensors": pair.tensors(),
            }
            for pair in beside(rows)
        ],
    }


def summary(results):
    """For the JSON: of each cell's rounds the frontier, and Spool beside each of PyTorch's points."""
    cells = rounds_by_cell(results)
    return {cell.name(): [summary_of(rows) for rows in rounds] for cell, rounds in cells.items()}
