"""One point of sweep.py: the step of torch_step.py in PyTorch in one way, in this process.

Prints a line of JSON: times of the steps after the warm-up, what the process took of memory, or why it
could not.  The ways:
  eager             operations one by one
  checkpoint        each block in torch.utils.checkpoint
  save-on-cpu       in torch.autograd.graph.save_on_cpu, which on a cpu changes nothing
  compiled          torch.compile
  compiled-budgets  and with activation_memory_budget, --budget
  auto-chunker      and with inductor's auto_chunker, told to cut whatever it finds: by default it cuts
                    only logits that are 8 times what they are computed from, so of thousands of tokens.
                    auto_chunks is how often it did
Parameters are of --dtype; those of bf16 have f32 masters that the optimizer updates.

On a cpu the process first gives freed blocks of 64 KiB and more back to the system at once, and then
keeps them, as glibc does by default: steps are faster, and what is free between live blocks adds to
resident memory.  PyTorch is given the better of both: times are of the second kind of steps, and
returned_peak_bytes is the most resident memory in the first.
  before_model_bytes   the process after a step of gpt2-tiny in the same way, without that model
  steps_peak_bytes     most resident memory in the steps that are timed
  process_peak_bytes   and in all
  tensors_peak_bytes   most bytes of tensors, in a step that is not timed: of those that are there
                       between steps, and of what PyTorch's profiler saw allocated beyond; scratch memory
                       of oneDNN and MKL is not seen
"""

import argparse
import ctypes
import gc
import json
import math
import os
import statistics
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

from torch_step import Clock, Training, synchronize
from joint.points import RETURNED_STEPS
from joint.processes import Failed, Peak, memory_of, sentence
from models import MODELS

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt()


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
    chunker.amplify_ratio_threshold = 0


def auto_chunks():
    """How often auto_chunker has cut a graph, or None if this PyTorch does not tell."""
    from torch._inductor import metrics

    return getattr(metrics, "num_auto_chunking", None)


def way_of(arguments):
    """The arguments of Training for a way."""
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


def set_allocator(map_from, trim_from):
    """Sets from how many bytes on glibc maps single blocks and returns the free end of the heap."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, map_from)
        mallopt(M_TRIM_THRESHOLD, trim_from)


def return_freed_blocks():
    set_allocator(map_from=64 * 2**10, trim_from=64 * 2**10)


def keep_freed_blocks():
    """The thresholds that glibc reaches by itself when large blocks are freed."""
    set_allocator(map_from=32 * 2**20, trim_from=64 * 2**20)


def lasting_bytes(training):
    """Bytes of the tensors that live between steps."""
    tensors = [training.tokens, training.targets, *training.optimizer.lasting()]
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def tensors_peak(training):
    """Peak bytes of tensors in a step; None if the profiler does not report all frees."""
    before = lasting_bytes(training)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        training.step()
    try:
        events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    except AttributeError:  # of another PyTorch
        return None
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return before + peak if events and live == 0 else None


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


def timed(training, device, steps):
    """Trains; returns milliseconds of each step, of the processor in all of them, and the last loss."""
    synchronize(device)
    processor = time.process_time()
    clock = Clock(device)
    clock.mark()
    for _ in range(steps):
        loss = training.step()
        clock.mark()
    milliseconds = clock.times()
    return milliseconds, (time.process_time() - processor) * 1e3, loss.item()


def train_on_cpu(training, arguments):
    """The numbers of memory, and what timed() returns."""
    peak = Peak(os.getpid())
    training.step()  # compiles, and makes the optimizer's state
    peak.begin()
    for _ in range(RETURNED_STEPS):
        training.step()
    returned = peak.numbers()["steps_peak_bytes"]
    keep_freed_blocks()
    for _ in range(arguments.warm_up):
        training.step()
    peak.begin()
    took = timed(training, torch.device("cpu"), arguments.steps)
    memory = {"returned_peak_bytes": returned, **peak.numbers()}
    return {**memory, "tensors_peak_bytes": tensors_peak(training)}, took


def train_on_gpu(training, arguments):
    peak, device = Peak(os.getpid()), torch.device(arguments.device)
    for _ in range(arguments.warm_up):
        training.step()
    synchronize(device)
    peak.begin()
    torch.cuda.reset_peak_memory_stats()
    took = timed(training, device, arguments.steps)
    memory = {"peak_allocated_bytes": torch.cuda.max_memory_allocated()}
    memory |= {"peak_reserved_bytes": torch.cuda.max_memory_reserved()}
    return {**memory, **peak.numbers()}, took


def measure(arguments):
    device, shape = torch.device(arguments.device), (arguments.batch, arguments.seq)
    dtype, way = DTYPES[arguments.dtype], way_of(arguments)
    if device.type == "cpu":
        return_freed_blocks()
    load_all(device, dtype, way)
    before, chunks = memory_of(os.getpid(), "VmRSS"), auto_chunks()
    training = Training(MODELS[arguments.model], shape, device, dtype, **way)
    train = train_on_gpu if device.type == "cuda" else train_on_cpu
    memory, (milliseconds, processor_ms, loss) = train(training, arguments)
    if not math.isfinite(loss):
        raise Failed(f"the loss is {loss}")
    step_ms = statistics.median(milliseconds)
    found = {
        "step_ms": step_ms,
        "processor_ms": processor_ms / arguments.steps,
        "tokens_per_s": math.prod(shape) / step_ms * 1e3,
        "steps_ms": milliseconds,
        "loss": loss,
        "before_model_bytes": before,
        **memory,
    }
    if arguments.way == "auto-chunker":
        found["auto_chunks"] = None if chunks is None else auto_chunks() - chunks
    return found


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
    torch.set_float32_matmul_precision("highest")  # no TF32, as in Spool
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
