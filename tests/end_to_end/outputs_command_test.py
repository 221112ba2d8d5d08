"""The program's outputs replace nothing silently.

outputs_command_test.py PROGRAM [CASE...]
"""

import os

from commands import SHAPE, Folder, main, spool


class Outputs(Folder):
    def test_tokens_replace_shards_alone(self):
        shard, other = self.folder / "a.bin", self.folder / "other.bin"
        words = ["tokenize", self.text, "--out"]
        self.assertEqual(spool(*words, shard)[0], 0)
        tokens = shard.read_bytes()
        self.assertEqual(spool(*words, shard)[0], 0)
        for content in [b"", b"precious", tokens[:-1], b"\0" * 2000]:
            other.write_bytes(content)
            self.refused(spool(*words, other), 1, "other.bin", "is no shard", "--out")
            self.assertEqual(other.read_bytes(), content)
        self.assertEqual(shard.read_bytes(), tokens)

    def test_text_of_shards_replaces_nothing(self):
        shard, out = self.folder / "a.bin", self.folder / "out.txt"
        self.assertEqual(spool("tokenize", self.text, "--out", shard)[0], 0)
        words = ["tokenize", "--decode", shard, "--out", out]
        out.touch()
        self.assertEqual(spool(*words)[0], 0)
        self.assertEqual(out.read_bytes(), self.text.read_bytes())
        out.write_text("precious")
        self.refused(spool(*words), 1, "out.txt: exists already", "--out")
        self.assertEqual(out.read_text(), "precious")

    def test_files_of_a_run_have_names_of_their_own(self):
        one, link = self.folder / "one", self.folder / "link"
        link.symlink_to("one")
        flags = ["--log", "--trace", "--save-plan"]
        for i, first in enumerate(flags):
            for second in flags[i + 1 :]:
                for name in [one, link, self.folder / "." / "one"]:
                    result = self.train(first, one, second, name)
                    self.refused(result, 1, "the name of two outputs", first, second)
        self.refused(self.train("--log", self.out), 1, "two outputs", "--out", "--log")
        (self.folder / "chain").symlink_to("link")
        self.refused(self.train("--log", one, "--report", self.folder / "chain"), 1, "two outputs")
        never = ["plan", *SHAPE, "--memory", "1kB"]  # which planning would refuse
        for flag in ["--report", "--save-plan"]:
            for name in [one, link, self.folder / "chain", self.folder / "." / "one"]:
                self.refused(spool(*never, "--json", name, flag, one), 1, "two outputs", "--json", flag)
            names = ["--json", "./new", flag, "new"]
            self.refused(spool(*never, *names, cwd=self.folder), 1, "two outputs", "--json", flag)
        self.assertFalse(one.exists())
        self.assertFalse(self.out.exists())

    def test_a_log_is_no_named_pipe(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.refused(self.train("--log", pipe), 1, "a named pipe", "--log")
        status, printed, errors = self.train("--log", "/dev/stdout")
        self.assertEqual(status, 0, errors)
        self.assertIn('"step":3', printed.replace(" ", ""))


if __name__ == "__main__":
    main()
