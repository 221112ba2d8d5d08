"""The report that a page holds, pages with other reports, and pages that a browser has drawn."""

import json
import pathlib
import tempfile
import unittest

import chromium

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


class DrawnPages(unittest.TestCase):
    """Tests of pages in a folder, self.out, by one browser."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="spool-pages-")
        cls.addClassCleanup(folder.cleanup)
        cls.out = pathlib.Path(folder.name)
        cls.browser = cls.enterClassContext(chromium.Chromium(chromium.find()))

    def open(self, page, width=1280):
        """What is drawn of the page, which asks for nothing else, complains of nothing, and is not too wide."""
        self.browser.resize(width)
        self.browser.open(page.as_uri())
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual(self.browser.requests(), [page.as_uri()])
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
        return json.loads(self.browser.run("document.documentElement.dataset.spoolDrawn"))
