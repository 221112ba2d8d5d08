"""Data files that change while a run reads them, and files larger than memory.

data_command_test.py PROGRAM [CASE...]
"""

import os
import pty
import shutil
import signal
import struct
import subprocess
import time

from commands import PROGRAM, PROSE, SHAPE, Files, last_step, main, peak_memory

STEPS = 1500
CHANGED = "has changed since the run began"


def words_of(*words):
    return [str(w) for w in words]


class Changing(Files):
    def setUp(self):
        super().setUp()
        self.shard = self.folder / "shard.bin"
        self.write_shard(self.shard, PROSE)
        self.other = self.folder / "other.txt"
        self.other.write_text(PROSE.replace("little", "a lot!"))
        self.whole = self.folder / "whole"

    def write_shard(self, path, text):
        tokens = text.encode()
        header = struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253)
        path.write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))

    def command(self, out, *words):
        return words_of(*SHAPE, "--out", out, "--steps", STEPS, "--eval-every", 0, *words)

    def disturbed(self, change, *words):
        """Runs the command, and `change` after its first steps."""
        log = self.folder / "disturbed.log"
        run = subprocess.Popen(
            [PROGRAM, "train", *self.command(self.out, "--log", log, *words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
        )
        while run.poll() is None and last_step(log) < 3:
            time.sleep(0.002)
        change()
        printed, errors = run.communicate(timeout=200)
        return run.returncode, printed, errors

    def ends_and_resumes(self, path, *words):
        """A file that shrinks ends the run, which resumes when the file is there again."""
        self.done("train", *self.command(self.whole, *words))
        content = path.read_bytes()
        self.refused(
            self.disturbed(lambda: os.truncate(path, 10), *words),
            1,
            f"{path.name}: had {len(content)} bytes when it was opened, and has 10 now",
            "saved after step",
            str(self.out / "step-"),
            "--resume",
        )
        path.write_bytes(content)
        self.done("train", "--out", self.out, "--resume")
        self.assertEqual(self.weights(self.out), self.weights(self.whole))

    def test_text_that_shrinks_ends_a_run_that_can_be_resumed(self):
        self.ends_and_resumes(self.text, "--data", self.text)

    def test_a_shard_that_shrinks_ends_a_run_that_can_be_resumed(self):
        self.ends_and_resumes(self.shard, "--data", self.shard)

    def test_validation_data_that_shrinks_ends_a_run_that_can_be_resumed(self):
        words = ["--data", self.text, "--val-data", self.shard, "--eval-every", 500]
        self.ends_and_resumes(self.shard, *words)

    def test_the_model_is_saved_without_validation_data(self):
        words = ["--data", self.text, "--val-data", self.shard]
        self.done("train", *self.command(self.whole, *words))
        result = self.disturbed(lambda: os.truncate(self.shard, 10), *words)
        self.refused(result, 1, "shard.bin: had", f"saved after step {STEPS}")
        self.assertEqual(self.weights(self.out), self.weights(self.whole))

    def test_data_that_is_overwritten_is_said_once(self):
        for path, other in [(self.text, self.other), (self.shard, self.folder / "other.bin")]:
            with self.subTest(path.name):
                self.write_shard(self.folder / "other.bin", self.other.read_text())
                shutil.rmtree(self.out, ignore_errors=True)
                (self.folder / "disturbed.log").unlink(missing_ok=True)
                os.utime(path, (0, 0))

                def overwrite(path=path, other=other):
                    with path.open("r+b") as file:
                        file.write(other.read_bytes())

                words = ["--data", path, "--checkpoint-every", 500]
                status, printed, errors = self.disturbed(overwrite, *words)
                self.assertEqual(status, 0, errors)
                self.assertEqual(printed.count(f"{path.name} {CHANGED}"), 1, printed)

    def undisturbed(self, change, *words):
        self.done("train", *self.command(self.whole, *words))
        status, printed, errors = self.disturbed(change, *words)
        self.assertEqual(status, 0, errors)
        self.assertNotIn(CHANGED, printed)
        self.assertEqual(self.weights(self.out), self.weights(self.whole))

    def test_a_file_that_another_replaces_is_read_on(self):
        self.undisturbed(lambda: self.other.replace(self.text), "--data", self.text)

    def test_a_file_that_is_removed_is_read_on(self):
        self.undisturbed(self.shard.unlink, "--data", self.shard)

    def test_text_that_was_encoded_may_change(self):
        words = ["--data", self.text, "--merges", self.merges]
        self.undisturbed(lambda: os.truncate(self.text, 10), *words)


class Large(Files):
    def setUp(self):
        super().setUp()
        with self.text.open("r+b") as file:
            file.truncate(1 << 32)  # with a hole
        self.words = [*SHAPE, "--data", self.text, "--data-format", "text", "--dry-run", "--out", self.out]

    def test_data_is_not_held_in_memory(self):
        self.assertLess(peak_memory("train", *self.words), 256 << 20)

    def test_reading_it_shows_a_bar_and_heeds_an_interrupt(self):
        master, terminal = pty.openpty()
        command = [PROGRAM, "train", *words_of(*self.words)]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal)
        os.close(terminal)
        shown = b""
        while b"reading the data [" not in shown:
            shown += os.read(master, 1000)
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(timeout=100), -signal.SIGINT)
        os.close(master)


if __name__ == "__main__":
    main()
