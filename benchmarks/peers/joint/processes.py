"""Reads the memory and time of processes from /proc, and runs programs within a time limit."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

TICK = 1 / os.sysconf("SC_CLK_TCK")
LONGEST = 300  # characters of a reason


class Failed(Exception):
    """Why a point has no numbers."""


def memory_of(pid, field):
    """Bytes of a field of a process's status, such as VmHWM, its peak resident memory."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise Failed(f"the status of process {pid} has no {field}")


def forget_peak(pid):
    """Resets VmHWM to the current memory; returns whether the system can."""
    try:
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


class Peak:
    """Peak resident memory of a process since begin(), which may be repeated, and since its start."""

    def __init__(self, pid):
        self.pid, self.before = pid, 0

    def begin(self):
        self.before = max(self.before, memory_of(self.pid, "VmHWM"))
        self.forgot = forget_peak(self.pid)

    def numbers(self):
        """steps_peak_bytes, since begin(), is None if the system cannot tell."""
        now = memory_of(self.pid, "VmHWM")
        return {
            "process_peak_bytes": max(self.before, now),
            "steps_peak_bytes": now if self.forgot else None,
        }


def processor_seconds(pid):
    """Processor seconds of all threads so far."""
    numbers = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) * TICK


def sentence(text):
    """The first line that says something, and the next if it ends in a colon, short enough for a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[:2] if lines and lines[0].endswith(":") else lines[:1]
    return " ".join(" ".join(said).split())[:LONGEST]


def ending(status, said):
    """Why a program failed, from its exit status and standard error."""
    if status < 0:
        memory = ", as when memory runs out" if -status == signal.SIGKILL else ""
        return f"signal {-status} ({signal.Signals(-status).name}) ended it{memory}"
    lines = [line for line in said.splitlines() if line.strip()]
    return sentence(lines[-1]) if lines else f"it ended with status {status} and no word"


class Child:
    """A program in a group of its own, which ends with this object, and its children with it."""

    def __init__(self, command, limit, environment=None):
        self.limit, self.began = limit, time.monotonic()
        self.stderr = tempfile.TemporaryFile("w+")
        self.stdout = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self.stdout,
            stderr=self.stderr,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.stderr.close()
        self.stdout.close()

    def ended(self):
        """The exit status, or None while it runs; a failure past its time limit."""
        status = self.process.poll()
        if status is None and time.monotonic() - self.began > self.limit:
            raise Failed(f"it was ended after the time limit of {self.limit:.0f} s")
        return status

    def wait(self, step=0.05):
        """Waits for the end; returns the status and what was printed."""
        while (status := self.ended()) is None:
            time.sleep(step)
        return status, self.printed(self.stdout)

    def printed(self, stream):
        stream.seek(0)
        return stream.read()

    def why(self, status):
        return ending(status, self.printed(self.stderr))
