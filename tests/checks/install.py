"""A program outside the tree builds against an installed Spool and runs: install.py BUILD CMAKE
COMPILER. The headers of the command line are not installed."""

import pathlib
import subprocess
import sys
import tempfile

from tree import COMMAND_LINE, ROOT, verdict

build, cmake, compiler = sys.argv[1:]


def run(*command):
    """Runs a command and returns its output, which is the verdict if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        verdict([f"{' '.join(map(str, command))} failed:\n{done.stdout}"], "")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    prefix, mine = pathlib.Path(folder, "prefix"), pathlib.Path(folder, "mine")
    run(cmake, "--install", build, "--prefix", prefix)
    if (prefix / "include" / "spool" / COMMAND_LINE).exists():
        verdict([f"the headers of {COMMAND_LINE} are installed"], "")
    run(
        *[cmake, "-S", ROOT / "tests" / "install", "-B", mine],
        *["-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}"],
    )
    run(cmake, "--build", mine)
    said = run(mine / "research")
    command = prefix / "bin" / "spool"
    if command.exists():
        run(command, "--help")

verdict([], f"a program built against the installed library says: {said.strip()}")
