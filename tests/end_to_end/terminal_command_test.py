"""What people see on terminals of different widths."""

import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import tempfile
import termios
import unittest

from commands import PROGRAM, PROSE, SHAPE, Files, main, spool

WIDTHS = [120, 80, 50]
H200 = "plan --model gpt2-124m --machine h200 --memory 6GiB --batch 16 --seq 1024".split()
STYLE = re.compile(r"\x1b\[[\d;]*m")


def on_terminal(columns, *words, **environment):
    """The program's lines on a terminal of this width, for standard output and error."""
    terminal, end = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [PROGRAM, *map(str, words)],
        stdin=end,
        stdout=end,
        stderr=end,
        env={**plain, "TERM": "xterm", **environment},
        start_new_session=True,
    )
    # This end stays open, as what is left in a terminal that nobody has open can be lost.
    output = b""
    has_ended = False
    while not has_ended:
        has_ended = process.poll() is not None
        while select.select([terminal], [], [], 0.05)[0]:
            output += os.read(terminal, 1 << 16)
    for descriptor in [terminal, end]:
        os.close(descriptor)
    return process.returncode, output.decode().replace("\r\n", "\n").split("\n")


def left_of(line):
    """What a person sees of a line that was written over: \\r goes to its start, an escape code clears it."""
    seen = []
    for part in line.split("\r"):
        if part.startswith("\x1b[K"):
            part, seen = part.removeprefix("\x1b[K"), []
        seen[: len(part)] = part
    return "".join(seen).rstrip()


def words_of(lines):
    return " ".join(lines).split()


def without_times(words):
    """The words but numbers and the units of times, which differ where a time is measured."""
    return [word for word in words if not word[0].isdigit() and word not in ("ms", "s")]


class Colours(unittest.TestCase):
    def shown(self, status, *words, **environment):
        found, lines = on_terminal(80, *words, **environment)
        self.assertEqual(found, status, lines)
        return "\n".join(map(left_of, lines))

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

    def test_there_is_no_escape_code_for_who_wants_none(self):
        with tempfile.TemporaryDirectory(prefix="spool-terminal-") as folder:
            out, text = pathlib.Path(folder) / "run", pathlib.Path(folder) / "text.txt"
            text.write_text(PROSE * 4)
            train = ["train", *SHAPE, "--data", text, "--steps", 300, "--eval-every", 100, "--out", out]
            for environment in [{"NO_COLOR": "1"}, {"TERM": "dumb"}]:
                for words in [train, ["eval", "--model", out, "--data", text, "--batch", 1]]:
                    status, lines = on_terminal(80, *words, **environment)
                    self.assertEqual(status, 0, lines)
                    self.assertTrue(any("\r" in line for line in lines), lines)  # of a bar, or of steps
                    self.assertNotIn("\x1b", "\n".join(lines))
                shutil.rmtree(out)

    def test_they_change_no_word(self):
        coloured, plain = (STYLE.sub("", self.shown(0, *H200, **given)) for given in ({}, {"NO_COLOR": "1"}))
        self.assertEqual(without_times(coloured.split()), without_times(plain.split()))


class Terminal(unittest.TestCase):
    def lines(self, columns, *words):
        status, lines = on_terminal(columns, *words, NO_COLOR="1")
        self.assertEqual(status, 0, lines)
        return lines

    def test_lines_of_prose_fit(self):
        for columns in WIDTHS:
            lines = list(map(left_of, self.lines(columns, *H200)))
            if columns >= 80:  # the columns of a narrower one would be lost
                self.assertLessEqual(max(map(len, lines)), columns)
            prose = [line for line in lines if "   " not in line.strip()]
            self.assertLessEqual(max(map(len, prose)), columns)
            _, piped, _ = spool(*H200)
            self.assertEqual(without_times(words_of(lines)), without_times(piped.split()))

    def test_notes_of_the_table_stand_below_each_other(self):
        lines = list(map(left_of, self.lines(80, *H200)))
        (at,) = (i for i, line in enumerate(lines) if line.startswith("  foretold step time"))
        note = lines[at].index("+")
        self.assertEqual(lines[at + 1][:note].strip(), "", lines)
        self.assertNotEqual(lines[at + 1][note], " ")

    def test_the_table_of_budgets_fits_80_columns(self):
        words = "plan --model gpt2-tiny --machine h200 --memory 1GiB --batch 16 --frontier".split()
        lines = list(map(left_of, self.lines(80, *words)))
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
                shown = [part for line in lines for part in line.split("\r")[1:]]
                steps = [part for part in shown if part.startswith("step ")]
                self.assertTrue(steps)
                self.assertLess(max(map(len, steps)), columns)

    def test_the_table_fits_with_colours_and_of_a_run(self):
        with tempfile.TemporaryDirectory(prefix="spool-terminal-") as folder:
            text = pathlib.Path(folder) / "text.txt"
            text.write_text(PROSE)
            run = ["train", "--model", "llama-tiny", "--data", text, "--memory", "64MiB", "--dry-run"]
            for words in [H200, run, ["calibrate", *SHAPE]]:
                status, lines = on_terminal(80, *words)
                self.assertEqual(status, 0, lines)
                plain = [STYLE.sub("", left_of(line)) for line in lines]
                self.assertLessEqual(max(map(len, plain)), 80, plain)

    def test_messages_fit(self):
        status, lines = on_terminal(80, "train", "--offload-to", "a tape drive in the cellar of the house " * 3)
        self.assertEqual(status, 1)
        self.assertLessEqual(max(len(STYLE.sub("", line)) for line in lines), 80, lines)

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


class Bars(Files):
    def line_of_the_bar(self, *words):
        """What remains visible of the last line with a bar."""
        status, lines = on_terminal(80, *words)
        self.assertEqual(status, 0, lines)
        self.assertEqual(lines[-1], "")
        self.assertLessEqual(max(len(STYLE.sub("", left_of(line))) for line in lines), 80, lines)
        bars = [line for line in lines if "[#" in line]
        self.assertTrue(bars, lines)
        return left_of(bars[-1])

    def test_that_of_eval_leaves_the_result_alone(self):
        model = self.trained()
        self.text.write_text(PROSE * 4)
        words = ["eval", "--model", model, "--data", self.text, "--batch", 1, "--memory", "200MiB"]
        self.assertRegex(self.line_of_the_bar(*words), r"^loss [\d.]+ nats a token, perplexity [\d.]+, over \d+ tokens$")

    def test_that_of_tokenize_leaves_the_result_alone(self):
        self.text.write_text("".join(f"{i} things that the text has\n" for i in range(600000)))
        words = ["tokenize", self.text, "--merges", self.merges, "--threads", 1, "--out", self.folder / "a.bin"]
        self.assertRegex(self.line_of_the_bar(*words), r"^[\d.]+ MiB of text, \d+ tokens \([\d.]+ bytes each\), in")


if __name__ == "__main__":
    main()
