"""Writes what a machine with a GPU is to a JSON file, and prints it: facts.py DEVICE.JSON.

Names the GPUs, the driver of the kernel and that of the programs, the compilers, and each library and
header that Spool loads or is built with, with the file it was found in; null for one that is not found."""

import glob
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

FIELDS = ["name", "compute_cap", "driver_version", "memory.total", "memory.used", "compute_mode",
          "clocks.max.sm", "clocks.max.mem", "power.limit", "ecc.mode.current", "mig.mode.current"]
LIBRARIES = ["libcuda.so.1", "libcublasLt.so", "libcudnn.so.9", "libnvrtc.so", "libnccl.so.2", "libdnnl.so.2"]
HEADERS = ["cuda_runtime.h", "cublasLt.h", "cudnn.h", "cudnn_frontend.h", "nccl.h"]


def said(*command):
    """The output of a command, or None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def folders(kind):
    """Where the toolkit, Python's packages and the carried folder have libraries or headers."""
    root = pathlib.Path(__file__).resolve().parents[2]
    machine = f"{platform.machine()}-linux-gnu"
    found = ["/usr/local/cuda/lib64", "/usr/local/nvidia/lib64"] if kind == "lib" else ["/usr/local/cuda/include", "/usr/include"]
    found += [str(root / ".carry/usr" / ("include" if kind == "include" else f"lib/{machine}"))]
    for path in sys.path:
        found += sorted(glob.glob(f"{path}/nvidia/*/{kind}"))
    return found


def library(name, listed):
    """The file of a library that the system's loader finds, else one elsewhere."""
    stem = re.escape(name)
    for line in listed.splitlines():
        if re.match(rf"\s*{stem}[.0-9]* ", line):
            return os.path.realpath(line.split("=> ")[-1])
    for folder in folders("lib"):
        if found := sorted(glob.glob(f"{folder}/{name}*")):
            return os.path.realpath(found[-1])
    return None


def header(name):
    return next((f"{folder}/{name}" for folder in folders("include") if os.path.exists(f"{folder}/{name}")), None)


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def first_line(text):
    return text.splitlines()[0] if text else None


def main():
    rows = said("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader") or ""
    kernel = pathlib.Path("/proc/driver/nvidia/version")
    listed = said("ldconfig", "-p") or said("/sbin/ldconfig", "-p") or ""
    cuda = re.search(r"CUDA Version: *([\d.]+)", said("nvidia-smi") or "")
    facts = {
        "gpus": [dict(zip(FIELDS, map(str.strip, row.split(",")))) for row in rows.splitlines()],
        "driver_of_kernel": first_line(kernel.read_text()) if kernel.exists() else None,
        "cuda_of_driver": cuda[1] if cuda else None,
        "libraries": {name: library(name, listed) for name in LIBRARIES},
        "headers": {name: header(name) for name in HEADERS},
        "torch": version("torch"),
        "nvcc": (said("nvcc", "--version") or "none").splitlines()[-1],
        "compiler": first_line(said("g++", "--version")),
        "cmake": first_line(said("cmake", "--version")),
        "commit": said("git", "rev-parse", "HEAD"),
        "processor": said("sh", "-c", "lscpu | sed -n 's/^Model name: *//p'"),
        "system": platform.platform(),
    }
    pathlib.Path(sys.argv[1]).write_text(json.dumps(facts, indent=2))
    print(json.dumps(facts, indent=2))
    print(rows.splitlines()[0] if rows else "nvidia-smi does not describe the GPU")


main()
