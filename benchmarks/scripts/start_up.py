"""How long a program with one linear on the cpu takes from start to end, and its memory.

start_up.py FOLDER [TIMES]

Runs the program start_up of the folder of benchmarks TIMES times (100) for several sizes, and a program that only ends,
for comparison. Prints the least and the median of the processor's milliseconds and of those that passed, and the most
resident memory (VmHWM), in MiB.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time

SIZES = [(8, 16), (32, 32), (64, 64), (256, 256), (1024, 512)]


def run(command):
    """Milliseconds of the processor and of the clock, and what it printed."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    passed = time.perf_counter() - begin
    process.returncode = status
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return (usage.ru_utime + usage.ru_stime) * 1e3, passed * 1e3, printed


def main(folder, times=100):
    program = os.path.join(folder, "start_up")
    print("| program | processor ms, least | median | clock ms, least | median | MiB |")
    print("|---|---|---|---|---|---|")
    rows = [("true", [shutil.which("true")])]
    rows += [(f"({n}, {c}) by ({c}, {c})", [program, str(n), str(c)]) for n, c in SIZES]
    for name, command in rows:
        runs = [run(command) for _ in range(int(times))]
        cells = [f"{of(r[i] for r in runs):.1f}" for i in (0, 1) for of in (min, statistics.median)]
        resident = max(int(r[2] or 0) for r in runs) / 1024
        print(f"| {name} | {' | '.join(cells)} | {f'{resident:.1f}' if resident else ''} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
