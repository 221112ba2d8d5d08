"""compare_programs.py, which compares a changed program with the one before.

programs_command_test.py PROGRAM [CASE...]

With SPOOL_NIGHTLY=1 more plans, with a frontier for a GPU.
"""

import os
import pathlib
import re
import subprocess
import sys

from commands import PROGRAM, Folder, main

SCRIPT = pathlib.Path(__file__).with_name("compare_programs.py")
NIGHTLY = os.environ.get("SPOOL_NIGHTLY") == "1"


class Programs(Folder):
    def compared(self, after, *words):
        """Compares the program with another; returns the exit code and what was printed."""
        command = [sys.executable, SCRIPT, PROGRAM, after, "--presets", "gpt2-tiny", "llama-tiny", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def changed(self, *edits):
        """The program with its texts edited."""
        program = self.folder / "spool"
        program.write_text(f"#!/bin/bash\nset -o pipefail\n'{PROGRAM}' \"$@\" | sed -u -E '{'; '.join(edits)}'\n")
        program.chmod(0o755)
        return program

    def test_a_program_is_as_it_was(self):
        plans = "plan .* in (75|60)%" if NIGHTLY else "plan .* in 75%|plan (cpu|gpt2).* in 60%"
        few = f"help (plan|train)|{plans}|train .* clip 1 dtype f32 state cpu"
        few += "|train llama-tiny resumed searched in 90%|killed gpt2-tiny clip 1$"
        status, printed = self.compared(PROGRAM, "--only", few)
        self.assertRegex(printed, r"^\d\d cases: 0 differ\n$")
        self.assertEqual(status, 0)

    def test_what_differs_is_printed(self):
        words = ["--only", "plan h200 .* (searched|by file) in 75%"]
        status, printed = self.compared(self.changed("s/(foretold peak +)/\\19/"), *words)
        self.assertEqual(status, 1)
        self.assertIn("plan h200 gpt2-tiny searched in 75%: 1 differences\n", printed)
        self.assertRegex(printed, r"\n    - printed line \d+:   foretold peak +(.+)\n.*\n?    \+ printed .+ 9")
        self.assertIn("4 cases: 4 differ\n", printed)

    def test_what_is_expected_is_counted(self):
        words = ["--only", "plan h200 .* searched in 75%"]
        edited = self.changed("s/[0-9]+ rehearsals/7 rehearsals/")
        self.assertIn("2 cases: 2 differ\n", self.compared(edited, *words)[1])
        status, printed = self.compared(edited, *words, "--expect", "rehearsals")
        self.assertEqual((status, printed), (0, "2 cases: 0 differ; 2 differences by rehearsals\n"))
        edited = self.changed("s/[0-9]+ rehearsals/7 rehearsals/", "s/activations/activation/")
        self.assertEqual(self.compared(edited, *words, "--expect", "rehearsals")[0], 1)


if __name__ == "__main__":
    main()
