"""A folder has at most 25 names directly in it; a header and its source are one name.

A folder in it counts as one. Lists, where files are independent of each other and are found by
name, may be longer: kernels, ops, tests, and inputs for them.
"""

from tree import CPP, LIBRARY, ROOT, verdict

NAMES = 25
FOLDERS = [*LIBRARY, "benchmarks", "cmake", "docs", "examples", "scripts"]
LISTS = ["kernels", "autograd/ops"]


def name(path):
    return path.stem if path.suffix in CPP else path.name


def is_list(folder):
    return any(folder.relative_to(ROOT).is_relative_to(path) for path in LISTS)


def folders():
    for top in FOLDERS:
        yield from [ROOT / top, *(path for path in (ROOT / top).rglob("*") if path.is_dir())]


errors = []
found = sorted(path for path in folders() if path.is_dir() and path.name != "__pycache__")
for folder in found:
    names = {name(path) for path in folder.iterdir() if path.name != "__pycache__"}
    if len(names) > NAMES and not is_list(folder):
        errors.append(
            f"{folder.relative_to(ROOT)}/: has {len(names)} names, and a folder has {NAMES} at most;"
            " make a folder of those that belong together"
        )

verdict(errors, f"{len(found)} folders have at most {NAMES} names, or are lists")
