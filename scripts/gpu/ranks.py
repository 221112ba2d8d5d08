"""What ranks with a GPU each do on this machine, into a file of results: ranks.py BUILD RESULTS --gpus N.

With one GPU: what one rank can tell (tests/runtime/nccl/one_rank.cpp). With more, also the tests of ranks; whether runs on
every power of two of the GPUs end in the files and the losses of one rank, in the bytes that were foretold; whether those of
ranks that share each micro-batch, or store parameters in parts, are near them; the exchange of gradients beside NCCL's sum;
and steps of GPT-2 124M and 1558M, foretold and measured.  Each part is written when it is done.  The last line says how many passed; the exit status is 1 if one did not.

  --parts one,bits      some parts alone, of one, tests, bits, mesh, exchange and steps
  --seconds N           begins no part later
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ["model.safetensors", "optimizer.safetensors", "run.json"]
SMALL = ["--batch", "2", "--seq", "64", "--accumulate", "24", "--steps", "4", "--dropout", "0.1"]
RUNS = {
    "gpt2-tiny f32": ["--model", "gpt2-tiny", *SMALL],
    "llama-tiny bf16": ["--model", "llama-tiny", *SMALL, "--dtype", "bf16"],
    "gpt2-tiny bf16 stochastic, streamed": ["--model", "gpt2-tiny", *SMALL, "--dtype", "bf16", "--rounding", "stochastic",
                                            "--optimizer-state", "streamed"],
}
STEPS = {"gpt2-124m": ["--batch", "32"], "gpt2-1558m": ["--batch", "4"]}
UNITS = {"us": 1e-3, "ms": 1, "s": 1e3}
TRACED = re.compile(r"(foretold|measured) ([\d.]+) (us|ms|s), exposed copies [^;]*?, exposed exchanges ([\d.]+) (us|ms|s)")
MOST_OFF = 0.02  # of the step, that exposed exchanges may be beside what was foretold


class Failed(Exception):
    """A part that did not pass."""


class Machine:
    def __init__(self, arguments, folder):
        self.build, self.gpus, self.folder = pathlib.Path(arguments.build).resolve(), arguments.gpus, folder
        self.text = folder / "random.txt"
        self.text.write_text("".join(random.Random(1).choices("abcdefghij klmnop\n", k=2_000_000)))

    def call(self, command, **more):
        """What a command prints; its last lines are the error if it fails."""
        run = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=os.environ | more)
        print(run.stdout[-4000:], run.stderr[-4000:], sep="", flush=True)
        if run.returncode:
            said = (run.stderr.strip() or run.stdout.strip() or "ended without a word").splitlines()
            raise Failed(f"{pathlib.Path(command[0]).name}: {said[-1]}")
        return run.stdout

    def train(self, name, ranks, words):
        """Trains, and returns its losses, a hash of its files, and its times; its bytes must be those foretold."""
        out = self.folder / f"{name.replace(' ', '-')}-{ranks}"
        log = out.with_suffix(".log")
        printed = self.call([self.build / "spool", "train", "--device", "cuda", "--data", self.text, "--out", out, "--log", log,
                             "--ranks", ranks, "--no-sample", "--eval-every", "0", *words])
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        last = [line["ranks"] for line in lines if "ranks" in line][-1]
        for rank in last:
            for what in "peak_bytes", "host_peak_bytes", "sent_bytes":
                if rank[what] != rank[f"foretold_{what}"]:
                    raise Failed(f"{name} on {ranks}: rank {rank['rank']} has {what} {rank[what]}, foretold "
                                 f"{rank[f'foretold_{what}']}")
        whole = hashlib.sha256()
        for file in FILES:
            whole.update((out / "latest" / file).read_bytes())
        steps = [line for line in lines if "loss" in line]
        traced = {which: {"step_ms": float(step) * UNITS[a], "exposed_ms": float(exposed) * UNITS[b]}
                  for which, step, a, exposed, b in TRACED.findall(printed)}
        return {"losses": [line["loss"] for line in steps], "files": whole.hexdigest(), "ranks": last, "traced": traced,
                "step_ms": statistics.median(line["step_ms"] for line in steps[len(steps) // 3:])}

    def counts(self):
        """Two ranks, four, and so on, and one for each GPU."""
        return sorted({2 ** n for n in range(1, 8) if 2 ** n <= self.gpus} | {self.gpus})


def one(machine):
    answers = machine.folder / "answers.json"
    try:
        machine.call([machine.build / "tests/runtime_nccl_one_rank", answers])
    except Failed:
        if not answers.exists():
            raise
    found = json.loads(answers.read_text())
    wrong = [f"{a['name']}: {a['meaning']}" for a in found["answers"] if a["outcome"] == "no"]
    return found, wrong


def tests(machine):
    machine.call([sys.executable, ROOT / "tests/models/steps/nccl/nccl_test.py",
                  machine.build / "tests/models_steps_nccl_ranks", "--gpus", machine.gpus])
    machine.call(["ctest", "--test-dir", machine.build, "--tests-regex", "^end_to_end/cuda_rank", "--output-on-failure"],
                 SPOOL_NIGHTLY="1")
    return {}, []


def differences(name, alone, count, run):
    if run["losses"] != alone["losses"]:
        yield f"{name}: the losses of {count} ranks are not those of one"
    if run["files"] != alone["files"]:
        yield f"{name}: the files of {count} ranks are not those of one"


def bits(machine):
    found, wrong = {}, []
    for name, words in RUNS.items():
        counts = [count for count in machine.counts() if 24 % count == 0]
        alone = machine.train(name, 1, words)
        found[name] = {"1": alone["files"]}
        for count in counts:
            run = machine.train(name, count, words)
            found[name][str(count)] = run["files"]
            wrong += differences(name, alone, count, run)
    return found, wrong


def mesh(machine):
    """Of gpt2-tiny in f32 and llama-tiny in bf16, whose sums have another order on a mesh."""
    found, wrong = {}, []
    axes = {"tensor=2": 2, **({"2x2": 4, "data=2,tensor=2": 4} if machine.gpus >= 4 else {})}
    for name, near in {"gpt2-tiny f32": 1e-5, "llama-tiny bf16": 2e-2}.items():
        alone = machine.train(f"{name} alone", 1, RUNS[name])
        found[name] = {}
        for text, ranks in axes.items():
            run = machine.train(f"{name} {text}", ranks, [*RUNS[name], "--mesh", text, "--shard", "megatron"])
            off = max(abs(a - b) / max(1, abs(a)) for a, b in zip(alone["losses"], run["losses"], strict=True))
            found[name][text] = {"loss_off": off, "step_ms": run["step_ms"]}
            if not off <= near:
                wrong.append(f"{name}: a loss on {text} is {off:.2g} beside that of one rank")
        parts = machine.train(f"{name} parts", 2, [*RUNS[name], "--zero", "3", "--recompute", "gathers"])
        whole = machine.train(f"{name} whole", 2, [*RUNS[name], "--recompute", "none"])
        wrong += differences(f"{name} in parts", whole, 2, parts)
    return found, wrong


def exchange(machine):
    out = machine.folder / "exchange.json"
    machine.call([machine.build / "benchmarks/exchange", "--device=cuda", f"--ranks={machine.gpus}", f"--json={out}"])
    return json.loads(out.read_text()), []


def steps(machine):
    found, wrong = {}, []
    for model, batch in STEPS.items():
        words = ["--model", model, "--dtype", "bf16", *batch, "--seq", "1024", "--accumulate", machine.gpus, "--steps", "9"]
        alone = machine.train(model, 1, words)
        run = machine.train(model, machine.gpus, [*words, "--trace", machine.folder / f"{model}.trace.json"])
        wrong += differences(model, alone, machine.gpus, run)
        found[model] = {"one_rank": alone, "ranks": run}
        if set(run["traced"]) != {"foretold", "measured"}:
            wrong.append(f"{model}: no times of exchanges were printed")
            continue
        measured, foretold = run["traced"]["measured"], run["traced"]["foretold"]
        off = measured["exposed_ms"] / measured["step_ms"] - foretold["exposed_ms"] / foretold["step_ms"]
        found[model]["exposed_share_off"] = off
        if abs(off) > MOST_OFF:
            wrong.append(f"{model}: exposed exchanges are {off:+.1%} of the step beside what was foretold")
    return found, wrong


PARTS = {"one": one, "tests": tests, "bits": bits, "mesh": mesh, "exchange": exchange, "steps": steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("results")
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=3600)
    arguments = parser.parse_args()
    begin, results, outcomes = time.monotonic(), {"gpus": arguments.gpus}, []
    with tempfile.TemporaryDirectory(dir=arguments.build) as folder:
        machine = Machine(arguments, pathlib.Path(folder))
        for name in arguments.parts.split(","):
            if name != "one" and arguments.gpus < 2:
                results[name] = {"left_out": "there is one GPU"}
            elif time.monotonic() - begin > arguments.seconds:
                results[name] = {"left_out": "no time is left"}
                outcomes.append(False)
            else:
                try:
                    results[name], wrong = PARTS[name](machine)
                except (Failed, OSError, ValueError, KeyError, IndexError) as error:
                    results[name], wrong = {}, [str(error) or repr(error)]
                outcomes.append(not wrong)
                if wrong:
                    results[name]["wrong"] = wrong
                for sentence in wrong:
                    print(f"{name}: {sentence}")
            pathlib.Path(arguments.results).write_text(json.dumps(results, indent=2) + "\n")
    print(f"{sum(outcomes)} of {len(outcomes)} parts passed, on {arguments.gpus} GPU{'s' * (arguments.gpus > 1)}")
    sys.exit(not all(outcomes))


if __name__ == "__main__":
    main()
