"""Files and functions are short, and nothing is left for later."""

import re

from tree import CPP, LAYERS, PROGRAMS, ROOT, bare, sources, verdict

FILE_LINES = 400
FUNCTION_LINES = 45  # from the first line of its head to its closing brace
LATER = re.compile(r"\b(TO" r"DO|FIX" r"ME)\b")

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
            yield text.count("\n", 0, first) + 1, text.count("\n", 0, end) + 1
        if what != "head":
            head = at


def faults(file):
    """What is wrong with one file."""
    text = (ROOT / file).read_text()
    lines = text.splitlines()
    if len(lines) > FILE_LINES:
        yield f"{file}: has {len(lines)} lines, and a file has {FILE_LINES} at most"
    for i, line in enumerate(lines, 1):
        if LATER.search(line):
            yield f"{file}:{i}: leaves something for later; do it now or write it down elsewhere"
    if file.suffix not in CPP:
        return
    code = DIRECTIVE.sub(lambda directive: "\n" * directive[0].count("\n"), bare(text))
    for first, last in functions(code):
        if last - first + 1 > FUNCTION_LINES:
            size = last - first + 1
            yield f"{file}:{first}: a function has {size} lines, and has {FUNCTION_LINES} at most"


files = sources(LAYERS + PROGRAMS) + sources(["tests", "scripts"], {".py", ".sh", ".txt"})
errors = [error for file in files for error in faults(file)]

verdict(errors, f"{len(files)} files keep to the style")
