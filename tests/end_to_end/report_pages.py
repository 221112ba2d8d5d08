"""The report that a page holds, and pages with other reports."""

import json

BEGIN = '<script type="application/json" id="spool-report">'


def report_in(page):
    text = page.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    return json.loads(text[begin : text.index("</script>", begin)])


def page_with(page, report, to):
    """The page with another report, written as Spool writes it."""
    text = page.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    safe = json.dumps(report)
    for character in "<>&":
        safe = safe.replace(character, f"\\u{ord(character):04x}")
    to.write_text(text[:begin] + safe + text[text.index("</script>", begin) :])
    return to
