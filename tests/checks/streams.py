"""The machine code of kernels that are limited by the speed of memory is what their source means: a
thread has all loads of a batch under way before it waits for one, keeps its registers out of memory,
and computes an element in few instructions. kernels/cuda/streams.txt says how many.

The nightly run (SPOOL_NIGHTLY) compiles all of them; others the sources that scripts/changed.py
lists: those that differ, and one of each header that does. They are compiled as a release is, whatever
the flags of this build.
"""

import concurrent.futures
import os
import subprocess
import sys

from tree import ROOT, SKIPPED, verdict

sys.path.append(str(ROOT / "scripts"))
import machine_code  # noqa: E402


def recent():
    """The names of the kernels' sources that scripts/changed.py lists."""
    command = [sys.executable, ROOT / "scripts/changed.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    folder = "kernels/cuda/"
    return {line.removeprefix(folder) for line in done.stdout.splitlines() if line.startswith(folder)}


def faults(kernel, loads, elements, most):
    """What is wrong with a kernel: it has fewer loads, or more instructions an element, than these."""
    if kernel.loads() < loads:
        yield f"has {kernel.loads()} wide loads under way before it waits, and its batch is {loads}"
    if kernel.spilled:
        yield f"keeps {kernel.spilled} bytes of registers in memory"
    instructions, _ = machine_code.per_element(kernel, elements)
    if most and instructions > most:
        yield f"takes {instructions:.1f} instructions an element, and {most} are allowed"


def errors_of(source, rows):
    """The faults of a source's kernels in the table."""
    kernels = {k.name: k for k in machine_code.compiled(machine_code.KERNELS / source)}
    for name, *wanted in rows:
        if name not in kernels:
            yield f"{source}: has no kernel {name}, which kernels/cuda/streams.txt names"
            continue
        yield from (f"{source}: {name} {fault}" for fault in faults(kernels[name], *wanted))


def main():
    if lacking := machine_code.missing():
        print(f"skipped: {lacking}")
        sys.exit(SKIPPED)
    sources = {}
    for source, *row in machine_code.table():
        sources.setdefault(source, []).append(row)
    if not os.environ.get("SPOOL_NIGHTLY"):
        changed = recent()
        sources = {source: rows for source, rows in sources.items() if source in changed}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda pair: list(errors_of(*pair)), sources.items())
        errors = [error for each in found for error in each]
    count = sum(len(rows) for rows in sources.values())
    verdict(errors, f"{count} kernels of {len(sources)} sources have their loads in flight")


if __name__ == "__main__":
    main()
