"""Compares two programs: what they plan, say, train and write.

compare_programs.py BEFORE AFTER [--expect NAME]...

A change that should change nothing is held to the outputs of the program before it. What two runs of one
program differ in is hidden: times that were measured, free memory, what the process itself takes. Any other
difference that is not of an expected kind (comparison/expected.py) is printed, and the exit code is 1.
"""

import argparse
import collections
import concurrent.futures
import functools
import pathlib
import re
import shutil
import sys
import tempfile

from commands import spool
from comparison.expected import RULES
from comparison.plans import Plans, presets
from comparison.runs import help_texts, killed_runs, resumed_runs, trained_runs
from comparison.sides import Comparison

PARTS = ["help", "plans", "runs", "resumed", "kills"]
SHOWN_CASES, SHOWN_LINES = 40, 8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--expect", nargs="+", default=[], choices=RULES, metavar="NAME", help=", ".join(RULES))
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--presets", nargs="+", help="by default all")
    parser.add_argument("--machines", nargs="+", default=["h200", "cpu"])
    parser.add_argument("--only", type=re.compile, help="cases whose names have a match")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for all that the programs write")
    return parser.parse_args()


def on_cpu(wanted, comparison, plans, small):
    """One after the other, as all share the tables of kernels."""
    if "plans" in wanted.parts and "cpu" in wanted.machines:
        for of_preset in plans:
            of_preset("cpu").compare()
    runs = [("runs", trained_runs), ("resumed", resumed_runs), ("kills", killed_runs)]
    for part, compare in runs:
        for model in small if part in wanted.parts else []:
            compare(comparison, model)


def jobs(wanted, comparison):
    """Functions that may run at once, the longest first."""
    heads = presets(spool("plan", "--help")[1])
    names = wanted.presets or list(heads)
    number = {name: i for i, name in enumerate(heads)}  # a preset's cases are the same in any selection
    plans = [functools.partial(Plans, comparison, name, number[name], heads[name]) for name in names]
    small = [name for name in names if name in {"gpt2-tiny", "llama-tiny"}]
    yield lambda: on_cpu(wanted, comparison, plans, small)
    if "help" in wanted.parts:
        yield lambda: help_texts(comparison)
    if "plans" in wanted.parts:
        for machine in wanted.machines:
            yield from (of_preset(machine).compare for of_preset in plans if machine != "cpu")


def told(comparison, expected):
    """Prints what differs; returns whether something does that is not expected."""
    counts, wrong = collections.Counter(), {}
    for d in comparison.found:
        rule = next((name for name in expected if RULES[name](d)), None)
        counts[rule] += 1
        if not rule:
            wrong.setdefault(d.case, []).append(d)
    for case in sorted(wrong)[:SHOWN_CASES]:
        print(f"{case}: {len(wrong[case])} differences")
        lines = [line for d in wrong[case] for line in d.lines()]
        print("\n".join(lines[:SHOWN_LINES]))
        if len(lines) > SHOWN_LINES:
            print("    ...")
    if len(wrong) > SHOWN_CASES:
        print(f"... and {len(wrong) - SHOWN_CASES} cases more")
    print(f"{len(comparison.cases)} cases: {len(wrong)} differ", end="")
    print("".join(f"; {counts[name]} differences by {name}" for name in expected))
    return bool(wrong)


def main():
    wanted = arguments()
    root = pathlib.Path(wanted.keep or tempfile.mkdtemp(prefix="spool-compared-")).resolve()
    root.mkdir(exist_ok=True)
    try:
        programs = [str(pathlib.Path(p).resolve()) for p in (wanted.before, wanted.after)]
        comparison = Comparison(programs, root)
        comparison.only = wanted.only
        with concurrent.futures.ThreadPoolExecutor(wanted.jobs) as pool:
            for done in [pool.submit(job) for job in jobs(wanted, comparison)]:
                done.result()
        return told(comparison, wanted.expect)
    finally:
        if not wanted.keep:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
