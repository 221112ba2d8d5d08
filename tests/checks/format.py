"""Every source is formatted by clang-format 14; --fix formats it."""

import re
import shutil
import subprocess
import sys

from tree import LIBRARY, PROGRAMS, ROOT, SKIPPED, sources, verdict

VERSION = "14"  # another version breaks lines elsewhere
PLACE = re.compile(r"^([^:\n]+):(\d+):\d+: (?:error|warning)", re.MULTILINE)


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

# One call for all files, as most of the time would go into starting it.
check = [program, "--dry-run", "--Werror", *files]
said = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
first = {match[1]: match[2] for match in reversed(list(PLACE.finditer(said.stderr)))}
errors = [
    f"{file}:{line}: is not formatted; run python3 tests/checks/format.py --fix"
    for file, line in sorted(first.items())
]
if said.returncode and not errors:
    errors = [said.stderr]

verdict(errors, f"{len(files)} files are formatted")
