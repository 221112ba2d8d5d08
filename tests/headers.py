"""Every header of the library compiles by itself, without warnings: headers.py INCLUDE COMPILER."""

import concurrent.futures
import os
import subprocess
import sys

from tree import LAYERS, sources, verdict

FLAGS = ["-std=c++20", "-fopenmp-simd", "-Wall", "-Wextra", "-Wshadow", "-Werror"]
include, compiler = sys.argv[1:]


def fault(header):
    """What the compiler says of a program that is this header alone; empty if nothing."""
    program = f'#include "spool/{header}"\n'
    done = subprocess.run(
        [compiler, "-I", include, *FLAGS, "-fsyntax-only", "-x", "c++", "-"],
        input=program,
        capture_output=True,
        text=True,
    )
    return f"{header} does not compile by itself:\n{done.stderr}" if done.returncode else ""


headers = sources(LAYERS, {".h"})
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    errors = [e for e in pool.map(fault, headers) if e]

verdict(errors, f"{len(headers)} headers compile by themselves")
