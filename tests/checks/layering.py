"""Includes follow the rooms: a file includes headers of its own room and of the rooms it sees.

The rooms are the lines room(...) of CMakeLists.txt. The tests and helpers of tests/<room> see what
the room sees, and the helpers of the rooms below. CUDA's headers are included only in cuda/, by .cu
and .cuh; CLI11 only in models/cli; nlohmann's full header by one header and by sources that say, in
their first comment or their header's, which JSON they read or write.
"""

import os
import re

from tree import COMMAND_LINE, FRONT_ROOM, HEADERS, LIBRARY, PROGRAMS, ROOT
from tree import in_command_line, line_of, room_of, rooms, sources, verdict

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
CUDA = re.compile(r"(cu(?!char$)|nv|nccl)")
# A header that research code includes in CUDA sources, too, and there includes a .cuh.
OF_BOTH = "autograd/ops/map.h"
EMULATOR = "tests/emulator"  # stands in for the CUDA toolkit; the tests of any room may use it
END_TO_END = "tests/end_to_end"
WHOLE = [END_TO_END, "tests/fuzz", "tests/install", "benchmarks", "examples"]  # see all that is public

ROOMS = rooms()
PUBLIC = set(ROOMS) - {COMMAND_LINE}


def needs_cuda(file):
    return file.suffix in {".cu", ".cuh"}


def seen_by(file):
    """The rooms whose headers a file may include, or None if it stands in no room."""
    if file.parts[0] in LIBRARY:
        return ROOMS.get(room_of(file, ROOMS))
    if file.is_relative_to(EMULATOR):
        return ROOMS["kernels"]
    if file.is_relative_to(END_TO_END):
        return set(ROOMS)
    if any(file.is_relative_to(folder) for folder in WHOLE):
        return PUBLIC
    return ROOMS.get(room_of(file.relative_to(file.parts[0]), ROOMS))


def fault_of_room(file, header):
    """What is wrong with including spool/<room>/... or the helper tests/<room>/..., or None."""
    top, target = header.split("/", 1)
    if top == "spool":
        place = ROOT / target if "/" in target else ROOT / FRONT_ROOM / target
    else:
        place = ROOT / header
    if not place.is_file() or ".." in header:
        return "there is no such file"
    room = room_of(place.relative_to(ROOT if top == "spool" else ROOT / top), ROOMS)
    if room is None:
        if top == "spool":
            return "it stands in no room"
        outside = [EMULATOR, *(folder for folder in WHOLE if file.is_relative_to(folder))]
        return None if header.startswith(tuple(f"{f}/" for f in outside)) else "it stands in no room"
    if room in seen_by(file):
        return None
    elsewhere = "; what needs it is a test of end_to_end" if file.parts[0] == "tests" else ""
    return f"{file.parent} does not see {room}{elsewhere}"


def fault_of_ours(file, quote, header):
    """What is wrong with including a file of the project, or None."""
    if quote != '"':
        return "the project's own headers are included in quotes"
    if header.startswith("tests/") and file.parts[0] != "tests":
        return "only tests include the tests' helpers"
    if file.parts[0] in LIBRARY and header.endswith(".cuh") and not needs_cuda(file):
        if str(file) == OF_BOTH:
            return None
        return "a .cuh is included only by .cu and .cuh"
    return fault_of_room(file, header)


def says_json(file):
    """Whether the comment that opens a source, or its header, speaks of JSON."""
    for path in [file, *(file.with_suffix(suffix) for suffix in HEADERS)]:
        if (ROOT / path).is_file():
            opening = re.match(r"(?:\s*//[^\n]*\n|\s*#pragma once\n)+", (ROOT / path).read_text())
            if opening and "json" in opening[0].lower():
                return True
    return False


def fault_of_json(file):
    """What is wrong with including nlohmann's full header, or None."""
    if file.suffix in HEADERS:
        return "a header needs no more than <nlohmann/json_fwd.hpp>"
    if file.parts[0] in LIBRARY and not says_json(file):
        return "neither its first comment nor its header's says which JSON it reads or writes"
    return None


def fault_of_others(file, header):
    """What is wrong with including <header>, or None."""
    if header == "nlohmann/json.hpp":
        return fault_of_json(file)
    if header.startswith("CLI/") and not in_command_line(file):
        return f"only {COMMAND_LINE} parses arguments"
    if CUDA.match(header) and not ("cuda" in file.parts and needs_cuda(file)):
        return "CUDA's headers are included only in cuda/, by .cu and .cuh"
    return None


def fault_beside(file, header):
    """What is wrong with including a file by a path from where the including one stands, or None."""
    if file.is_relative_to(EMULATOR):  # found as the toolkit's headers are
        places = [ROOT / file.parent, ROOT / EMULATOR, ROOT / EMULATOR / "include"]
    elif any(file.is_relative_to(folder) for folder in WHOLE) and ".." not in header:
        places = [ROOT / file.parent, ROOT / file.parts[0]]
    else:
        return 'headers are included as "spool/<room>/..." and "tests/<room>/...", others as <...>'
    found = any(os.path.isfile(place / header) for place in places)
    return None if found else "there is no such file"


def fault(file, quote, header):
    """What is wrong with an include, or None."""
    if header.startswith(("spool/", "tests/")):
        return fault_of_ours(file, quote, header)
    return fault_of_others(file, header) if quote == "<" else fault_beside(file, header)


errors = []
files = sources(LIBRARY + PROGRAMS)
for file in files:
    if seen_by(file) is None:
        errors.append(f"{file}: stands in no room")
        continue
    text = (ROOT / file).read_text()
    for match in INCLUDE.finditer(text):
        if why := fault(file, match[1], match[2]):
            line = line_of(text, match.start(2))
            errors.append(f"{file}:{line}: includes {match[2]}, but {why}")

verdict(errors, f"{len(files)} files include only what their room sees")
