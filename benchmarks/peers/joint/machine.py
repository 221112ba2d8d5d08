"""Describes the machine on which the points were measured."""

import os
import pathlib
import platform
import re
import subprocess


def processor():
    """The processor, how much of it this process may use, and the memory."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{name[1] if name else platform.machine()}, {cores} cores, {gib:.0f} GiB"


def said_by_nvidia_smi(*words):
    """A command's output, or nothing if it does not run."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    command = ["nvidia-smi", *(["-i", first] if first else []), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.strip()


def gpu():
    """The GPU's name, its driver, and the CUDA that the driver knows."""
    facts = said_by_nvidia_smi("--query-gpu=name,driver_version", "--format=csv,noheader").split("\n")[0]
    name, _, driver = facts.partition(", ")
    if not driver:
        return "unknown, as nvidia-smi does not tell"
    cuda = re.search(r"CUDA Version: *([\d.]+)", said_by_nvidia_smi())
    return f"{name}, driver {driver}" + (f", CUDA {cuda[1]}" if cuda else "")
