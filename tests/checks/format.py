"""Every source is formatted by clang-format 14; --fix formats it."""

import re
import shutil
import subprocess
import sys

from tree import LIBRARY, PROGRAMS, ROOT, SKIPPED, sources, verdict

VERSION = "14"  # another version breaks lines elsewhere


def clang_format():
    """The path of clang-format 14, or None."""
    for name in [f"clang-format-{VERSION}", "clang-format"]:
        path = shutil.which(name)
        if not path:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        if re.search(rf"version {VERSION}\.", said):
            return path
    return None


program = clang_format()
if not program:
    print(f"skipped: there is no clang-format {VERSION} here (scripts/setup.sh installs it)")
    sys.exit(SKIPPED)

files = sources(LIBRARY + PROGRAMS)
if "--fix" in sys.argv:
    subprocess.run([program, "-i", *files], cwd=ROOT, check=True)

errors = []
for file in files:
    old = (ROOT / file).read_text()
    new = subprocess.run([program, file], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if old != new:
        pairs = zip(old.splitlines() + [""], new.splitlines() + [""])
        line = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), 1)
        errors.append(f"{file}:{line}: is not formatted; run python3 tests/checks/format.py --fix")

verdict(errors, f"{len(files)} files are formatted")
