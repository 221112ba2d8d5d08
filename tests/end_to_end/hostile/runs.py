"""Runs that are interrupted, killed or on a full disk, and resumed: they end like a whole run."""

import json
import os
import signal
import subprocess
import time

from commands import PROSE, SHAPE, last_step
from hostile.oracle import Case, PATIENCE, sentence_faults, Outcome, pasted, start

STEPS = 40
# The values between blocks have 1 MiB each, so they are offloaded.
WIDE = "--layers 2 --heads 2 --channels 64 --context 128 --seq 128 --batch 32".split()
GRACEFUL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def settings(dice):
    """What determines the losses of a run."""
    dtype = dice.choice(["f32", "bf16"])
    words = ["--dtype", dtype, "--dropout", dice.choice(["0", "0.1"]), "--seed", dice.randrange(100)]
    words += ["--accumulate", dice.choice([1, 1, 2]), "--chunk-loss", dice.choice([0, 0, 5, 16])]
    words += ["--chunk-mlp", dice.choice([0, 0, 7, 16])]
    if dtype == "bf16" and dice.random() < 0.5:
        words += ["--rounding", "stochastic"]
    shape, steps = (WIDE, STEPS // 4) if dice.random() < 0.2 else (SHAPE, STEPS)
    return [*shape, "--data", "text.txt", "--steps", steps, *words]


def policy(dice, tight):
    """How a run executes, which changes none of its numbers; `tight` are budgets."""
    words = ["--threads", dice.choice([1, 2, 3])]
    chance = dice.random()
    if chance < 0.5:
        words += ["--recompute", dice.choice(["none", "norms", "norms,gelu", "attention", "block"])]
        words += ["--offload", dice.choice(["none", "residual", "all"])]
        words += ["--optimizer-state", dice.choice(["device", "streamed", "cpu"])]
        if words[-3] != "none" and dice.random() < 0.5:
            words += ["--offload-to", "disk:."]
    elif chance < 0.8:
        words += ["--memory", dice.choice(tight)]
    words += ["--checkpoint-every", dice.choice([0, 1, 3, 10]), "--keep-checkpoints", dice.choice([1, 2, 9])]
    words += ["--eval-every", dice.choice([0, 4, 100]), "--sample-every", dice.choice([0, 0, 9])]
    return words


class RunFailed(Exception):
    """A fault of a run."""


class Runs:
    def __init__(self, folder, dice):
        self.folder, self.dice = folder, dice
        self.out, self.log = folder / "run", folder / "killed.jsonl"
        (folder / "text.txt").write_text(PROSE)
        self.settings, self.said = settings(dice), []
        self.budgets = ["64MiB", "1GiB"] if "64" in self.settings else ["800kB", "2MiB", "1GiB"]
        self.words = ["train", *self.settings, *policy(dice, self.budgets)]
        begun = time.monotonic()
        self.run(Case([*self.words, "--out", "whole", "--log", "whole.jsonl"]), {0})
        self.seconds = time.monotonic() - begun

    def fail(self, why):
        raise RunFailed("\n  ".join([why, *self.said]))

    def expect(self, holds, why):
        if not holds:
            self.fail(why)

    def judge(self, run, codes, texts):
        printed, errors = ((text or b"").decode(errors="replace") for text in texts)
        self.said.append(f"exit code {run.returncode} {errors.strip()[-800:]}")
        self.expect(run.returncode in codes, f"exit code {run.returncode} is none of {codes}")
        for fault in sentence_faults(Outcome(run.returncode, printed, errors, interrupted=False)):
            self.fail(fault)
        return printed

    def run(self, case, codes):
        self.said.append(str(case))
        run = start(case, self.folder)
        try:
            texts = run.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            run.kill()
            self.fail("it does not end")
        self.judge(run, codes, texts)
        return run.returncode

    def latest(self):
        """The step of the latest checkpoint; a kill may come before the link to it."""
        for folder in [self.out / "latest", *sorted(self.out.glob("step-*"), reverse=True)]:
            run = folder / "run.json"
            if run.exists():
                return json.loads(run.read_text())["step"]
        return None

    def next_words(self):
        """The command that resumes the run, or starts it again."""
        more = ["--out", "run", "--log", "killed.jsonl"]
        if self.latest() is not None:
            return ["train", "--resume", *policy(self.dice, self.budgets), *more]
        self.log.unlink(missing_ok=True)
        return [*self.words, *more]

    def interrupt_once(self):
        case = Case(self.next_words())
        sent = self.dice.choice([*GRACEFUL, signal.SIGKILL])
        before, delay = self.latest(), self.dice.uniform(0, 1.1 * self.seconds)
        self.said.append(f"{case}; {sent.name} after {delay:.3f} s")
        run = start(case, self.folder)
        try:
            texts = run.communicate(timeout=delay)
        except subprocess.TimeoutExpired:
            run.send_signal(sent)
            try:
                texts = run.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                run.kill()
                self.fail(f"it does not heed {sent.name}")
        printed = self.judge(run, {0, 130, -sent}, texts)
        if before is not None:
            self.expect((self.latest() or -1) >= before, "a checkpoint was lost")
        if sent == signal.SIGKILL or run.returncode == 0:
            return
        steps = "  loss " in printed
        self.expect(run.returncode == 130 or not steps, "a signal ended a run that had begun")
        if steps:
            self.expect(self.latest() == last_step(self.log), "steps were lost that a signal should save")

    def end(self):
        self.run(Case(self.next_words()), {0})
        self.expect(self.losses("killed.jsonl") == self.losses("whole.jsonl"), "the losses differ")
        ours, whole = (self.folder / run / "latest" / "model.safetensors" for run in ("run", "whole"))
        self.expect(ours.read_bytes() == whole.read_bytes(), "the weights differ")

    def losses(self, name):
        lines = map(json.loads, (self.folder / name).read_text().splitlines())
        return [(e["step"], e["loss"], e["grad_norm"]) for e in lines if "loss" in e]

    def interrupted(self):
        for _ in range(self.dice.choice([1, 2, 4])):
            self.interrupt_once()
        self.end()

    def on_a_full_disk(self):
        way = self.dice.choice(["limit", "limit", "full", "disk"])
        if way == "disk" and os.geteuid() != 0:
            way = "limit"
        getattr(self, "with_" + way)()
        if way != "disk":
            self.end()

    def with_limit(self):
        for _ in range(self.dice.choice([1, 2])):
            file_bytes = int(2 ** self.dice.uniform(0, 19))
            before = self.latest()
            self.run(Case(self.next_words(), file_bytes=file_bytes), {0, 1})
            self.expect(before is None or (self.latest() or -1) >= before, "a checkpoint was lost")

    def with_full(self):
        words = self.next_words()
        if self.dice.random() < 0.5:
            self.run(Case(words, stdout="/dev/full"), {1})
        else:
            words[words.index("--log") + 1] = "/dev/full"
            self.run(Case(words), {1})

    def with_disk(self):
        """A disk of some kilobytes, which is enlarged later."""
        self.out.mkdir()
        size = int(2 ** self.dice.uniform(3, 10))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", self.out]
        if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode != 0:
            return self.with_limit()
        self.said.append(f"a disk of {size} KiB at run")
        try:
            self.run(Case(self.next_words()), {0, 1})
            subprocess.run(["mount", "-o", "remount,size=100m", self.out], check=True)
            self.end()
        finally:
            subprocess.run(["umount", self.out], check=True)
        return None
