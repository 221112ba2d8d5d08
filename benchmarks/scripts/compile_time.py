"""The time to compile a program that is one public header and an empty main, with -O0.

compile_time.py [INCLUDE] [COMPILER...]

INCLUDE is an installed include folder, or the include folder of a build (build/release/include by
default), with a folder for each room. Prints, for each compiler and header, the least processor
time of the compiler in several runs, in seconds: the others were slowed down by other programs.
"""

import os
import pathlib
import shutil
import subprocess
import sys

HEADERS = ["", "spool/autograd/ops.h", "spool/spool.h", "spool/testing.h"]
RUNS = 9
ROOT = pathlib.Path(__file__).resolve().parents[2]


def seconds(compiler, paths, header):
    """The user time of one run of the compiler."""
    text = (f'#include "{header}"\n' if header else "") + "int main() {}\n"
    command = [compiler, "-std=c++20", "-O0", *paths, "-x", "c++", "-c", "-o", os.devnull, "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    process.stdin.write(text.encode())
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{compiler} does not compile {header}")
    return usage.ru_utime


include = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/release/include"
rooms = [include] if (include / "spool").is_dir() else sorted(include.iterdir())
compilers = sys.argv[2:] or [name for name in ["g++", "clang++"] if shutil.which(name)]
paths = [f"-I{room}" for room in rooms]
for compiler in compilers:
    for header in HEADERS:
        least = min(seconds(compiler, paths, header) for _ in range(RUNS))
        print(f"{compiler:10} {header or 'nothing':24} {least:.2f} s")
