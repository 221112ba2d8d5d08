"""The training step of Spool's benchmark `step` in PyTorch, for comparison.  Written for PyTorch 2.11.

The models are those of torch_models.py, without dropout.  A step is forward, backward, clipping by the
global norm, and fused AdamW with weight decay on matrices only.  Attention is
scaled_dot_product_attention, with the kernel that PyTorch chooses or --attention names.  Products of
f32 are not in TF32, as Spool's are not; autocast has them in bf16.

There are four ways; --ways selects some:
  eager           parameters, gradients and moments in f32, bf16 autocast: the most common
  compiled        as eager, with torch.compile
  eager-bf16      parameters and gradients in bf16, f32 masters that the optimizer updates
  compiled-bf16   as eager-bf16, with torch.compile; the closest to Spool

The JSON has for each way, after warm-up:
  step_ms                 median time of a step; on a GPU by events between consecutive steps
  host_ms                 median time that the host takes to enqueue a step
  tokens_per_s            by step_ms
  mfu                     flops of a step / step_ms / 989 TFLOP/s, the data sheet's rate of an H100 or
                          H200; flops are 6 a token for each weight of a matrix, and 12 L C T for
                          attention over C channels of queries, counted without the mask
  peak_allocated_bytes    peak of the tensors' bytes
  peak_reserved_bytes     peak of the bytes that PyTorch's allocator reserved
and for the device the rates of a large copy (bytes read plus written) and of a large bf16 product.

  python3 benchmarks/peers/torch_step.py --out peers.json
  python3 benchmarks/peers/torch_step.py --device cpu --model gpt2-tiny --batch 2 --seq 32 --steps 3
"""

import argparse
import contextlib
import gc
import json
import math
import pathlib
import statistics
import sys
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from models import MODELS, step_flops
from torch_models import call, make_model

PEAK_OF_HOPPER = 989e12
WAYS = ["eager", "eager-bf16", "compiled", "compiled-bf16"]
WARM_UP = 5


@dataclass
class Slice:
    """Consecutive numbers of a parameter."""

    parameter: nn.Parameter
    begin: int
    end: int

    def of(self, tensor):
        return tensor.detach().view(-1)[self.begin : self.end]

    def decayed(self):
        return self.parameter.dim() > 1


def parts_of(parameters, most):
    """Slices of all parameters, in lists of `most` numbers at most."""
    parts, left = [], 0
    for p in parameters:
        begin = 0
        while begin < p.numel():
            if not left:
                parts.append([])
                left = most
            end = min(p.numel(), begin + left)
            parts[-1].append(Slice(p, begin, end))
            left -= end - begin
            begin = end
    return parts


class Part:
    """AdamW on slices of parameters, or on f32 masters of them if they are bf16."""

    def __init__(self, slices):
        self.slices = slices
        self.values = [s.of(s.parameter) for s in slices]
        self.has_masters = self.values[0].dtype == torch.bfloat16
        self.updated = [value.float() for value in self.values] if self.has_masters else self.values
        groups = [
            {"params": [x for x, s in zip(self.updated, slices) if s.decayed()], "weight_decay": 0.1},
            {"params": [x for x, s in zip(self.updated, slices) if not s.decayed()], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        self.adamw = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)

    def step(self):
        for x, s in zip(self.updated, self.slices):
            x.grad = s.of(s.parameter.grad).to(x.dtype)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        if self.has_masters:
            torch._foreach_copy_(self.values, self.updated)

    def lasting(self):
        """The tensors that live between steps."""
        state = [value for of in self.adamw.state.values() for value in of.values()]
        return self.values + self.updated + [value for value in state if torch.is_tensor(value)]


# Bytes of f32 gradients at a time.  On a cpu glibc would take 32 MiB and more from the system anew each
# time; on a GPU the host would fall behind if parts were small, and the peak is many GiB.
PART_BYTES = {"cpu": 16 * 2**20, "cuda": 128 * 2**20}


class Optimizer:
    """AdamW on the parameters, or on f32 masters of bf16 parameters.

    AdamW takes gradients of the masters' type.  Those of bf16 parameters are made f32 part by part, so
    that 16 bytes a parameter are live, as in Spool, whose kernel reads bf16, and not 18.
    """

    def __init__(self, model):
        self.parameters = list(model.parameters())
        first = self.parameters[0]
        is_bf16 = first.dtype == torch.bfloat16
        most = PART_BYTES[first.device.type] // 4 if is_bf16 else sum(p.numel() for p in self.parameters)
        self.parts = [Part(slices) for slices in parts_of(self.parameters, most)]

    @torch.no_grad()
    def step(self):
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part in self.parts:
            part.step()
        for p in self.parameters:
            p.grad = None

    def lasting(self):
        return [tensor for part in self.parts for tensor in part.lasting()]


class Training:
    """A model of this type on random tokens, and its optimizer.

    A step computes the loss by what `prepared` makes of the model, in the context that `around` makes.
    """

    def __init__(self, config, batch, device, dtype, run_block=call, prepared=lambda model: model,
                 around=contextlib.nullcontext):
        torch.manual_seed(1)
        model = make_model(config, run_block).to(device=device, dtype=dtype)
        self.optimizer = Optimizer(model)
        self.loss_of, self.around = prepared(model), around
        self.tokens, self.targets = torch.randint(0, config.vocabulary, (2, *batch), device=device)

    def step(self):
        with self.around():
            loss = self.loss_of(self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Clock:
    """Milliseconds of the device between consecutive marks."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        self.marks = []

    def mark(self):
        if self.cuda:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def times(self):
        pairs = list(zip(self.marks, self.marks[1:]))
        if not self.cuda:
            return [(b - a) * 1e3 for a, b in pairs]
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in pairs]


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def median_ms(device, work, repeats=10):
    """Median time of repeated work, after warm-up."""
    for _ in range(3):
        work()
    clock = Clock(device)
    clock.mark()
    for _ in range(repeats):
        work()
        clock.mark()
    return statistics.median(clock.times())


def measure_device(device):
    """Rates of a large product and a large copy, on random numbers."""
    large = device.type == "cuda"
    n, floats = (8192, 2**28) if large else (512, 2**22)
    a, b = (torch.randn(n, n, device=device).bfloat16() for _ in range(2))
    product = median_ms(device, lambda: a @ b)
    source = torch.randn(floats, device=device)
    to = torch.empty_like(source)
    copy = median_ms(device, lambda: to.copy_(source))
    return {
        "product_edge": n,
        "product_flop_per_s": 2 * n**3 / product * 1e3,
        "copied_bytes": 4 * floats,
        "copied_bytes_per_s": 2 * 4 * floats / copy * 1e3,
    }


def attention_by(name, device):
    """A context in which attention uses the kernel of this name."""
    if device.type != "cuda" or name == "any":
        return contextlib.nullcontext()
    chosen = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    return sdpa_kernel(chosen[name])


def run(way, config, arguments, device):
    """Trains some steps this way; returns their times and memory."""
    B, T = arguments.batch, arguments.seq
    all_bf16 = way.endswith("-bf16")
    training = Training(
        config,
        (B, T),
        device,
        torch.bfloat16 if all_bf16 else torch.float32,
        prepared=torch.compile if way.startswith("compiled") else lambda model: model,
        around=lambda: torch.autocast(device.type, torch.bfloat16, enabled=not all_bf16),
    )
    step = training.step
    for _ in range(WARM_UP):
        first = step()
    synchronize(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock, host = Clock(device), []
    clock.mark()
    for _ in range(arguments.steps):
        loss = step()
        clock.mark()
    milliseconds = statistics.median(clock.times())
    for _ in range(5):
        start = time.perf_counter()
        loss = step()
        host.append((time.perf_counter() - start) * 1e3)
        synchronize(device)
    if not math.isfinite(loss.item()):
        raise RuntimeError(f"the loss is {loss.item()} after {first.item()}")
    flops = step_flops(config, B, T) / milliseconds * 1e3
    cuda = device.type == "cuda"
    return {
        "step_ms": milliseconds,
        "host_ms": statistics.median(host),
        "tokens_per_s": B * T / milliseconds * 1e3,
        "flop_per_s": flops,
        "mfu": flops / PEAK_OF_HOPPER,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved() if cuda else 0,
        "loss": loss.item(),
    }


def free_all(device):
    """Frees the memory and compiled code of one way before the next."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def parse():
    parser = argparse.ArgumentParser(description="a training step in PyTorch")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="gpt2-124m", choices=MODELS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated ways, in order")
    parser.add_argument("--attention", default="any", choices=["flash", "cudnn", "any"])
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file, written after each way; runs of others stay in it")
    arguments = parser.parse_args()
    unknown = set(arguments.ways.split(",")) - set(WAYS)
    if unknown:
        parser.error(f"unknown ways: {', '.join(unknown)}; choose from {', '.join(WAYS)}")
    if arguments.seq > MODELS[arguments.model].context:
        parser.error(f"--seq is beyond the context of {arguments.model}")
    return arguments


def earlier_runs(file):
    """What a file of results has, of this program or of llmc.py."""
    return json.loads(file.read_text()).get("runs", []) if file and file.exists() else []


def main():
    arguments = parse()
    device = torch.device(arguments.device)
    torch.set_float32_matmul_precision("highest")  # no TF32, as in Spool
    cuda = device.type == "cuda"
    report = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        **measure_device(device),
        "runs": earlier_runs(arguments.out),
    }
    free_all(device)
    failed = False
    for way in arguments.ways.split(","):
        name = f"{way}/{arguments.model}/B:{arguments.batch}/T:{arguments.seq}"
        try:
            with attention_by(arguments.attention, device):
                result = run(way, MODELS[arguments.model], arguments, device)
        except Exception as e:  # the other ways may work
            result, failed = {"error": f"{type(e).__name__}: {str(e)[:500]}"}, True
        report["runs"].append({"name": name, **result})
        print(json.dumps(report["runs"][-1]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=2) + "\n")
        free_all(device)
    if not arguments.out:
        print(json.dumps(report, indent=2))
    sys.exit(failed)


if __name__ == "__main__":
    main()
