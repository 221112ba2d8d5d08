"""What people see on terminals of different widths."""

import fcntl
import os
import pathlib
import pty
import re
import struct
import tempfile
import termios
import unittest

from commands import PROGRAM, PROSE, SHAPE, main, spool

WIDTHS = [120, 80, 50]
H200 = "plan --model gpt2-124m --machine h200 --memory 6GiB --batch 16 --seq 1024".split()
OVERWRITES = "\r\x1b[K"
STYLE = re.compile(r"\x1b\[[\d;]*m")


def on_terminal(columns, *words, **environment):
    """Standard output and error of the program, both on a terminal so wide; its lines."""
    ready, go = os.pipe()
    process, terminal = pty.fork()
    if process == 0:
        os.read(ready, 1)  # until the terminal has its width
        plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        os.execve(PROGRAM, [PROGRAM, *map(str, words)], {**plain, "TERM": "xterm", **environment})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.write(go, b"x")
    output = b""
    try:
        while part := os.read(terminal, 1 << 16):
            output += part
    except OSError:  # the program has ended
        pass
    for descriptor in [ready, go, terminal]:
        os.close(descriptor)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), output.decode().replace("\r\n", "\n").split("\n")


def words_of(lines):
    return " ".join(lines).split()


class Colours(unittest.TestCase):
    def shown(self, status, *words, **environment):
        found, lines = on_terminal(80, *words, **environment)
        self.assertEqual(found, status, lines)
        return "\n".join(line.split(OVERWRITES)[-1] for line in lines)

    def test_what_is_foretold_is_bold(self):
        lines = self.shown(0, *H200).split("\n")
        bold = [STYLE.sub("", line).split()[:2] for line in lines if line.startswith("\x1b[1m")]
        self.assertEqual(bold, [["foretold", "peak"], ["foretold", "step"]])

    def test_errors_are_red_and_warnings_yellow(self):
        self.assertTrue(self.shown(2, "plan", "--batch", "x").startswith("\x1b[1;31mspool:\x1b[0m "))
        twice = self.shown(0, *H200, "--batch", "8")
        self.assertIn("\x1b[1;33mspool:\x1b[0m ", twice)

    def test_there_are_none_for_who_wants_none(self):
        for environment in [{"NO_COLOR": "1"}, {"TERM": "dumb"}]:
            for status, words in [(0, H200), (2, ["plan", "--batch", "x"])]:
                self.assertNotIn("\x1b", self.shown(status, *words, **environment))
        self.assertIn("\x1b", self.shown(0, *H200, NO_COLOR=""))
        _, printed, errors = spool(*H200, "--batch", "8")
        self.assertNotIn("\x1b", printed + errors)

    def test_they_change_no_word(self):
        def words(text):
            return [word for word in STYLE.sub("", text).split() if not word[0].isdigit()]

        self.assertEqual(words(self.shown(0, *H200)), words(self.shown(0, *H200, NO_COLOR="1")))


class Terminal(unittest.TestCase):
    def lines(self, columns, *words):
        status, lines = on_terminal(columns, *words, NO_COLOR="1")
        self.assertEqual(status, 0, lines)
        return lines

    def test_lines_of_prose_fit(self):
        for columns in WIDTHS:
            lines = [line.split(OVERWRITES)[-1] for line in self.lines(columns, *H200)]
            prose = [line for line in lines if "   " not in line.strip()]
            self.assertLessEqual(max(map(len, prose)), columns)
            _, piped, _ = spool(*H200)
            self.assertEqual(
                [word for word in words_of(prose) if not word[0].isdigit()],
                [word for line in piped.split("\n") if "   " not in line.strip() for word in line.split()
                 if not word[0].isdigit()])

    def test_the_table_of_budgets_fits_80_columns(self):
        lines = [line.split(OVERWRITES)[-1] for line in self.lines(80, *H200, "--frontier")]
        (head,) = (i for i, line in enumerate(lines) if line.split()[:2] == ["budget", "peak"])
        table = [line for line in lines[head:] if line]
        self.assertEqual(len(table), 1 + 21)
        self.assertEqual({len(line) for line in table}, {len(table[0])})
        self.assertLessEqual(len(table[0]), 80)

    def test_progress_stays_in_its_line(self):
        with tempfile.TemporaryDirectory(prefix="spool-terminal-") as folder:
            text = pathlib.Path(folder) / "text.txt"
            text.write_text(PROSE)
            words = ["train", *SHAPE, "--data", text, "--steps", 300, "--final-eval", 1]
            for columns in [*WIDTHS, 20]:
                lines = self.lines(columns, *words, "--out", pathlib.Path(folder) / str(columns))
                shown = [part for line in lines for part in line.split(OVERWRITES)[1:]]
                steps = [part for part in shown if part.startswith("step ")]
                self.assertTrue(steps)
                self.assertLess(max(map(len, steps)), columns)

    def test_help_is_wrapped_beside_the_options(self):
        for columns in [120, 80, 60]:
            lines = self.lines(columns, "train", "--help")
            beside = [line for line in lines if line.startswith(" " * 30)]
            self.assertGreater(len(beside), 20)
            self.assertLessEqual(max(map(len, beside)), columns)
        _, piped, _ = spool("train", "--help")
        self.assertEqual(words_of(lines), piped.split())

    def test_help_of_every_command_fits(self):
        _, piped, _ = spool("--help")
        commands = re.findall(r"^  (\w+)  ", piped[piped.index("Subcommands:") :], re.MULTILINE)
        self.assertIn("plan", commands)
        for command in [[], *([command] for command in commands)]:
            _, piped, _ = spool(*command, "--help")
            for columns in [80, 60]:
                lines = self.lines(columns, *command, "--help")
                self.assertLessEqual(max(map(len, lines)), columns, command)
                self.assertEqual(words_of(lines), piped.split())


if __name__ == "__main__":
    main()
