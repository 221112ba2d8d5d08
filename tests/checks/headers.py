"""Every header of the library compiles by itself, without warnings, with no more include paths than
its room has: headers.py INCLUDE COMPILER, where INCLUDE/<room> has the headers of one room.

Headers that a source of their room includes first, which the build itself compiles, are not compiled
again.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

from tree import LIBRARY, ROOT, room_of, rooms, sources, verdict

FLAGS = ["-std=c++20", "-fopenmp-simd", "-Wall", "-Wextra", "-Wshadow", "-Werror"]
ROOMS = rooms()
include, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]


def include_path(room):
    """Where the build keeps the headers of a room: models/formats is in models_formats."""
    return include / room.replace("/", "_")


def fault(header):
    """The compiler's errors for a program that is one header alone; empty if there are none."""
    paths = [f"-I{include_path(room)}" for room in sorted(ROOMS[room_of(header, ROOMS)])]
    done = subprocess.run(
        [compiler, *paths, *FLAGS, "-fsyntax-only", "-x", "c++", "-"],
        input=f'#include "spool/{header}"\n',
        capture_output=True,
        text=True,
    )
    return f"{header} does not compile by itself:\n{done.stderr}" if done.returncode else ""


def first_include(source):
    """The room of a source, and what it includes first."""
    found = re.search(r"^#include (\S+)", (ROOT / source).read_text(), re.MULTILINE)
    return room_of(source, ROOMS), found and found[1]


built = {first_include(source) for source in sources(LIBRARY, {".cpp"})}
headers = sources(LIBRARY, {".h"})
paths = [include_path(room) for room in ROOMS]
errors = [f"{path}: there is no such folder" for path in paths if not path.is_dir()]
errors += [f"{header}: stands in no room" for header in headers if not room_of(header, ROOMS)]
if errors:
    verdict(errors, "")

alone = [h for h in headers if (room_of(h, ROOMS), f'"spool/{h}"') not in built]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    errors = [error for error in pool.map(fault, alone) if error]

built_first = len(headers) - len(alone)
verdict(errors, f"{len(alone)} headers compile by themselves; sources begin with the other {built_first}")
