"""Training runs of small models: whole, resumed, and killed; with what they log, print and write."""

import functools
import os
import shutil
import signal
import subprocess
import time

from commands import last_step
from comparison import masks
from comparison.plans import POLICIES, planned

STEPS = 50
SHAPE = ["--batch", 2, "--seq", 64, "--layers", 2, "--threads", 2]
TYPES = ["--dtype f32", "--dtype bf16", "--dtype bf16 --rounding stochastic"]
PLACES = ["device", "streamed", "cpu"]
KILLED = [words.split() for words in [
    "--clip 1",
    "--clip 0 --dropout 0.1 --dtype bf16",
    "--clip 1 --dtype bf16 --rounding stochastic",
    "--clip 1 --accumulate 2 --optimizer-state streamed",
    "--clip 0 --optimizer-state cpu --recompute block",
    "--clip 1 --dtype bf16 --recompute norms --offload all --optimizer-state streamed",
]]
LARGE = ["--batch", 8, "--seq", 128]  # in a step of which values are most of the memory
EVERY = 10  # steps from checkpoint to checkpoint
KILLS = [13, 24, 31]
RESUME = ["--resume", "--threads", 2, "--checkpoint-every", EVERY]


def help_texts(comparison):
    commands = ["", "train", "plan", "generate", "eval", "tokenize", "calibrate", "convert", "plot", "info"]
    for command in commands:
        words = [command, "--help"] if command else ["--help"]
        named = ["exit code", "printed", "errors"]
        said = lambda side, folder, words=words: dict(zip(named, map(str, side.said(folder, *words))))
        comparison.same(" ".join(["help", *words]), said)


def written(folder, status, printed, errors):
    """The output and the files of a run in this folder."""
    found = {"exit code": str(status), "printed": printed, "errors": errors}
    for name in ["plan.json", "run/latest/config.json"]:
        if (folder / name).exists():
            found[name] = (folder / name).read_text()
    for name in ["model.safetensors", "optimizer.safetensors"]:
        if (folder / "run/latest" / name).exists():
            found[name] = (folder / "run/latest" / name).read_bytes()
    if (folder / "run/latest").exists():
        found["run.json"] = masks.run(folder / "run/latest/run.json")
        found["checkpoint"] = os.readlink(folder / "run/latest")
    if (folder / "log").exists():
        found["log"] = masks.log(folder / "log")
    return found


def train(side, folder, *words):
    fixed = ["--out", "run", "--log", "log", "--save-plan", "plan.json"]
    return written(folder, *side.said(folder, "train", *fixed, *words))


def beginning(comparison, model, *words):
    return ["--model", model, *SHAPE, "--data", comparison.text, "--steps", STEPS, "--eval-every", 20, *words]


def trained_runs(comparison, model):
    for clip in [1, 0]:
        for of_type in TYPES:
            for place in PLACES:
                words = [*of_type.split(), "--optimizer-state", place, "--clip", clip]
                words = beginning(comparison, model, *words)
                name = f"train {model} clip {clip} {of_type} state {place}".replace("--", "")
                comparison.same(name, lambda *at, words=words: train(*at, *words), tables=True)


def resumed_runs(comparison, model):
    """Plans and runs from a checkpoint of the program before, clipped at 1."""
    before = comparison.sides[0]

    @functools.cache
    def given():
        """The folder with the run, and the bytes that its step takes."""
        folder = before.folder(f"given {model}")
        begun = train(before, folder, *beginning(comparison, model, *LARGE, "--steps", 4))
        return folder / "run", begun["log"][0]["foretold_peak_bytes"]

    def resumed(side, folder, *words):
        shutil.copytree(given()[0], folder / "run", symlinks=True)
        return train(side, folder, "--resume", "--steps", 9, "--threads", 2, *words)

    def plan(side, folder, *words):
        return planned(side, folder, "--model", given()[0], *LARGE, "--machine", "h200", *words)

    for i, part in enumerate([None, 0.9, 0.8, 0.7, 0.6, 0.4]):
        within = f"in {part:.0%}" if part else "in what is free"
        for how, words in [("searched", []), ("by policies", POLICIES[i])]:
            every = lambda: [*(["--memory", int(part * given()[1])] if part else []), *words]
            comparison.same(f"plan {model} resumed {how} {within}", lambda *at: plan(*at, *every()))
            name = f"train {model} resumed {how} {within}"
            comparison.same(f"{name} dry", lambda *at: resumed(*at, "--dry-run", *every()), tables=True)
            comparison.same(f"{name} clip 1", lambda *at: resumed(*at, *every()), tables=True)


def killed_at(side, folder, step, *words):
    """Kills a run at this step, or soon after, before its next checkpoint; returns whether it was in time."""
    latest, log, due = folder / "run" / "latest", folder / "log", f"step-{step // EVERY * EVERY:06}"

    def stands():
        return os.readlink(latest) if latest.is_symlink() else ""

    command = [side.program, "train", "--out", "run", "--log", "log", *map(str, words)]
    run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while run.poll() is None and (stands() < due or last_step(log) < step):
        time.sleep(0.001)
    run.send_signal(signal.SIGKILL)
    run.wait()
    return stands() == due


def killed(side, folder, steps, *words):
    """Kills a run at these steps and resumes it; repeats a kill for which it was too fast."""
    kept = folder.with_name(folder.name + "-kept")
    for i, step in enumerate(steps):
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, symlinks=True)
        for _ in range(20):
            if killed_at(side, folder, step, *(RESUME if i else words)):
                break
            shutil.rmtree(folder)
            shutil.copytree(kept, folder, symlinks=True)
        else:
            raise RuntimeError(f"{folder}: no kill came in time at step {step}")


def killed_runs(comparison, model):
    """Ends of killed runs, those of each program and those that the earlier program left."""
    for number, words in enumerate(KILLED):
        name = f"killed {model} {' '.join(words)}".replace("--", "")
        began = beginning(comparison, model, "--checkpoint-every", EVERY, *words)

        def ends(side, folder, killer=None):
            killed(killer or side, folder, KILLS, *began)
            return train(side, folder, *RESUME)

        comparison.same(name, ends, tables=True)
        before = comparison.sides[0]
        comparison.same(f"{name} by the program of before", lambda *at: ends(*at, before), tables=True)
