"""Adds the clocks, power and throttling of each second to device.json, and prints a line for each stage
of scripts/gpu.sh: clocks.py DEVICE.JSON ROWS STAGES.

ROWS is what nvidia-smi prints each second: time, MHz of the multiprocessors and of the memory, W, degrees
Celsius, and the driver's bits of why clocks are low. STAGES has a line for each stage: seconds since
the epoch, and the name."""

import datetime
import json
import pathlib
import statistics
import sys

UNTHROTTLED = 0x3  # bits of an idle GPU, and of the clocks that an application asked for


def row_of(line):
    """The numbers of one second, or None if the line has none."""
    fields = [field.strip() for field in line.split(",")]
    try:
        at = datetime.datetime.strptime(fields[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
        sm, memory, watts, celsius = map(float, fields[1:5])
    except (ValueError, IndexError):
        return None
    try:
        bits = int(fields[5], 16) & ~UNTHROTTLED
    except (ValueError, IndexError):  # a GPU that does not say
        bits = 0
    return {"at": at, "sm_mhz": sm, "memory_mhz": memory, "watts": watts, "celsius": celsius, "throttled": bits}


def describe(name, rows):
    """The line of a stage."""
    sm = [row["sm_mhz"] for row in rows]
    watts = statistics.median(row["watts"] for row in rows)
    reasons = sorted({hex(row["throttled"]) for row in rows if row["throttled"]})
    throttled = f", throttled: {' '.join(reasons)}" if reasons else ""
    return f"{name:<11} {min(sm):.0f} to {max(sm):.0f} MHz, {watts:.0f} W{throttled}"


def main():
    target, rows_file, stages_file = map(pathlib.Path, sys.argv[1:])
    stages = [line.split() for line in stages_file.read_text().splitlines()]
    rows = [row for line in rows_file.read_text().splitlines() if (row := row_of(line))]
    for row in rows:
        row["stage"] = next((n for begin, n in reversed(stages) if float(begin) <= row["at"]), "")
    facts = json.loads(target.read_text()) if target.exists() else {}
    facts["seconds"] = rows
    target.write_text(json.dumps(facts, indent=1) + "\n")
    for _, name in stages:
        if mine := [row for row in rows if row["stage"] == name]:
            print(describe(name, mine))


if __name__ == "__main__":
    main()
