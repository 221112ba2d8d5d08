"""`spool tokenize` as a user runs it.

tokens_command_test.py PROGRAM [CASE...]
"""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time

from commands import PROGRAM, PROSE, Files, main, peak_memory, spool

TOKENIZERS = pathlib.Path(__file__).parents[1] / "reference" / "tokenizers"


class Tokenize(Files):
    def test_decodes_to_the_same_bytes(self):
        noise = self.folder / "noise"
        noise.write_bytes(bytes(range(256)) * 40 + b"the text \xff\xfe <|endoftext|>")
        for text in [self.text, noise]:
            of_json = ["--tokenizer", TOKENIZERS / "llama3.json"]
            for words in [[], ["--tokenizer", "bytes"], ["--merges", self.merges], of_json]:
                tokens, back = self.folder / "t.bin", self.folder / "back"
                self.done("tokenize", text, "--data-format", "text", "--out", tokens, *words)
                self.done("tokenize", "--decode", tokens, "--out", back, *words)
                self.assertEqual(back.read_bytes(), text.read_bytes())
                back.unlink()
                shown = subprocess.run(
                    [PROGRAM, "tokenize", "--decode", tokens, *words], capture_output=True
                )
                self.assertEqual(shown.stdout, text.read_bytes())

    def test_shards_are_the_same_for_any_number_of_threads(self):
        long = self.folder / "long"
        long.write_text(PROSE * 300)
        all_bytes = []
        for threads in [1, 3]:
            out = self.folder / f"{threads}.bin"
            self.tokenize(long, "--out", out, "--threads", threads)
            all_bytes.append(out.read_bytes())
        self.assertEqual(all_bytes[0], all_bytes[1])
        self.assertEqual(struct.unpack("<2i", all_bytes[0][:8]), (20240520, 1))
        again = self.folder / "3.bin"  # overwrites the file that a link names
        again.unlink()
        again.symlink_to("1.bin")
        self.tokenize(self.text, "--out", again)
        self.assertLess((self.folder / "1.bin").stat().st_size, len(all_bytes[0]))
        self.assertTrue(again.is_symlink())
        printed = self.tokenize(
            long, self.text, "--out", self.folder / "s.bin", "--shard-tokens", 1000000, "--separate"
        )
        self.assertIn("s_000000.bin", printed)
        shards = sorted(self.folder.glob("s_*.bin"))
        self.assertGreater(len(shards), 1)
        text = self.tokenize("--decode", *shards)
        self.assertEqual(text, f"<|endoftext|>{PROSE * 300}<|endoftext|>{PROSE}")
        words = ["--out", self.folder / "s.bin", "--shard-tokens", 1000000]
        self.refused(spool("tokenize", self.text, *words), 1, "s_000000.bin", "exists already")

    def test_memory_does_not_grow_with_the_text(self):
        peaks = []
        for times in [100, 2000]:
            long = self.folder / "long"
            long.write_text(PROSE * times)
            words = ["tokenize", "--merges", self.merges, long, "--out", self.folder / "t.bin"]
            peaks.append(peak_memory(*words))
        self.assertGreater(long.stat().st_size, 30 << 20)
        self.assertLess(peaks[1] - peaks[0], 10 << 20)

    def test_a_token_that_the_model_has_no_row_for_is_refused_by_name(self):
        run, more = self.folder / "run", self.folder / "more"
        words = "--model llama-tiny --context 16 --steps 1 --batch 1 --seq 8 --accumulate 1".split()
        quiet = ["--eval-every", 0, "--final-eval", "none"]
        json_file = TOKENIZERS / "llama3.json"
        start = ["train", *words, *quiet, "--vocab", 706, "--data", self.text]
        self.done(*start, "--tokenizer", json_file, "--out", run)
        shutil.copytree((run / "latest").resolve(), more)
        for name in ["run.json", "optimizer.safetensors", ".spool"]:
            (more / name).unlink(missing_ok=True)
        whole = json.loads(json_file.read_text())
        pad = dict(whole["added_tokens"][0], id=706, content="[PAD]")
        whole["added_tokens"].append(pad)
        (more / "tokenizer.json").write_text(json.dumps(whole))
        padded = self.folder / "padded"
        padded.write_text("some text [PAD] more text\n" * 20)
        self.done("eval", "--model", more, "--data", self.text, "--seq", 8)
        train = ["train", "--model", more, *words[4:], *quiet]
        self.done(*train, "--data", self.text, "--out", self.folder / "on")
        self.done("train", "--resume", "--out", self.folder / "on", "--steps", 2)
        self.done("convert", self.folder / "on", self.folder / "converted")
        self.assertIn("[PAD]", (self.folder / "converted" / "tokenizer.json").read_text())
        said = ["[PAD]", "near byte 10", "number 706", "0 to 705"]
        self.refused(spool("eval", "--model", more, "--data", padded), 1, "padded", *said)
        out = self.folder / "none"
        self.refused(spool(*train, "--data", padded, "--out", out), 1, "padded", *said)
        ask = ["generate", "--model", more, "--temperature", 0, "--tokens", 8, "--json"]
        self.refused(spool(*ask, "--prompt", "some text [PAD]"), 1, "the prompt", *said)
        # The token that begins texts comes once.
        texts = [self.done(*ask, "--prompt", f"{begin}the text") for begin in ["", "<|im_start|>"]]
        self.assertEqual(*(json.loads(text)["text"] for text in texts))

    def test_an_interrupt_between_shards_leaves_none(self):
        words = ["tokenize", self.text, "--out", self.folder / "t.bin", "--shard-tokens", 1]
        run = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL)
        while run.poll() is None and not (self.folder / "t_000003.bin").exists():
            time.sleep(0.002)
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(timeout=100), 130)
        self.assertEqual(list(self.folder.glob("*t_*")), [])

    def test_refuses_outputs_that_are_no_files(self):
        shard, pipe = self.folder / "t.bin", self.folder / "pipe"
        self.tokenize(self.text, "--out", shard)
        os.mkfifo(pipe)
        for out in [pipe, self.folder]:
            self.refused(spool("tokenize", "--decode", shard, "--out", out), 1, str(out))
        self.assertTrue(pipe.is_fifo())
        with open("/dev/full", "w") as full:
            words = [PROGRAM, "tokenize", "--decode", shard, "--merges", self.merges]
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left", done.stderr)

    def test_interrupt_leaves_no_file(self):
        long = self.folder / "long"
        long.write_text(PROSE * 20000)
        words = [PROGRAM, "tokenize", "--merges", self.merges, long, "--out", self.folder / "t.bin"]
        process = subprocess.Popen([*map(str, words), "--threads", "1"])
        while not list(self.folder.glob(".*.partial")) and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 130)
        self.assertEqual(list(self.folder.glob("*t.bin*")) + list(self.folder.glob(".*")), [])

    def test_refuses_input_and_settings_that_cannot_be(self):
        out = self.folder / "t.bin"
        empty = self.folder / "empty"
        empty.touch()
        for words, parts in [
            ([self.text], ["--out"]),
            ([self.text, "--out", self.folder / "t.txt"], [".bin"]),
            ([self.folder / "none", "--out", out], ["none", "no such file"]),
            ([empty, "--out", out], ["empty"]),
            ([self.text, "--out", self.folder / "no" / "t.bin"], ["no"]),
            ([self.text, "--out", out, "--tokenizer", "gpt2"], ["--merges"]),
            ([self.text, "--out", out, "--tokenizer", "words"], ["choose bytes or gpt2"]),
            ([self.text, "--out", out, "--merges", self.text], ["text.txt", "line 1"]),
            ([self.text, "--out", out, "--separate"], ["--separate"]),
            ([self.text, "--out", out, "--shard-tokens", -1], ["--shard-tokens"]),
            (["--decode", self.text], ["text.txt", "header"]),
        ]:
            self.refused(spool("tokenize", *words), 1, *parts)
            self.assertFalse(out.exists())
        self.tokenize(self.text, "--out", out)
        whole = out.read_bytes()
        self.refused(spool("tokenize", out, "--out", out), 1, "read and written at once")
        self.assertEqual(out.read_bytes(), whole)
        self.refused(spool("tokenize", "--decode", out), 1, "vocabulary")  # as bytes
        self.refused(spool("tokenize", "--out", out), 2, "IN")


if __name__ == "__main__":
    main()
