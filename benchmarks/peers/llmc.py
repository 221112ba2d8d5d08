"""The training step of Spool's benchmark `step` in llm.c, by a program that the user built.

llm.c (https://github.com/karpathy/llm.c) trains GPT-2 124M in bf16 with f32 masters, as Spool does.
This runs its train_gpt2cu on random tokens, from random weights, and adds a run to the JSON that
torch_step.py writes: the median of the steps' times as llm.c prints them, without the first ones.

  make -C llm.c train_gpt2cu USE_CUDNN=1
  python3 benchmarks/peers/llmc.py llm.c/train_gpt2cu --out peers.json
"""

import argparse
import json
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile

WARM_UP = 5
VOCABULARY = 50257
LINE = re.compile(r"step\s+(\d+)/\d+.*?\|\s*([0-9.]+) ms")


def write_tokens(file, count):
    """Writes a shard of llm.c: 256 words of header, then tokens of 16 bits."""
    header = [20240520, 1, count] + [0] * 253
    tokens = random.Random(1).choices(range(VOCABULARY), k=count)
    file.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{count}H", *tokens))


def step_times(program, arguments):
    """Milliseconds of each step."""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "random_train_000.bin"
        write_tokens(data, arguments.batch * arguments.seq * 4 + 1)
        tokens = str(arguments.batch * arguments.seq)
        words = [program, "-e", "d12", "-i", str(data), "-j", str(data), "-b", str(arguments.batch)]
        words += ["-t", str(arguments.seq), "-d", tokens, "-x", str(arguments.steps), "-r", "0"]
        words += ["-v", "1000000", "-m", "1", "-s", "1000000", "-h", "0"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=arguments.timeout)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip()[-500:] or f"status {done.returncode}")
    times = [float(match[2]) for match in LINE.finditer(done.stdout)]
    if len(times) <= WARM_UP:
        raise RuntimeError(f"{len(times)} steps were printed: {done.stdout[-300:]}")
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="a train_gpt2cu of llm.c")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--timeout", type=float, default=60, help="seconds")
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file of torch_step.py, to add to")
    arguments = parser.parse_args()
    run = {"name": f"llm.c/gpt2-124m/B:{arguments.batch}/T:{arguments.seq}"}
    try:
        milliseconds = statistics.median(step_times(arguments.program, arguments)[WARM_UP:])
        run["step_ms"] = milliseconds
        run["tokens_per_s"] = arguments.batch * arguments.seq * 1e3 / milliseconds
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as e:
        run["error"] = str(e)
    print(json.dumps(run))
    if arguments.out:
        report = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        report.setdefault("runs", []).append(run)
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit("error" in run)


if __name__ == "__main__":
    main()
