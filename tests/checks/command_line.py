"""Only models/cli is a command line: no other part of the library names a --flag, prints, or knows
where the source tree was. Programs that link the library have no flags and own their output: an
error names the setting in words and in its field `settings`, and models/cli adds the flag.
"""

import re

from tree import COMMAND_LINE, LIBRARY, LITERAL, ROOT
from tree import bare, in_command_line, is_comment, line_of, sources, verdict

FLAG = re.compile(r"(?<![\w-])--(?:[a-z][\w-]*|$)")  # a lone -- before the name of one, too
PRINTS = re.compile(
    r"\bstd::(?:w?cout|w?cerr|w?clog)\b|\bfmt::print(?:ln)?\b|\bstd::print(?:ln)?\b"
    r"|(?<![\w.>:])(?:std::)?(?:v?f?printf|f?put(?:s|c|char))\s*\("
)
SOURCE_TREE = re.compile(r"\bSPOOL_SOURCE_DIR\b")


def faults(text):
    """The line and what is wrong, for all that only the command line does."""
    for match in LITERAL.finditer(text):
        literal = match[0]
        inside = literal[literal.find('"') + 1 : literal.rfind('"')]
        if not is_comment(literal) and (flag := FLAG.search(inside)):
            yield line_of(text, match.start()), f'names "{flag[0]}" in a string'
    code = bare(text)
    for match in PRINTS.finditer(code):
        yield line_of(code, match.start()), f"prints by {match[0].rstrip('( ')}"
    for match in SOURCE_TREE.finditer(code):
        yield line_of(code, match.start()), "knows where the source tree was"


errors = []
files = [file for file in sources(LIBRARY) if not in_command_line(file)]
for file in files:
    text = (ROOT / file).read_text()
    errors += [f"{file}:{line}: {what}; only {COMMAND_LINE} does" for line, what in faults(text)]

verdict(errors, f"{len(files)} files leave flags and printing to {COMMAND_LINE}")
