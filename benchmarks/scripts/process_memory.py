"""What a training run on a cpu takes of memory besides its arena, and what its table expects.

process_memory.py SPOOL DATA

Runs `spool train` for a few steps in several shapes, with 2 and 16 threads, once with an empty table
of kernels and once with that of the run before, and prints for each the peak of the process's
resident memory (VmHWM) less the foretold peak of the arena, and what the table said. MiB.
"""

import os
import re
import subprocess
import sys
import tempfile

SHAPES = {
    "gpt2-tiny": "--model gpt2-tiny",
    "12 layers, 64 channels": "--layers 12 --channels 64 --heads 2 --seq 64 --batch 4",
    "48 layers, 64 channels": "--layers 48 --channels 64 --heads 2 --seq 64 --batch 4",
    "24 layers, 256 channels": "--layers 24 --channels 256 --heads 4 --seq 128 --batch 4",
    "gpt2-124m": "--model gpt2-124m --batch 1 --seq 64 --vocab 50257",
    "gpt2-124m, bf16": "--model gpt2-124m --batch 1 --seq 64 --vocab 50257 --dtype bf16",
}
MIB = 2**20


def run(program, data, folder, words):
    """Trains for six steps; returns the peaks of the process and of its arena, and what was expected."""
    command = [program, "train", "--data", data, "--steps", "6", "--final-eval", "2", *words]
    out = tempfile.mkdtemp(dir=folder)
    process = subprocess.Popen([*command, "--out", out], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    printed = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    arena = int(re.search(r"in bytes +(\d+)", printed)[1])
    expected = re.search(r"the program itself +([\d.]+) (.iB)", printed)
    return usage.ru_maxrss * 1024, arena, float(expected[1]) * {"K": 1 / 1024, "M": 1, "G": 1024}[expected[2][0]]


def main(program, data):
    print("| run | threads | besides, kernels measured in it | expected | besides, table known | expected |")
    print("|---|---|---|---|---|---|")
    for name, words in SHAPES.items():
        for threads in ["2", "16"]:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["XDG_CACHE_HOME"] = folder
                cells = []
                for _ in range(2):
                    peak, arena, expected = run(program, data, folder, [*words.split(), "--threads", threads])
                    cells += [f"{(peak - arena) / MIB:.0f}", f"{expected:.0f}"]
            print(f"| {name} | {threads} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
