"""Keeps the kernels' times of two plans of one step: kernel_times.py RESULTS MODEL FORETOLD MEASURED.

FORETOLD and MEASURED are what `spool plan --kernels` printed for the GPU's data sheet and for the GPU
itself. The table is kept as RESULTS["kernel_times"][MODEL], with a row (name, launches, foretold ms,
measured ms) for each kernel; benchmarks/scripts/report.py prints it."""

import json
import pathlib
import re
import sys

ROW = re.compile(r"^ +([a-z][\w ]*?) +(\d+) +(\d+\.\d+)$", re.MULTILINE)


def rows_of(file):
    """The launches and milliseconds of each kernel, by name."""
    text = pathlib.Path(file).read_text()
    table = text[text.index("launches") :]
    return {name: (int(launches), float(ms)) for name, launches, ms in ROW.findall(table)}


def main():
    target, model = pathlib.Path(sys.argv[1]), sys.argv[2]
    foretold, measured = map(rows_of, sys.argv[3:])
    results = json.loads(target.read_text()) if target.exists() else {}
    results.setdefault("kernel_times", {})[model] = [
        [name, launches, foretold.get(name, (0, None))[1], measured.get(name, (0, None))[1]]
        for name, (launches, _) in {**measured, **foretold}.items()
    ]
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{len(foretold)} kernels of {model}")


main()
