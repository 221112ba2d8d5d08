"""PyTorch's points: an environment with PyTorch, and a process for each point."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from joint.processes import Child, Failed, sentence

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "torch_point.py"
CPU_WHEELS = ["--index-url", "https://download.pytorch.org/whl/cpu"]


def default_environment():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "spool" / "peers"


def install(python, device):
    """PyTorch and numpy; for a cpu the build without CUDA, if its index can be reached."""
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    wheels = [CPU_WHEELS, []] if device == "cpu" else [[]]
    for index in wheels:
        done = subprocess.run([*pip, *index, "torch", "numpy"], capture_output=True, text=True)
        if done.returncode == 0:
            return
        said = sentence((done.stderr.strip().splitlines() or [""])[-1])
        if index:
            print(
                f"pip cannot install PyTorch without CUDA ({said}): PyPI's build follows, and where that"
                " is for CUDA its libraries take memory of the process",
                file=sys.stderr,
                flush=True,
            )
    raise ValueError(f"pip cannot install torch: {said}; --python names a python that has it")


def environment(folder, device):
    """The python of a virtual environment with PyTorch, created if missing."""
    python = folder / "bin" / "python"
    if not (folder / "has-torch").exists():
        print(f"making {folder} with PyTorch", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install(python, device)
        (folder / "has-torch").touch()
    return python


def conditions(python):
    """PyTorch's version, and whether it is a CUDA build, whose libraries a cpu process loads, too."""
    words = [str(python), "-c", "import torch; print(torch.__version__, torch.version.cuda)"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    except OSError as e:
        raise ValueError(f"{python} does not run ({e.strerror}); --python names one with PyTorch") from e
    if done.returncode:
        raise ValueError(f"{python} has no PyTorch; --python names one that has, or leave it out")
    version, _, cuda = done.stdout.strip().partition(" ")
    return {"torch": version, "torch built": "without CUDA" if cuda in ("", "None") else f"for CUDA {cuda}"}


def measure(python, point, counts, limit):
    """Trains in a fresh process, which prints its numbers as its last line."""
    cell = point.cell
    words = [python, PROGRAM, "--way", point.way, "--model", cell.model, "--dtype", cell.dtype]
    words += ["--batch", cell.batch, "--seq", cell.seq, "--device", cell.device]
    words += ["--threads", cell.threads, "--warm-up", counts.warm_up, "--steps", counts.steps]
    if point.setting is not None:
        words += ["--budget", point.setting]
    with tempfile.TemporaryDirectory(prefix="spool-peers-") as folder:
        environment = {
            "OMP_NUM_THREADS": str(cell.threads),
            "TORCHINDUCTOR_CACHE_DIR": folder,
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # more would be processes of their own
        }
        with Child(words, limit, environment) as child:
            status, printed = child.wait()
            return parse(printed) or fail(child.why(status))


def parse(printed):
    """The last line if it is a point's numbers, or None."""
    last = (printed.strip().splitlines() or [""])[-1]
    try:
        numbers = json.loads(last)
    except ValueError:
        return None
    if not isinstance(numbers, dict):
        return None
    return fail(numbers["error"]) if "error" in numbers else numbers


def fail(why):
    raise Failed(why)
