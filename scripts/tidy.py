"""Runs clang-tidy with the checks of .clang-tidy, on all cores. A source that it found clean is not
checked again while neither it, nor what it includes, nor its command differs: the user's cache keeps
the verdict (scripts/verdicts.py).

    scripts/tidy.sh             every source but *_test.cpp, most of which is GoogleTest; CUDA sources
                                and the emulator are checked as C++, as the emulated device has them
    scripts/tidy.sh --recent    those of them that scripts/changed.py lists: sources that differ from
                                the commit named by SPOOL_BASE, or else from 6 commits back, and the
                                nearest user of each header that does
    scripts/tidy.sh --all       every source, whatever the cache has
    scripts/tidy.sh FILE...     these sources
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from verdicts import ROOT, Verdicts, dependencies

TIDY = os.environ.get("SPOOL_TIDY", "clang-tidy-14")
EMULATED = re.compile(r"\.cu$|/tests/emulator/")
LEFT_OUT = re.compile(rf"_test\.cpp$|^{re.escape(str(ROOT))}/build/")
USAGE = "usage: scripts/tidy.sh [--recent | --all | FILE...]"


def commands(preset):
    """The commands that compile each source of a preset, which is configured, never built."""
    build = ROOT / "build/tidy" / preset
    configure = ["cmake", "--preset", preset, "-B", build, "-DCMAKE_UNITY_BUILD=OFF"]
    subprocess.run(configure, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        found.setdefault(entry["file"], []).append(entry["command"])
    return found


class Tidy:
    """clang-tidy, with the commands of both presets and the verdicts of former runs."""

    def __init__(self):
        self.version = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout
        self.commands = {preset: commands(preset) for preset in ["release", "asan"]}
        self.verdicts = Verdicts("tidy")

    def sources(self):
        """All sources that are checked."""
        found = [file for file in self.commands["release"] if not EMULATED.search(file)]
        found += [file for file in self.commands["asan"] if EMULATED.search(file)]
        return sorted(file for file in found if not LEFT_OUT.search(file))

    def _preset(self, source):
        return "asan" if EMULATED.search(source) else "release"

    def _compiled(self, source):
        """The commands that compile a source."""
        return self.commands[self._preset(source)].get(source, [])

    def _key(self, source):
        return [self.version, source, *self._compiled(source)]

    def known(self, source):
        """Whether it is known to be clean."""
        return self.verdicts.holds(self._key(source))

    def complaint(self, source):
        """What clang-tidy says of a source; empty if it is clean."""
        with tempfile.TemporaryDirectory() as folder:
            rules = pathlib.Path(folder) / "rules"
            command = [TIDY, "-p", ROOT / "build/tidy" / self._preset(source), "--quiet", source]
            # clang-tidy drops -MD, but not what is for the preprocessor.
            command.append(f"--extra-arg=-Wp,-MD,{rules}")
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            # Standard error only counts the warnings suppressed in headers of others.
            if done.returncode or done.stdout:
                return done.stdout or done.stderr
            # A header has no command, and a source that two programs compile has two lists of files.
            if len(self._compiled(source)) == 1:
                files = dependencies(rules.read_text())
                self.verdicts.keep(self._key(source), [*files, *rules_for(source)])
        return ""


def rules_for(source):
    """The files of rules that hold for a source: those of its folder and of the folders above."""
    folders = pathlib.Path(source).relative_to(ROOT).parents
    return [ROOT / folder / ".clang-tidy" for folder in folders if (ROOT / folder / ".clang-tidy").exists()]


def recent():
    """The files that scripts/changed.py lists."""
    command = [sys.executable, ROOT / "scripts/changed.py"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {str(ROOT / line) for line in said.splitlines()}


def chosen(tidy, arguments):
    """The sources to check, and those of them that are known to be clean."""
    if arguments and not arguments[0].startswith("-"):
        sources = [os.path.abspath(file) for file in arguments]
    else:
        sources = tidy.sources()
    if arguments == ["--recent"]:
        wanted = recent()
        sources = [source for source in sources if source in wanted]
    known = set() if arguments == ["--all"] else set(filter(tidy.known, sources))
    return sources, known


def main():
    arguments = sys.argv[1:]
    options = [word for word in arguments if word.startswith("-")]
    if options and arguments not in (["--recent"], ["--all"]):
        sys.exit(USAGE)
    tidy = Tidy()
    sources, known = chosen(tidy, arguments)
    unknown = [source for source in sources if source not in known]
    print(f"tidy: {len(unknown)} of {len(sources)} sources are to be checked", flush=True)
    faults = 0
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    try:
        for said in pool.map(tidy.complaint, unknown):
            if said:
                faults += 1
                print(said, end="", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)  # of which there are some if it is interrupted
    tidy.verdicts.forget_unused()
    if faults:
        sys.exit(f"tidy: clang-tidy found what is listed above, in {faults} sources")
    print(f"tidy: {len(sources)} sources are clean")


if __name__ == "__main__":
    main()
