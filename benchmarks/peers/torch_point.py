"""One point of sweep.py: the step of gpt2.py in PyTorch in one way, in this process.

Prints a line of JSON: times of the steps after the warm-up, what the process took of memory, or why it
could not.  before_model_bytes is what it had after a step of gpt2-tiny in the same way.  The ways:
  eager             operations one by one
  checkpoint        each block in torch.utils.checkpoint
  save-on-cpu       in torch.autograd.graph.save_on_cpu, which on a cpu changes nothing
  compiled          torch.compile
  compiled-budgets  and with activation_memory_budget, --budget
  auto-chunker      and with inductor's auto_chunker
Parameters are of --dtype; those of bf16 have f32 masters that the optimizer updates.
"""

import argparse
import gc
import json
import math
import os
import statistics
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

from gpt2 import Clock, Training, synchronize
from joint.processes import Failed, forget_peak, memory_of, sentence
from models import MODELS

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def run_checkpointed(block, x):
    return checkpoint(block, x, use_reentrant=False)


def set_budget(fraction):
    from torch._functorch import config

    if not hasattr(config, "activation_memory_budget"):
        raise Failed(f"PyTorch {torch.__version__} has no activation_memory_budget")
    config.activation_memory_budget = fraction


def enable_auto_chunker():
    from torch._inductor import config

    chunker = getattr(config, "auto_chunker", None)
    if not hasattr(chunker, "enable"):
        raise Failed(f"PyTorch {torch.__version__} has no auto_chunker")
    chunker.enable = True


def way_of(arguments):
    """What Training is told for a way."""
    way = arguments.way
    if way == "checkpoint":
        return {"run_block": run_checkpointed}
    if way == "save-on-cpu":
        pinned = arguments.device == "cuda"
        return {"around": lambda: torch.autograd.graph.save_on_cpu(pin_memory=pinned)}
    if way == "eager":
        return {}
    if way == "compiled-budgets":
        set_budget(arguments.budget)
    elif way == "auto-chunker":
        enable_auto_chunker()
    return {"prepared": torch.compile}


class Memory:
    """Most memory of this process, and of those of its steps that are measured."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        self.before = memory_of(os.getpid(), "VmRSS")

    def begin(self):
        self.whole_peak = memory_of(os.getpid(), "VmHWM")
        self.forgot = forget_peak(os.getpid())
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def numbers(self):
        peak = memory_of(os.getpid(), "VmHWM")
        found = {
            "before_model_bytes": self.before,
            "process_peak_bytes": max(peak, self.whole_peak),
            "steps_peak_bytes": peak if self.forgot else None,
        }
        if self.cuda:
            found["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
            found["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        return found


def load_all(device, dtype, way):
    """Trains a tiny model in this way: the process then has all libraries and compilers, and no model."""
    training = Training(MODELS["gpt2-tiny"], (1, 32), device, dtype, **way)
    training.step()
    synchronize(device)
    del training
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def measure(arguments):
    device, shape = torch.device(arguments.device), (arguments.batch, arguments.seq)
    dtype, way = DTYPES[arguments.dtype], way_of(arguments)
    load_all(device, dtype, way)
    memory = Memory(device)
    training = Training(MODELS[arguments.model], shape, device, dtype, **way)
    for _ in range(arguments.warm_up):
        training.step()
    synchronize(device)
    memory.begin()
    processor = time.process_time()
    clock = Clock(device)
    clock.mark()
    for _ in range(arguments.steps):
        loss = training.step()
        clock.mark()
    milliseconds = clock.times()
    processor = time.process_time() - processor
    if not math.isfinite(loss.item()):
        raise Failed(f"the loss is {loss.item()}")
    step_ms = statistics.median(milliseconds)
    return {
        "step_ms": step_ms,
        "processor_ms": processor * 1e3 / arguments.steps,
        "tokens_per_s": math.prod(shape) / step_ms * 1e3,
        "steps_ms": milliseconds,
        "loss": loss.item(),
        **memory.numbers(),
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", required=True)
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--model", default="gpt2-tiny", choices=MODELS)
    parser.add_argument("--dtype", default="f32", choices=DTYPES)
    parser.add_argument("--device", default="cpu")
    for name, default in {"batch": 2, "seq": 64, "threads": 2, "warm-up": 5, "steps": 7}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def main():
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    torch.backends.cuda.matmul.allow_tf32 = True
    status = 0
    try:
        numbers = measure(arguments)
    except Exception as e:  # its reason is the point's row
        kind = "" if isinstance(e, Failed) else f"{type(e).__name__}: "
        numbers, status = {"error": sentence(f"{kind}{e}")}, 1
    print(json.dumps(numbers), flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
