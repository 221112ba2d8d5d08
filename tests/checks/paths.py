"""Documents and comments name files and folders that exist: by the path from the root or from the
folder of the file that names them, or, for a file, by the end of its path.
"""

import os
import re

from tree import CPP, LIBRARY, LITERAL, PROGRAMS, ROOT
from tree import is_comment, line_of, sources, verdict

OTHERS = ["cmake", "docs", "scripts"]
SCRIPTS = {".py", ".sh", ".cmake", ".txt"}
OLD = ["CHANGELOG.md", "benchmarks/results"]  # what they name existed when they were written
FOREIGN = ["dev/data/hellaswag.py", "encoder.py"]  # of other projects

FILE = r"[\w./-]+\.(?:h|cuh?|cpp|py|sh|md|cmake)\b(?![\w(])"
IN_COMMENT = re.compile(rf"(?<![\w.<>*/-]){FILE}")
COMMENT = re.compile(r"^(?:[^\"'\n]*\s)?#([^\n]*)|\"\"\"(.*?)\"\"\"", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
PLACEHOLDER = re.compile(r"[<>*{}$…]|\.\.\.|\bfoo\b|foo_")


def tree():
    """Every path from the root, of files and of folders."""
    tops = [ROOT / top for top in LIBRARY + PROGRAMS + OTHERS if (ROOT / top).is_dir()]
    found = [*tops, *(path for top in tops for path in top.rglob("*"))]
    found += [path for path in ROOT.iterdir() if path.is_file()]
    return {path.relative_to(ROOT).as_posix() for path in found}


TREE = tree()
TOPS = {path.split("/")[0] for path in TREE if "/" in path}
ENDS = TREE | {path[i + 1 :] for path in TREE for i, letter in enumerate(path) if letter == "/"}


def exists(name, file):
    """Whether the file that names it may mean a file or folder that exists."""
    beside = os.path.normpath(file.parent / name)
    return beside in TREE or name.removeprefix("spool/").rstrip("/") in ENDS or name in FOREIGN


def in_document(text):
    """The offset and the text of each path that a Markdown file names."""
    for match in LINK.finditer(CODE.sub(lambda code: " " * len(code[0]), text)):
        if "://" not in match[1]:
            yield match.start(), match[1]
    for code in CODE.finditer(text):
        is_block = code[0].startswith("```")
        for word in re.finditer(r"[^\s`]+", code[0]):
            is_path = re.fullmatch(r"[\w./-]+", word[0]) and word[0].split("/")[0] in TOPS
            if (is_path and "/" in word[0]) or (not is_block and re.fullmatch(FILE, word[0])):
                yield code.start() + word.start(), word[0]


def in_comments(text, is_cpp):
    """The offset and the text of each file that a source's comments name."""
    for match in (LITERAL if is_cpp else COMMENT).finditer(text):
        group = 0 if is_cpp else match.lastindex
        if is_cpp and not is_comment(match[0]):
            continue
        for name in IN_COMMENT.finditer(match[group]):
            yield match.start(group) + name.start(), name[0]


def faults(file):
    """What is wrong with one file."""
    text = (ROOT / file).read_text()
    names = in_document(text) if file.suffix == ".md" else in_comments(text, file.suffix in CPP)
    for offset, name in names:
        if not PLACEHOLDER.search(name) and not exists(name, file):
            yield f"{file}:{line_of(text, offset)}: names {name}, and there is no such file or folder"


files = [path.relative_to(ROOT) for path in ROOT.iterdir() if path.suffix in {".md", ".txt"}]
files += sources(LIBRARY) + sources(PROGRAMS + OTHERS, CPP | SCRIPTS | {".md"})
files = [file for file in files if not any(file.is_relative_to(old) for old in OLD)]
errors = [error for file in sorted(files) for error in faults(file)]

verdict(errors, f"{len(files)} files name only files and folders that exist")
