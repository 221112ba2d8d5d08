"""Files, functions and lines of comments are short; no section headings, nothing left for later.

A file that needs headings is several files. A heading is a comment with a row of dashes or the like,
or a comment that stands alone between code.
"""

import pathlib
import re

from tree import CPP, LIBRARY, LITERAL, PROGRAMS, ROOT
from tree import bare, is_comment, line_of, sources, verdict

FILE_LINES = 400
COLUMNS = 100  # of a comment in C++, which clang-format leaves as it is; it breaks the code
FUNCTION_LINES = 45  # from the first line of its head to its closing brace
LATER = re.compile(r"\b(TO" r"DO|FIX" r"ME)\b")
BUILD = {".py", ".sh", ".yml", ".cmake", ".txt"}

ROW = r"[-=*~#_+─━═]{3,}"
MARKS = {True: r"\s*(?://+|/\*+|\*(?=\s))", False: r"\s*#+"}  # of a comment in C++, and elsewhere
RULED = {
    cpp: re.compile(rf"{mark}\s*{ROW}|{mark}.*\s{ROW}\s*(?:\*/)?$|\s*/{{4,}}|\s*#{{3,}}")
    for cpp, mark in MARKS.items()
}
NOT_CODE = re.compile(r"\s*(?:#\s*(?:include|pragma|if|endif|define).*|namespace\b.*)?$")

SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
ACCESS = re.compile(r"\s*((public|private|protected)\s*:\s*)*")
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
ANGLES = r"<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>"
ORNAMENT = re.compile(rf"\btemplate\s*{ANGLES}|\boperator\s*[^\s\w(]+|\balignas\([^()]*\)")


def closing(text, opening):
    """Where the brace opened here is closed; the end of the text if nowhere."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return len(text) - 1


def kind(head, after):
    """What a brace opens, by the text before it and after its end: a scope, to look into; a
    function; part of the head of one (a constructor's a_{1}, b_{2}); or a value."""
    plain = ORNAMENT.sub(" ", head)
    while (emptied := re.sub(r"\([^()]+\)", "()", plain)) != plain:
        plain = emptied
    if SCOPE.search(plain) and not re.search(r"[=)]", plain):
        return "scope"
    if "=" in plain:
        return "function" if re.search(r"\]\s*(\(|$)", plain) else "value"  # a lambda, named
    if ")" not in plain:
        return "value"
    return "head" if after[:1] in {",", "{"} else "function"


def functions(text):
    """The first and last line of each function that is not inside another."""
    head = at = 0
    while match := re.compile(r"[{};]").search(text, at):
        opening, at = match.start(), match.end()
        if match[0] != "{":
            head = at
            continue
        end = closing(text, opening)
        what = kind(text[head:opening], text[end + 1 :].lstrip())
        if what == "scope":
            head = at
            continue
        at = end + 1
        if what == "function":
            first = ACCESS.match(text, head).end()
            yield line_of(text, first), line_of(text, end)
        if what != "head":
            head = at


def headings(lines, cpp):
    """The numbers of the lines that are section headings."""
    comment, blank = re.compile(MARKS[cpp]), [not line.strip() for line in lines] + [True]
    is_comment = [bool(comment.match(line)) and not line.startswith("#!") for line in lines]
    code_before = False
    for i, line in enumerate(lines):
        if not is_comment[i]:
            code_before = code_before or not NOT_CODE.match(line)
            continue
        first = i == 0 or not is_comment[i - 1]
        last = next((k for k in range(i, len(lines)) if not is_comment[k]), len(lines))
        alone = first and code_before and blank[i - 1] and blank[last]
        if alone or RULED[cpp].match(line):
            yield i + 1


def long_comments(text, lines):
    """The numbers of the lines of C++ that a comment makes too long."""
    for match in LITERAL.finditer(text):
        if not is_comment(match[0]):
            continue
        first = line_of(text, match.start())
        for number in range(first, first + match[0].count("\n") + 1):
            if len(lines[number - 1]) > COLUMNS:
                yield number


def faults(file):
    """What is wrong with one file."""
    text = (ROOT / file).read_text()
    lines = text.splitlines()
    if len(lines) > FILE_LINES:
        yield f"{file}: has {len(lines)} lines, and a file has {FILE_LINES} at most"
    for i, line in enumerate(lines, 1):
        if LATER.search(line):
            yield f"{file}:{i}: leaves something for later; do it now or write it down elsewhere"
    for i in headings(lines, file.suffix in CPP):
        yield f"{file}:{i}: a section heading; make a file of the section, or leave the heading out"
    if file.suffix not in CPP:
        return
    for i in long_comments(text, lines):
        yield f"{file}:{i}: a comment goes beyond column {COLUMNS}; break its line"
    code = DIRECTIVE.sub(lambda directive: "\n" * directive[0].count("\n"), bare(text))
    for first, last in functions(code):
        if last - first + 1 > FUNCTION_LINES:
            size = last - first + 1
            yield f"{file}:{first}: a function has {size} lines, and has {FUNCTION_LINES} at most"


files = sources(LIBRARY + PROGRAMS) + sources(["benchmarks", "cmake", "scripts", "tests"], BUILD)
files += [pathlib.Path("CMakeLists.txt")]
errors = [error for file in files for error in faults(file)]

verdict(errors, f"{len(files)} files keep to the style")
