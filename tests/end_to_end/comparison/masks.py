"""Hides what differs between two runs of one program, before programs are compared."""

import json
import re

# Measured times, the machine's free memory, and the memory of the process itself.
HIDDEN = [(re.compile(pattern, re.MULTILINE), instead) for pattern, instead in [
    (r"^\d+ kernels of the step were measured, in .*\n", ""),
    (r"^foretold step time corrected to .*\n", ""),
    (r"^by the times of these steps another plan .*\n", ""),
    (r"^step \d+/\d+ .*\n(?=step )", ""),  # lines of progress come by the clock; the last one is of the last step
    (r"(  left) .*?  \S+ tokens/s", r"\1 TIME"),
    (r"  [\d.]+ tokens/s", "  SPEED"),
    (r"^(  free memory) .*", r"\1 HIDDEN"),
    (r"^(  the program itself) .*", r"\1 HIDDEN"),
    (r"^(    planned in) +\S+ \S+", r"\1 TIME"),
    (r"^(  rehearsals? |[a-z ]+) for \d+ s\n", ""),
    (r"what is free is [\d.]+ \w+", "what is free is HIDDEN"),
    (r'"plan_ms": ?[\d.e+-]+', '"plan_ms":0'),
    (r"0\.1\.0 [0-9a-f]{12}(-\w+)?", "VERSION"),
]]
OF_A_LOG = ["step_ms", "time", "tokens_per_s", "spool", "corrected_step_ms"]


def text(said, folder):
    for pattern, instead in HIDDEN:
        said = pattern.sub(instead, said)
    return said.replace(str(folder), "HERE")


def report(file):
    """The JSON of a plan or a refusal, without a budget that is this machine's free memory."""
    found = json.loads(file.read_text())
    found.pop("plan_ms", None)
    if found.get("budget_is") == "free memory" and found["machine"].startswith("cpu"):
        del found["budget_bytes"]
    found["explanation"] = [text(line, file.parent) for line in found.get("explanation", [])]
    return found


def log(file):
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    return [{key: value for key, value in e.items() if key not in OF_A_LOG} for e in entries]


def run(file):
    """A checkpoint's description of its run."""
    found = json.loads(file.read_text())
    found.pop("spool", None)
    return found
