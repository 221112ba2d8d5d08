#!/usr/bin/env python3
"""Refuses the message of a commit whose subject, its first line, has more than 72 characters.

  scripts/commit_subject.py FILE    the message, as git hands it to a commit-msg hook

Logs and lists show one line a commit.  A prefix by which a commit will be melted into another is
not counted, and what git itself writes about a merge or a revert is let pass.
"""

import pathlib
import re
import sys

CHARACTERS = 72
MELTED = re.compile(r"^(?:(?:fixup|squash|amend)! )+")
MERGED = "Merge (?:branch|branches|remote-tracking branch|tag|commit|pull request) "
BY_GIT = re.compile(rf'^(?:{MERGED}|Revert "|Reapply ")')


def subject(message):
    """The first line that is neither blank nor a comment of git's; none: an empty string."""
    lines = (line.strip() for line in message.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")


if len(sys.argv) != 2:
    sys.exit("usage: scripts/commit_subject.py FILE")
line = MELTED.sub("", subject(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
if len(line) > CHARACTERS and not BY_GIT.match(line):
    sys.exit(
        f"the subject has {len(line)} characters, and has {CHARACTERS} at most; say why in the text"
        f" below it:\n  {line[:CHARACTERS]}|{line[CHARACTERS:]}"
    )
