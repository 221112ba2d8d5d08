"""What the checks share: the tree of sources, C++ without its comments and strings, the verdict."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAYERS = ["runtime", "kernels", "autograd", "planner", "models"]  # each may include those before it
PROGRAMS = ["tests", "benchmarks", "examples"]  # may include every layer
CPP = {".h", ".cpp", ".cuh", ".cu"}
SKIPPED = 77  # the exit status CTest takes for "could not run here"


def sources(folders, suffixes=CPP):
    """The files with these suffixes in these folders, as paths from the root, in order."""
    found = []
    for folder in folders:
        files = (ROOT / folder).rglob("*")
        found += [f.relative_to(ROOT) for f in files if f.suffix in suffixes and f.is_file()]
    return sorted(found)


LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""  # comments
    r'''|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'''  # raw strings
    r"""|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",  # strings; not 1'000
    re.DOTALL,
)


def bare(text):
    """C++ with comments blank and literals empty; every line stays where it is."""

    def blank(match):
        found = match[0]
        left = "" if found.startswith(("//", "/*")) else '""'
        return left + "\n" * found.count("\n")

    return LITERAL.sub(blank, text)


def verdict(errors, praise):
    """Prints what is wrong, or what was found right, and exits accordingly."""
    print("\n".join(errors) if errors else praise)
    sys.exit(1 if errors else 0)
