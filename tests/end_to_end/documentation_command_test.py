"""The documents describe the program truly: their flags exist, their tables are printed."""

import pathlib
import re
import unittest

from commands import PROSE, Folder, main, spool

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\bspool ([a-z]+(?:-[a-z]+)*)((?:[^\n`\\#]|\\\n)*)")
ROW = re.compile(r"^ +(.*?)  +(\S.*)$", re.MULTILINE)  # of the table before step 0: name, value


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def labels(table):
    """The names of a table's rows, in order, but for those that depend on measured times."""
    names = [name for name, _ in ROW.findall(table)]
    return [name for name in names if not name.startswith(("layer ", "chosen freely", "kernels"))]


class Documents(Folder):
    def test_commands_in_documents_have_flags_that_exist(self):
        helps, seen = {}, 0
        for file in DOCUMENTS:
            for command, words in (c for code in CODE.findall(file.read_text()) for c in COMMAND.findall(code)):
                helps[command] = helps.get(command) or spool(command, "--help")[1]
                for flag in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", words):
                    seen += 1
                    self.assertRegex(helps[command], rf"{flag}\b(?!-)", f"{file.name}: spool {command} {flag}")
        self.assertGreater(seen, 50)

    def test_flags_in_tables_of_the_readme_exist(self):
        text = spool("train", "--help")[1]
        rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `--")]
        self.assertGreater(len(rows), 15)
        for flag in (flag for row in rows for flag in re.findall(r"--[a-z][a-z0-9-]*", cells(row)[0])):
            self.assertRegex(text, rf"{flag}\b(?!-)")

    def test_the_table_of_the_readme_is_the_one_printed(self):
        text = (ROOT / "README.md").read_text()
        command, printed = re.search(r"^\$ spool (train .*?)\n(.*?)^```", text, re.MULTILINE | re.DOTALL).groups()
        words = command.replace("shakespeare.txt", str(self.folder / "prose.txt")).split()
        (self.folder / "prose.txt").write_text(PROSE * 10)
        status, out, error = spool(*words, "--threads", 2, "--dry-run", cwd=self.folder)
        self.assertEqual(status, 0, error)
        self.assertEqual(labels(printed), labels(out))

    def test_peaks_in_saved_tensors_are_foretold(self):
        """Rows that do not depend on the speed of copies."""
        text = (ROOT / "docs" / "saved-tensors.md").read_text()
        base = re.search(r"^spool (train .* --layers 8 .*)$", text, re.MULTILINE)[1].split()
        base[base.index("--data") + 1] = str(self.folder / "prose.txt")
        (self.folder / "prose.txt").write_text(PROSE * 10)
        table = text[text.index("| flags | foretold peak, bytes |") :].split("\n\n")[0].splitlines()[2:]
        rows = [row for row in map(cells, table) if "--offload" not in row[0]]
        self.assertGreaterEqual(len(rows), 5)
        for flags, peak, size, activations, host in rows:
            status, out, error = spool(*base, *flags.strip("`").split(), "--dry-run", cwd=self.folder)
            self.assertEqual(status, 0, error)
            found = dict(ROW.findall(out))
            self.assertEqual(found["in bytes"], peak.replace(" ", ""), flags)
            self.assertEqual([found["foretold peak"], found["activations"]], [size, activations], flags)
            self.assertEqual(found.get("host memory", ""), host, flags)


if __name__ == "__main__":
    main()
