"""Shared by the checks: the tree of sources, its rooms, C++ without comments, the verdict."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIBRARY = ["runtime", "kernels", "autograd", "planner", "models"]
PROGRAMS = ["tests", "benchmarks", "examples"]
FRONT_ROOM = "models/library"  # its headers are included as spool/<name>.h
COMMAND_LINE = "models/cli"  # the one room that parses arguments, names flags and prints
HEADERS = {".h", ".cuh"}
CPP = HEADERS | {".cpp", ".cu"}
SKIPPED = 77  # the exit status by which CTest knows a skipped test

ROOM = re.compile(r"^(?:front_)?room\(([^)]*)\)", re.MULTILINE)


def rooms():
    """Each room's path and the set of rooms it sees, itself included.

    Read from the lines `room(<path> <rooms and libraries it names>...)` of CMakeLists.txt; a room
    also sees what the rooms it names see.
    """
    found = {}
    for match in ROOM.finditer((ROOT / "CMakeLists.txt").read_text()):
        path, *named = match[1].split()
        found[path] = {path}.union(*(found[name] for name in named if name in found))
    if not found:
        verdict(["CMakeLists.txt: has no line room(<path> <rooms it names>...)"], "")
    return found


def room_of(path, known):
    """The innermost of these rooms that a path stands in, or None."""
    return next((str(p) for p in path.parents if str(p) in known), None)


def spelled(header):
    """A header of the library, as it is included."""
    return f"spool/{header.name if header.is_relative_to(FRONT_ROOM) else header}"


def sources(folders, suffixes=CPP):
    """The files with these suffixes in these folders, as paths from the root, in order."""
    found = []
    for folder in folders:
        files = (ROOT / folder).rglob("*")
        found += [f.relative_to(ROOT) for f in files if f.suffix in suffixes and f.is_file()]
    return sorted(found)


def in_command_line(file):
    return file.is_relative_to(COMMAND_LINE)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""  # comments
    r'''|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'''  # raw strings
    r"""|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",  # strings; not 1'000
    re.DOTALL,
)


def is_comment(literal):
    return literal.startswith(("//", "/*"))


def bare(text):
    """C++ with comments blank and literals empty; every line keeps its number."""

    def blank(match):
        return ("" if is_comment(match[0]) else '""') + "\n" * match[0].count("\n")

    return LITERAL.sub(blank, text)


def verdict(errors, praise):
    """Prints the errors, or what was found right, and exits accordingly."""
    print("\n".join(errors) if errors else praise)
    sys.exit(1 if errors else 0)
