"""Measured numbers have a page under benchmarks/results, with the command that gave them.

In the README every ratio (times, ×, %), and every number of the section Numbers, stands in a
paragraph, a list item or a table's row that links to such pages; one of them has the number, digit
by digit.  In other documents this holds for what links to a page.
"""

import os
import re

from tree import ROOT, line_of, verdict

RESULTS = "benchmarks/results"
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^(?!#).+(?:\n(?![|*#-]|\d+\. ).+)*", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]|\.\d)")
RATIO = re.compile(rf"(?:{NUMBER.pattern} (?:to|and|or) )?{NUMBER.pattern} ?(?:×|times\b|%)")
COMMAND = re.compile(r"^```.*?^```|`[^`\n]*\b(?:spool|benchmarks/)[^`\n]*`", re.MULTILINE | re.DOTALL)


def blocks(text):
    """The offset and the text of each paragraph, list item and table row, without code blocks."""
    for match in BLOCK.finditer(FENCE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)):
        if match[0].strip():
            yield match.start(), match[0]


def pages(block, file):
    """The pages of results that a block links to, as paths from the root."""
    found = (os.path.normpath(file.parent / link[1]) for link in LINK.finditer(block))
    return [page for page in found if page.startswith(RESULTS) and page.endswith(".md")]


def measured(block, is_of_numbers):
    """The numbers of a block that must be on a page; those of a table's row are in its second cell."""
    prose = LINK.sub("]", block)
    if is_of_numbers:
        return NUMBER.findall(prose.split("|")[2] if prose.startswith("|") else prose)
    return [number for ratio in RATIO.findall(prose) for number in NUMBER.findall(ratio)]


def has(page, number):
    return re.search(rf"(?<![\w.]){re.escape(number)}(?!\d|\.\d)", (ROOT / page).read_text())


def section(text, name):
    """Where a section of a document begins and ends."""
    begin = text.find(f"\n## {name}\n")
    return begin, text.find("\n## ", begin + 1) % (len(text) + 1)


def faults(file):
    text = (ROOT / file).read_text()
    is_readme = str(file) == "README.md"
    begin, end = section(text, "Numbers") if is_readme else (0, 0)
    for offset, block in blocks(text):
        known = pages(block, file)
        for number in measured(block, begin < offset < end):
            where = f"{file}:{line_of(text, offset)}"
            if is_readme and not known:
                yield f"{where}: {number} has no link to a page of results"
            elif known and not any(has(page, number) for page in known):
                yield f"{where}: {number} is not in {' or '.join(known)}"
    for page in sorted({page for _, block in blocks(text) for page in pages(block, file)}):
        if not COMMAND.search((ROOT / page).read_text()):
            yield f"{page}: has no command that gives its numbers"


documents = [file for path in ["README.md", "docs/*.md"] for file in sorted(ROOT.glob(path))]
errors = [error for file in documents for error in faults(file.relative_to(ROOT))]

verdict(errors, f"the measured numbers of {len(documents)} documents are on their pages of results")
