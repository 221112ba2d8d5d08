"""What ranks cost beside a run without them: wall and processor seconds of a step of training.

ranks.py SPOOL TEXT [--rounds N] [--steps N] [CASE...]

SPOOL is the program and TEXT a text to train on. Each step of each case has the same 1,024 tokens
of a 124M GPT-2 in f32: without ranks in one micro-batch and in two, on one rank, and on two ranks of
one thread each, which are threads, processes or mpirun's. The cases take turns, so a machine's load
counts for all of them; a run is read from its third step on, and ended before its last. Printed are
the medians of the rounds, and their parts of the first case's.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

WHOLE = ["--batch", "4", "--accumulate", "1"]
HALVES = ["--batch", "2", "--accumulate", "2"]
CASES = {
    "plain": WHOLE,
    "one rank": [*WHOLE, "--ranks", "1"],
    "two micro-batches": HALVES,
    "two threads": [*HALVES, "--ranks", "2"],
    "two processes": [*HALVES, "--ranks", "2", "--ranks-as", "processes"],
    "mpirun": HALVES,
}
MPIRUN = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"]
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
FIRST = 2  # steps that are not read


def family(process):
    """A process and all that it started."""
    found = [process]
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            children = pathlib.Path(f"/proc/{process}/task/{thread}/children").read_text()
            for child in children.split():
                found += family(int(child))
    except OSError:
        pass  # it has just ended
    return found


def processor_seconds(processes):
    ticks = 0
    for process in processes:
        try:
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


def steps_done(log):
    return sum('"step_ms"' in line for line in log.read_text().splitlines()) if log.exists() else 0


def step(arguments, name):
    """The wall and processor seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        validation = pathlib.Path(folder) / "validation.txt"
        validation.write_text(pathlib.Path(arguments.text).read_text()[:700])
        command = [arguments.spool, "train", "--device", "cpu", "--model", "gpt2-124m", "--seq", "256",
                   "--data", arguments.text, "--val-data", str(validation), "--eval-every", "0",
                   "--no-sample", "--steps", str(arguments.steps), "--out", folder + "/run",
                   "--log", str(log), *CASES[name]]
        run = subprocess.Popen([*MPIRUN, *command] if name == "mpirun" else command,
                               env=os.environ | ROOT_MAY, stdout=subprocess.DEVNULL)
        marks = {}
        while len(marks) < 2 and run.poll() is None:
            time.sleep(0.02)
            done = steps_done(log)
            if done in (FIRST, arguments.steps - 1) and done not in marks:
                marks[done] = (time.time(), processor_seconds(family(run.pid)))
        for process in family(run.pid)[::-1]:
            os.kill(process, signal.SIGKILL)
        run.wait()
    if len(marks) < 2:
        raise SystemExit(f"{name}: the run ended before it was read")
    (began, before), (ended, after) = marks.values()
    steps = arguments.steps - 1 - FIRST
    return (ended - began) / steps, (after - before) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("spool")
    parser.add_argument("text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_intermixed_args()
    names = arguments.cases or [name for name in CASES if name != "mpirun" or shutil.which("mpirun")]
    seen = {name: [] for name in names}
    for turn in range(arguments.rounds):
        for name in names if turn % 2 == 0 else names[::-1]:
            seen[name].append(step(arguments, name))
            print(json.dumps({"round": turn, "case": name, "wall": round(seen[name][-1][0], 3),
                              "processor": round(seen[name][-1][1], 3)}), flush=True)
    medians = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in seen.items()}
    for name, (wall, processor) in medians.items():
        first = medians[names[0]]
        print(f"{name:18} {wall:7.3f} s {wall / first[0]:6.3f}   processor {processor:7.3f} s "
              f"{processor / first[1]:6.3f}")


if __name__ == "__main__":
    main()
