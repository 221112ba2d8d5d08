"""Prints the measurements of scripts/gpu.sh as Markdown tables: report.py FOLDER.

The folder has the JSON files of the benchmarks kernels and step, of peers/torch_step.py, and of the device.
A missing file leaves out its table."""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])


def load(name):
    """The parsed file, or None if it is absent or was cut short."""
    try:
        return json.loads((folder / name).read_text())
    except (OSError, ValueError):
        return None


def table(titles, rows):
    """Prints a Markdown table."""
    print(f"\n| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def number(value, digits=1):
    """The text of a cell; empty for None."""
    return "" if value is None else f"{value:.{digits}f}"


def runs(name):
    """Yields (short name, benchmark) for each benchmark of a file; prints those that failed."""
    for run in (load(name) or {}).get("benchmarks", []):
        short = run["name"].split("/iterations:")[0].removesuffix("/manual_time")
        if run.get("error_occurred"):
            print(f"\n{short}: {run.get('error_message')}")
        else:
            yield short, run


def report_device():
    """Prints the GPUs and their measured rates."""
    for gpu in (load("device.json") or {}).get("gpus", []):
        print(f"\n{gpu['name']}, compute capability {gpu['compute_cap']}, driver {gpu['driver_version']}")
    context = (load("kernels.json") or {}).get("context", {})
    if "copied_gb_per_s" in context:
        print(
            f"Measured: {float(context['bf16_gflop_per_s']) / 1e3:.0f} TFLOP/s bf16,"
            f" {float(context['f32_gflop_per_s']) / 1e3:.0f} TFLOP/s f32,"
            f" {float(context['copied_gb_per_s']):.0f} GB/s copied,"
            f" {float(context['launch_us']):.1f} us a launch."
        )


def report_kernels():
    """Prints a row for each kernel."""
    rows = []
    for name, run in runs("kernels.json"):
        rows.append(
            [
                name,
                number(run.get("us", run["real_time"])),
                number(run.get("gb_per_s"), 0),
                number(run.get("of_copy"), 2),
                number(run["gflop_per_s"] / 1e3) if "gflop_per_s" in run else "",
                number(run.get("share"), 2),
                number(run.get("host_us")),
            ]
        )
    if rows:
        table(["kernel", "us", "GB/s", "of a copy", "TFLOP/s", "share", "host us"], rows)


def name_of_peer(run):
    """The name of a run in peers.json, of PyTorch or of llm.c."""
    return run["name"] if run["name"].startswith("llm.c") else f"PyTorch {run['name']}"


def report_steps():
    """Prints a row for each of Spool's steps, then for each of the peers'."""
    rows = []
    for name, run in runs("step.json"):
        milliseconds = run.get("step_ms", run.get("optimizer_ms", run["real_time"]))
        rows.append(
            [
                name,
                number(milliseconds, 2),
                number(run.get("host_ms"), 2),
                number(run.get("tokens_per_s"), 0),
                number(run.get("mfu"), 3),
                number(run.get("peak_bytes"), 0),
                number(run.get("foretold_bytes"), 0),
            ]
        )
    for run in (load("peers.json") or {}).get("runs", []):
        if "error" in run:
            print(f"\n{name_of_peer(run)}: {run['error']}")
            continue
        peak = run.get("peak_allocated_bytes")
        rows.append(
            [
                name_of_peer(run),
                number(run["step_ms"], 2),
                number(run.get("host_ms"), 2),
                number(run["tokens_per_s"], 0),
                number(run.get("mfu"), 3),
                "" if peak is None else f"{peak} ({run['peak_reserved_bytes']} reserved)",
                "",
            ]
        )
    if rows:
        table(["step", "ms", "host ms", "tokens/s", "MFU", "peak, bytes", "foretold, bytes"], rows)


def report_plans():
    """Prints a row for each plan that was trained, then what was wrong."""
    plans = (load("step.json") or {}).get("plans", {})
    rows = [
        [
            run["what"],
            str(run["loss_chunk"]),
            str(run["peak_bytes"]),
            str(run["measured_peak_bytes"]),
            number(run["step_ms"], 2),
            number(run["measured_step_ms"], 2),
            number(run["corrected_step_ms"], 2),
        ]
        for run in plans.get("runs", [])
    ]
    if rows:
        titles = ["plan", "rows of the loss", "peak, bytes", "measured", "step, ms", "measured", "corrected"]
        table(titles, rows)
    for wrong in plans.get("wrong", []):
        print(f"\n{wrong}")


def report_kernel_times():
    """Prints the kernels of a step, as the data sheet foretells them and as measured."""
    for model, kernels in (load("step.json") or {}).get("kernel_times", {}).items():
        print(f"\nA step of {model}, kernel by kernel:")
        rows = []
        for name, launches, foretold, measured in kernels:
            ratio = measured / foretold if foretold and measured is not None else None
            rows.append([name, str(launches), number(foretold, 3), number(measured, 3), number(ratio, 2)])
        table(["kernel", "launches", "foretold, ms", "measured, ms", "measured / foretold"], rows)


report_device()
report_kernels()
report_steps()
report_plans()
report_kernel_times()
