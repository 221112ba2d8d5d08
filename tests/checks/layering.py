"""A folder includes itself and the folders before it; CUDA is included only in cuda/ folders, by
what needs it to compile: .cu and .cuh."""

import re

from tree import LAYERS, PROGRAMS, ROOT, sources, verdict

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
CUDA = re.compile(r"(cu(?!char$)|nv|nccl)")


def needs_cuda(file):
    return file.suffix in {".cu", ".cuh"}


def fault_of_ours(file, quote, header):
    """What is wrong with including spool/<folder>/..., or None."""
    folder, target = file.parts[0], header.split("/")[1:]
    if target[0] not in LAYERS:
        return f"the library has no folder {target[0]}/"
    if not ROOT.joinpath(*target).is_file():
        return "there is no such file"
    if header.endswith(".cuh") and folder in LAYERS and not needs_cuda(file):
        return "what needs CUDA is included only where CUDA is there, in .cu and .cuh"
    if folder in LAYERS and LAYERS.index(target[0]) > LAYERS.index(folder):
        return f"{target[0]}/ comes after {folder}/"
    return None if quote == '"' else 'what is Spool\'s is included in quotes: "spool/..."'


def fault(file, quote, header):
    """What is wrong with an include, or None."""
    if header.startswith("spool/"):
        return fault_of_ours(file, quote, header)
    if quote == "<":
        inside = "cuda" in file.parts and needs_cuda(file)
        outside = CUDA.match(header) and not inside
        return "CUDA's headers are included only in cuda/*.cu and *.cuh" if outside else None
    if file.parts[0] in LAYERS:
        return 'what is Spool\'s is included as "spool/<folder>/<name>.h", the rest as <name>'
    if any((ROOT / file.parts[0]).rglob(header)):
        return None
    return f"there is no such file in {file.parts[0]}/"


errors = []
files = sources(LAYERS + PROGRAMS)
for file in files:
    text = (ROOT / file).read_text()
    for match in INCLUDE.finditer(text):
        why = fault(file, match[1], match[2])
        if why:
            line = text.count("\n", 0, match.start(2)) + 1
            errors.append(f"{file}:{line}: includes {match[2]}, but {why}")

verdict(errors, f"{len(files)} files include only what their folder may")
