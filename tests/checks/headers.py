"""Every header of the library compiles by itself, without warnings, with no more include paths than
its room has: headers.py INCLUDE COMPILER, where INCLUDE/<room> has the headers of one room.

Headers that a source of their room includes first, which the build itself compiles, are not compiled
again, nor are those that compiled before, with all that they include as it is now (scripts/verdicts.py).
The two headers of research code have no warnings that users may ask for, by any compiler that
is found here; what they include is what the page of public headers lists, and the first line of
each of these, and of no other, says that it is public.
"""

import concurrent.futures
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tree import COMMAND_LINE, FRONT_ROOM, HEADERS, LIBRARY, ROOT, room_of, rooms, sources, spelled, verdict

sys.path.append(str(ROOT / "scripts"))
from verdicts import Verdicts, dependencies  # noqa: E402

FLAGS = ["-std=c++20", "-fopenmp-simd", "-Wall", "-Wextra", "-Wshadow", "-Werror"]
USERS_FLAGS = ["-Wconversion", "-Wsign-conversion"]
PAGE = "docs/public-headers.md"
PUBLIC = f"// Public: one of the headers of {PAGE}."
ROOMS = rooms()
include, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]
verdicts = Verdicts("headers")


def include_path(room):
    """Where the build keeps the headers of a room: models/formats is in models_formats."""
    return include / room.replace("/", "_")


@functools.cache
def version(compiler):
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def fault(header, compiler=compiler, flags=()):
    """The compiler's errors for a program that is one header alone; empty if there are none."""
    paths = [f"-I{include_path(room)}" for room in sorted(ROOMS[room_of(header, ROOMS)])]
    command = [compiler, *paths, *FLAGS, *flags, "-fsyntax-only", "-x", "c++", "-"]
    known_as = [version(compiler), *command, header]
    if verdicts.holds(known_as):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules"
        done = subprocess.run(
            [*command, f"-Wp,-MD,{rules}"],
            input=f'#include "{spelled(header)}"\n',
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return f"{header} does not compile by itself:\n{done.stderr}"
        verdicts.keep(known_as, dependencies(rules.read_text()))
    return ""


def faults_of_page(front):
    """Where the page of public headers and the headers that include them differ."""
    listed = re.findall(r"^\| `([^`]+\.h)`", (ROOT / PAGE).read_text(), re.MULTILINE)
    included = set()
    for header in front:
        included |= set(re.findall(r'^#include "spool/(.*)"', (ROOT / header).read_text(), re.MULTILINE))
    for header in sorted(included - set(listed)):
        yield f"{PAGE}: does not list {header}, which research code includes"
    for header in sorted(set(listed) - included):
        yield f"{PAGE}: lists {header}, which neither spool/spool.h nor spool/testing.h includes"
    for header in sources(LIBRARY, HEADERS):
        if header in front or header.is_relative_to(COMMAND_LINE):
            continue
        says_public = (ROOT / header).read_text().startswith(PUBLIC + "\n")
        if says_public and str(header) not in listed:
            yield f"{header}: says that it is public, and {PAGE} does not list it"
        elif not says_public and str(header) in listed:
            yield f"{header}: {PAGE} lists it, so its first line is '{PUBLIC}'"


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

front = [h for h in headers if h.is_relative_to(FRONT_ROOM)]
alone = [h for h in headers if h not in front and (room_of(h, ROOMS), f'"{spelled(h)}"') not in built]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    errors = [error for error in pool.map(fault, alone) if error]
found = [compiler, *filter(None, map(shutil.which, ["g++", "clang++"]))]
compilers = {os.path.realpath(path) for path in found}
errors += [error for c in compilers for h in front if (error := fault(h, c, USERS_FLAGS))]
errors += faults_of_page(front)
verdicts.forget_unused()

built_first = len(headers) - len(alone)
verdict(errors, f"{len(alone)} headers compile by themselves; sources begin with the other {built_first}")
