"""Every header of the library compiles by itself, without warnings: headers.py INCLUDE COMPILER.

The build has shown it of those that some source, which every build compiles, includes before all else.
"""

import concurrent.futures
import os
import re
import subprocess
import sys

from tree import LAYERS, ROOT, sources, verdict

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


def first_include(source):
    found = re.search(r"^#include (\S+)", (ROOT / source).read_text(), re.MULTILINE)
    return found and found[1]


shown = {first_include(source) for source in sources(LAYERS, {".cpp"})}
headers = [header for header in sources(LAYERS, {".h"}) if f'"spool/{header}"' not in shown]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    errors = [e for e in pool.map(fault, headers) if e]

verdict(errors, f"{len(headers)} headers compile by themselves, and the others before all else in a source")
