"""scripts/commit_subject.py refuses long subjects, as the hook of a repository and by itself."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from tree import ROOT, verdict

SCRIPT = ROOT / "scripts" / "commit_subject.py"
LONGEST = "a" * 72
REFUSED = [
    LONGEST + "b",
    LONGEST + "b\n\nText.\n",
    "\n# A comment of git's.\n\n" + LONGEST + "b\n",
    "fixup! " + LONGEST + "b\n",
    "é" * 73 + "\n",
    "Merged " + LONGEST + "\n",
]
ALLOWED = [
    "",
    LONGEST + "\n",
    LONGEST + "  \n\n" + "text " * 30 + "\n",
    "é" * 72 + "\n",
    "Short\n# " + LONGEST + "b\n",
    "fixup! squash! " + LONGEST + "\n",
    "Merge branch 'a' of " + LONGEST + "\n",
    f'Revert "{LONGEST}"\n',
]


def refuses(message, folder):
    """Whether the script refuses a message; and what it says."""
    file = pathlib.Path(folder) / "message"
    file.write_text(message, encoding="utf-8")
    done = subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True)
    return done.returncode != 0, done.stdout + done.stderr


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", *who, "-C", folder, *words]
    return subprocess.run(command, capture_output=True, text=True)


errors = []
with tempfile.TemporaryDirectory() as folder:
    for message in REFUSED:
        refused, said = refuses(message, folder)
        if not refused or "at most" not in said:
            errors.append(f"allows {message!r}: {said}")
    for message in ALLOWED:
        refused, said = refuses(message, folder)
        if refused or said:
            errors.append(f"refuses {message!r}: {said}")

if not shutil.which("git"):
    verdict(errors, "the script refuses what it should; there is no git here to call it as a hook")
with tempfile.TemporaryDirectory() as folder:
    git(folder, "init", "--quiet")
    hook = pathlib.Path(folder) / ".git" / "hooks" / "commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SCRIPT}" "$1"\n')
    hook.chmod(0o755)
    done = git(folder, "commit", "--quiet", "--allow-empty", "-m", LONGEST + "b", "-m", "Text.")
    if done.returncode == 0 or "73 characters" not in done.stderr:
        errors.append(f"git commits a long subject: {done.stderr}")
    done = git(folder, "commit", "--quiet", "--allow-empty", "-m", LONGEST, "-m", "Text.")
    if done.returncode != 0:
        errors.append(f"git does not commit a subject of 72 characters: {done.stderr}")

verdict(errors, f"{len(REFUSED)} subjects are refused, and {len(ALLOWED)} are allowed")
