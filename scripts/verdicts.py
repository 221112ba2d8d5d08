"""Verdicts kept in the user's cache: what a command found clean is not looked at again while neither the
command nor a file that it read differs. Files of the tree count by their paths from its root, so that
its copies share their verdicts.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "spool"
STATES = 4  # of a command's files that are remembered, such as those of several branches
UNUSED_DAYS = 30  # after which a command is forgotten


def hashed(text):
    return hashlib.blake2b(text, digest_size=16).hexdigest()


@functools.cache
def place(path):
    """The path of a file without links, from the root where it is below."""
    path = os.path.realpath(path)
    return path.removeprefix(f"{ROOT}/")


@functools.cache
def content(place):
    """The hash of a file, or None."""
    try:
        return hashed((ROOT / place).read_bytes())
    except OSError:
        return None


def is_edited_since(time, place):
    """Whether a file was written, or removed, since then."""
    try:
        return (ROOT / place).stat().st_mtime >= time
    except OSError:
        return True


def digest(places):
    """The hash of these files, or None if one is missing."""
    contents = [content(place) for place in places]
    return None if None in contents else hashed("".join(contents).encode())


@functools.cache
def processor():
    """What -march=native depends on."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def dependencies(rules):
    """The files that a compiler's rule for make, as of -MD, names."""
    _, _, files = rules.replace("\\\n", " ").partition(": ")
    return [file.replace("\0", " ") for file in files.replace("\\ ", "\0").split()]


class Verdicts:
    """The commands of one kind, such as "tidy", that found nothing."""

    def __init__(self, kind):
        self.folder = CACHE / kind
        self.folder.mkdir(parents=True, exist_ok=True)
        self.started = time.time()

    def _file(self, command):
        command = " ".join(map(str, command)).replace(f"{ROOT}/", "")
        return self.folder / hashed(f"{command}\n{processor() * ('native' in command)}".encode())

    def _states(self, file):
        """The files that the command read and their hash, of each time it found nothing."""
        try:
            return json.loads(zlib.decompress(file.read_bytes()))
        except (OSError, zlib.error, ValueError):
            return []

    def holds(self, command):
        """Whether the command found nothing in files that are as they were."""
        file = self._file(command)
        held = any(digest(places) == wanted for places, wanted in self._states(file))
        if held:
            os.utime(file)
        return held

    def keep(self, command, files):
        """Remembers that the command read these files and found nothing."""
        places = sorted({place(file) for file in files})
        # What is hashed of a file that was edited meanwhile may not be what the command read.
        if any(is_edited_since(self.started, place) for place in places):
            return
        file, state = self._file(command), [places, digest(places)]
        states = [state, *(other for other in self._states(file) if other != state)]
        written = file.with_suffix(f".{os.getpid()}")
        written.write_bytes(zlib.compress(json.dumps(states[:STATES]).encode()))
        written.replace(file)

    def forget_unused(self):
        oldest = time.time() - UNUSED_DAYS * 24 * 3600
        for file in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another program writes or forgets, too
                if file.stat().st_mtime < oldest:
                    file.unlink()
