"""Spool's points: `spool plan` and `spool train`, whose log tells when a step has ended."""

import dataclasses
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
import time

from joint.points import Counts, Point
from joint.processes import Child, Failed, Peak, processor_seconds
from models import MODELS

LOOK = 0.01  # seconds between looks at the log
MORE_STEPS = 1000  # beyond those measured: the program is ended in one, before it saves a model


def version(program):
    """The program's own description: version, commit, compiler, and libraries of each device."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    except OSError as e:
        raise ValueError(f"{program} does not run ({e.strerror}); --spool names the program spool") from e
    return ", ".join(done.stdout.strip().split("\n")).removeprefix("spool ")


def shape_words(cell):
    words = ["--model", cell.model, "--dtype", cell.dtype, "--batch", cell.batch, "--seq", cell.seq]
    return [*words, "--device", cell.device, "--threads", cell.threads, "--tokenizer", "bytes"]


def members(what, found, names):
    """The fields of an object that Spool wrote; other versions may write others."""
    lacking = [name for name in names if not isinstance(found, dict) or name not in found]
    if lacking:
        raise Failed(f"{what} has no {lacking[0]}: this program is of another version than Spool")
    return {name: found[name] for name in names}


def plan(program, cell, limit):
    """Spool's plans of this cell over budgets; it must be the model that PyTorch trains."""
    words = [program, "plan", *shape_words(cell), "--frontier", "--json", "-"]
    with Child(words, limit) as child:
        status, printed = child.wait()
        if status:
            raise Failed(child.why(status))
    names = ["peak_bytes_by_purpose", "foretold_peak_bytes", "foretold_step_ms", "lower_bound_ms", "frontier"]
    found = members("spool plan", json.loads(printed), names)
    for at in found["frontier"]:
        members("the frontier of spool plan", at, ["foretold_peak_bytes"])
    of_parameters = members("spool plan", found["peak_bytes_by_purpose"], ["parameters"])["parameters"]
    parameters = MODELS[cell.model].parameters() * (2 if cell.dtype == "bf16" else 4)
    if abs(of_parameters / parameters - 1) > 0.01:
        raise Failed(f"Spool's parameters take {of_parameters} bytes, PyTorch's {parameters}")
    return found


def write_tokens(file, count, vocabulary):
    """A shard of random tokens: 256 words of header, then tokens of 16 bits."""
    tokens = random.Random(1).choices(range(vocabulary), k=count)
    header = [20240520, 1, count] + [0] * 253
    file.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{count}H", *tokens))


class Log:
    """The lines of a log that is being written, parsed."""

    def __init__(self, file):
        self.file, self.read, self.part, self.lines = file, 0, "", []

    def steps(self):
        """The steps that have ended so far."""
        if self.file.exists():
            with self.file.open() as log:
                log.seek(self.read)
                *whole, self.part = (self.part + log.read()).split("\n")
                self.read = log.tell()
            self.lines += [json.loads(line) for line in whole]
        return [line for line in self.lines if "loss" in line]


class Watch:
    """A process's processor time and peak memory while it trained."""

    def __init__(self, pid):
        self.pid, self.peak = pid, Peak(pid)

    def begin(self, steps):
        self.peak.begin()
        self.first, self.seconds = steps, processor_seconds(self.pid)

    def end(self, steps):
        took = processor_seconds(self.pid) - self.seconds
        return {"processor_ms": took * 1e3 / (steps - self.first), **self.peak.numbers()}


def watch_steps(child, log, counts):
    """Waits for the steps; returns all of them and what the process took in those after the warm-up."""
    watch, begun = Watch(child.pid), False
    while True:
        status = child.ended()
        steps = log.steps()
        if not begun and len(steps) >= counts.warm_up:
            watch.begin(len(steps))
            begun = True
        elif begun and len(steps) >= max(counts.warm_up + counts.steps, watch.first + 1):
            return steps, watch.end(len(steps))
        if status is not None:
            raise Failed(child.why(status))
        time.sleep(LOOK)


def numbers_of(cell, steps, counts):
    """The numbers, from the lines of the log."""
    for step in steps:
        members("a step of the log", step, ["step_ms", "peak_bytes", "foretold_peak_bytes"])
    milliseconds = [step["step_ms"] for step in steps[counts.warm_up :]]
    step_ms = statistics.median(milliseconds)
    return {
        "step_ms": step_ms,
        "tokens_per_s": cell.tokens() / step_ms * 1e3,
        "steps_ms": milliseconds,
        "arena_peak_bytes": steps[-1]["peak_bytes"],
        "foretold_peak_bytes": steps[-1]["foretold_peak_bytes"],
        "loss": steps[-1]["loss"],
    }


def measure(program, point, counts, limit):
    """Trains in a fresh process."""
    cell = point.cell
    with tempfile.TemporaryDirectory(prefix="spool-peers-") as name:
        folder = pathlib.Path(name)
        vocabulary = min(MODELS[cell.model].vocabulary, 50257)  # Spool's own; it pads it
        data = folder / "tokens.bin"
        write_tokens(data, 8 * cell.tokens() + 4 * cell.seq, vocabulary)
        words = [program, "train", *shape_words(cell), "--data", data, "--val-data", data]
        words += ["--steps", counts.warm_up + counts.steps + MORE_STEPS, "--eval-every", 0]
        words += ["--final-eval", "none", "--checkpoint-every", 0]
        words += ["--out", folder / "run", "--log", folder / "log.json"]
        if point.setting is not None:
            words += ["--memory", int(point.setting)]
        with Child(words, limit) as child:
            steps, took = watch_steps(child, Log(folder / "log.json"), counts)
    return {**took, **numbers_of(cell, steps, counts)}


def program_bytes(program, cell, limit):
    """The memory of a process beside its arena, measured with gpt2-tiny, whose own is small."""
    tiny = dataclasses.replace(cell, model="gpt2-tiny", batch=1, seq=32)
    numbers = measure(program, Point(tiny, "spool"), Counts(warm_up=2, steps=2), limit)
    peak = numbers["steps_peak_bytes"] or numbers["process_peak_bytes"]
    return peak - numbers["arena_peak_bytes"]
