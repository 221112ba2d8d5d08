"""Writes one source of several tests, which compile in half the time together: unite.py UNITED TEST...

Each test's anonymous namespaces stand in a namespace of its own, so two tests may have equal names.
Lines keep their numbers, and messages name the test, from the root of the tree.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPENED, CLOSED = "\nnamespace {\n", "\n}  // namespace\n"


def part(test):
    """The lines of a test, in a namespace of its own."""
    path, text = test.resolve().relative_to(ROOT), test.read_text()
    if text.count(OPENED) != text.count(CLOSED):
        sys.exit(f"{path}: an anonymous namespace ends otherwise than in a line '{CLOSED.strip()}'")
    own = "_".join([*path.parent.parts, path.stem])
    text = text.replace(OPENED, f"\nnamespace {own} {{ namespace {{\n")
    text = text.replace(CLOSED, "\n}}  // namespace\n")
    return f'#line 1 "{path}"\n{text}'


united, *tests = map(pathlib.Path, sys.argv[1:])
united.write_text("".join(map(part, tests)))
