#!/usr/bin/env python3
"""Prints the C++ sources and headers that differ from a commit, and of the users of each header that
does the one nearest to it, one a line, as paths from the root.

    scripts/changed.py            differences from the commit named by SPOOL_BASE, or else from 6
                                  commits back; every file if the history does not reach so far
    scripts/changed.py COMMIT     differences from this commit
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMITS = 6
SUFFIXES = {".h", ".cpp", ".cuh", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def git(*arguments):
    """The lines git prints, or None if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def base():
    """The commit to compare with, or None."""
    named = sys.argv[1] if sys.argv[1:] else os.environ.get("SPOOL_BASE")
    for commit in filter(None, [named, f"HEAD~{COMMITS}"]):
        if found := git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"):
            return found[0]
        print(f"changed: there is no commit {commit} here", file=sys.stderr)
    return None


def sources():
    tops = [path for path in ROOT.iterdir() if path.is_dir() and path.name != "build"]
    tops = [path for path in tops if not path.name.startswith(".")]
    return {path for top in tops for path in top.rglob("*") if path.suffix in SUFFIXES}


def included(file, text):
    """The project's files that a file includes."""
    for name in INCLUDE.findall(text):
        top, _, rest = name.partition("/")
        places = [ROOT / rest] if top == "spool" else [ROOT / name, file.parent / name]
        yield from (pathlib.Path(os.path.normpath(p)) for p in places if p.is_file())


def users_of_headers(files):
    """For each header, the files that include it directly."""
    users = {}
    for file in files:
        for header in included(file, file.read_text()):
            users.setdefault(header, set()).add(file)
    return users


def with_nearest(changed, files):
    """These files, and of each header a source: its own, else one of its folder, else any."""
    users = users_of_headers(files)
    found = set(changed)
    for header in changed:
        near = [user for user in users.get(header, ()) if user.suffix in {".cpp", ".cu"}]
        near.sort(key=lambda f: (f.stem != header.stem, f.parent != header.parent, f))
        found |= set(near[:1])
    return found


def main():
    files, commit = sources(), base()
    found = files
    if commit:
        names = git("diff", "--name-only", commit) or []
        names += git("ls-files", "--others", "--exclude-standard") or []
        found = with_nearest({ROOT / name for name in names}, files) & files
    print("\n".join(sorted(str(path.relative_to(ROOT)) for path in found)))


if __name__ == "__main__":
    main()
