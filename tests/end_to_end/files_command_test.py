"""Commands on files of other programs: data, models, evaluation, fine-tuning, generation.

files_command_test.py PROGRAM [CASE...]
"""

import json
import math
import re
import shutil
import signal
import struct
import subprocess
import time

from commands import MERGES, PROGRAM, PROSE, SHAPE, VOCABULARY, Files, main, peak_memory, spool


class Train(Files):
    def losses(self, log):
        return [e["loss"] for e in self.log(log) if "loss" in e]

    def test_text_and_its_shards_have_the_same_losses(self):
        shard = self.folder / "t.bin"
        self.tokenize(self.text, "--out", shard)
        logs = []
        for i, data in enumerate([self.text, shard]):
            logs.append(self.folder / f"{i}.log")
            words = ["--merges", self.merges, "--data", data, "--out", self.folder / str(i)]
            self.done("train", *SHAPE, *words, "--steps", 5, "--log", logs[i])
        self.assertEqual(self.losses(logs[0]), self.losses(logs[1]))

    def test_brackets_and_commas_belong_to_a_path(self):
        shard = self.folder / "[s,t].bin"
        for name in ["[a,b]", "[[c],d]"]:
            (self.folder / name).write_text(PROSE)
            for words in [["--data", name], [f"--data={name}"], ["--data", self.text, name]]:
                self.done("train", *SHAPE, *words, "--dry-run", "--out", self.out, cwd=self.folder)
            self.tokenize("--out", shard, self.folder / name)
            self.done("tokenize", "--tokenizer", "bytes", name, self.text, "--out", shard, cwd=self.folder)
            self.assertEqual(shard.stat().st_size, 1024 + 2 * 2 * len(PROSE))
        printed = self.done("train", *SHAPE, "--data", shard, "--dry-run", "--out", self.out)
        self.assertIn(str(shard), printed)

    def test_a_checkpoint_has_its_tokenizer(self):
        checkpoint = self.trained()
        self.assertEqual((checkpoint / "merges.txt").read_text(), MERGES)
        vocabulary = json.loads((checkpoint / "vocab.json").read_text())
        self.assertEqual(len(vocabulary), VOCABULARY)
        self.assertEqual(vocabulary["the"], 257)
        self.assertEqual(json.loads((checkpoint / "config.json").read_text())["vocab_size"], VOCABULARY)
        self.merges.unlink()  # the checkpoint has its own
        self.done("train", "--out", self.out, "--resume")
        self.assertTrue(self.done("generate", "--model", self.out, "--prompt", "the ").startswith("the "))

    def test_shards_resume_bit_for_bit(self):
        for i in range(3):
            (self.folder / f"part{i}").write_text(PROSE[i * 4000 : (i + 1) * 4000])
            self.tokenize(self.folder / f"part{i}", "--out", self.folder / f"s{i}.bin")
        words = ["--data", self.folder / "s*.bin", "--merges", self.merges, "--checkpoint-every", 5]
        run = [*SHAPE, *words, "--steps", 200]
        whole, killed = self.folder / "whole.log", self.folder / "killed.log"
        self.done("train", *run, "--out", self.folder / "whole", "--log", whole)
        begin = [PROGRAM, "train", *map(str, run), "--out", str(self.out), "--log", str(killed)]
        process = subprocess.Popen(begin, stdout=subprocess.PIPE, text=True)
        while not (self.out / "latest").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.done("train", "--resume", "--out", self.out, "--log", killed)
        self.assertEqual(self.losses(killed), self.losses(whole))

    def test_refuses_tokens_beyond_the_vocabulary_before_the_first_step(self):
        shard = self.folder / "t.bin"
        self.tokenize(self.text, "--out", shard)
        bad = bytearray(shard.read_bytes())
        bad[-200:-198] = struct.pack("<H", VOCABULARY)
        shard.write_bytes(bad)
        result = spool("train", *SHAPE, "--merges", self.merges, "--data", shard, "--out", self.out)
        self.refused(result, 1, "t.bin", f"is {VOCABULARY}", "vocabulary")
        self.assertFalse(self.out.exists())

    def test_refuses_to_resume_with_another_vocabulary(self):
        shard = self.folder / "t.bin"
        self.tokenize(self.text, "--out", shard)
        self.trained(data=shard)
        other = self.folder / "other.txt"
        other.write_text(MERGES.replace("t h\nth e", "e t\net h"))
        resume = ["train", "--resume", "--out", self.out]
        self.refused(spool(*resume, "--merges", other), 1, "other.txt", "not the run's vocabulary")
        self.done(*resume, "--merges", self.merges)

    def test_a_run_is_named_after_its_model_by_default(self):
        checkpoint = self.trained()
        model = self.folder / "mine"
        self.done("convert", checkpoint, model)
        words = ["--model", f"{model}/", "--data", self.text, "--steps", 1]
        self.done("train", *words, cwd=self.folder)
        self.assertTrue((self.folder / "runs" / "mine" / "latest").exists())

    def test_refuses_data_and_settings_that_do_not_fit(self):
        checkpoint = self.trained()
        other = self.folder / "other"
        shard = self.folder / "t.bin"
        self.tokenize(self.text, "--out", shard)
        for words, parts in [
            (["--data", self.text, shard], ["only one kind"]),
            (["--model", checkpoint, "--layers", 3], ["--layers", "fixed"]),
            (["--model", checkpoint, "--seq", 33], ["--seq"]),
            (["--model", checkpoint, "--tokenizer", "words"], ["choose bytes or gpt2"]),
            (["--model", self.text], ["text.txt"]),
            (["--model", self.folder], ["model.safetensors"]),
            (["--vocab", 256, "--merges", self.merges], ["--vocab", str(VOCABULARY)]),
            (["--data", self.folder / "none*.bin"], ["none*.bin"]),
        ]:
            data = [] if "--data" in words else ["--data", self.text]
            shape = [] if "--model" in words else SHAPE
            result = spool("train", *shape, *words, *data, "--out", other, "--steps", 1)
            self.refused(result, 1, *parts)
            self.assertFalse(other.exists(), words)


class Models(Files):
    def test_fine_tuning_lowers_the_loss(self):
        checkpoint = self.trained(steps=30)
        before = json.loads(self.done("eval", "--model", self.out, "--data", self.text, "--json"))
        tuned = self.folder / "tuned"
        words = ["--model", checkpoint, "--data", self.text, "--steps", 30, "--lr", 0.003]
        printed = self.done("train", *words, "--out", tuned, "--dtype", "bf16")
        self.assertIn(f"starting from the weights of {checkpoint}", printed)
        after = json.loads(self.done("eval", "--model", tuned, "--data", self.text, "--json"))
        self.assertLess(after["loss"], before["loss"])
        self.assertEqual(after["tokens"], before["tokens"])
        self.done("train", "--resume", "--out", tuned)

    def test_fine_tuning_begins_with_the_loss_of_the_weights(self):
        checkpoint = self.trained(steps=20)
        log = self.folder / "log"
        words = ["--data", self.text, "--val-data", self.text, "--lr", 1e-12, "--warmup", 0]
        self.done("train", "--model", checkpoint, *words, "--out", self.folder / "o", "--steps", 1,
                  "--log", log)  # fmt: skip
        measured = json.loads(self.done("eval", "--model", checkpoint, "--data", self.text, "--json"))
        self.assertAlmostEqual(self.log(log)[-1]["val_loss"], measured["loss"], places=4)

    def test_conversion_keeps_the_loss(self):
        checkpoint = self.trained()
        losses = {}
        for form, words in {
            "a.bin": [checkpoint],
            "b": [self.folder / "a.bin"],
            "c": [checkpoint / "model.safetensors"],
            "d.bin": [checkpoint, "--dtype", "bf16"],
        }.items():
            out = self.folder / form
            self.assertIn("parameters", self.done("convert", *words[:1], out, *words[1:]))
            shown = self.done("eval", "--model", out, "--data", self.text, "--json",
                              "--merges", self.merges)  # fmt: skip
            losses[form] = json.loads(shown)["loss"]
        self.assertEqual(losses["a.bin"], losses["b"])
        self.assertEqual(losses["a.bin"], losses["c"])
        self.assertAlmostEqual(losses["a.bin"], losses["d.bin"], places=2)
        self.assertNotEqual(losses["a.bin"], losses["d.bin"])
        self.assertTrue((self.folder / "c" / "merges.txt").exists())
        self.refused(spool("convert", checkpoint, self.folder / "b"), 1, "is there already")
        self.refused(spool("convert", self.text, self.folder / "x"), 1, "text.txt")
        self.refused(spool("convert", checkpoint), 2, "OUT")

    def test_eval_gives_the_same_loss_for_any_batch_and_form_of_data(self):
        checkpoint = self.trained()
        words = ["eval", "--model", checkpoint, "--data", self.text]
        result = json.loads(self.done(*words, "--json"))
        self.assertEqual(set(result), {"loss", "perplexity", "tokens"})
        self.assertAlmostEqual(result["perplexity"], math.exp(result["loss"]), places=3)
        self.assertRegex(self.done(*words, "--json"), r'"loss":\d\.\d{7},')
        shown = self.done(*words)
        self.assertIn(f"loss {result['loss']:.7f}", shown)
        self.assertIn(f"{result['tokens']} tokens", shown)
        for more in [["--batch", 1], ["--batch", 7], ["--threads", 1], ["--dtype", "bf16"]]:
            other = json.loads(self.done(*words, "--json", *more))
            self.assertAlmostEqual(other["loss"], result["loss"], places=2 if "bf16" in more else 5)
        shard = self.folder / "t.bin"
        self.tokenize(self.text, "--out", shard)
        self.assertEqual(json.loads(self.done("eval", "--model", checkpoint, "--data", shard, "--json")), result)
        short = self.folder / "short"
        short.write_text("the text")
        few = json.loads(self.done("eval", "--model", checkpoint, "--data", short, "--json"))
        self.assertLess(few["tokens"], 8)
        peaks = []
        for times in [2, 30]:
            (self.folder / "long").write_text(PROSE * times)
            long = ["eval", "--model", checkpoint, "--data", self.folder / "long"]
            peaks.append(peak_memory(*long, "--batch", 1))
        self.assertLess(peaks[1] - peaks[0], 6 << 20)
        for words, parts in [
            (["--model", "gpt2-124m", "--data", shard], ["no weights"]),
            (["--model", checkpoint, "--data", shard, "--seq", 33], ["--seq"]),
            (["--model", checkpoint, "--data", self.folder / "none"], ["none"]),
            (["--model", checkpoint, "--data", shard, self.text], ["only one kind"]),
        ]:
            self.refused(spool("eval", *words), 1, *parts)

    def test_eval_fits_into_a_budget_or_says_the_smallest_that_would_do(self):
        checkpoint = self.trained()
        words = ["eval", "--model", checkpoint, "--data", self.text, "--threads", 2, "--json"]
        result = json.loads(self.done(*words))

        def within(budget):
            status, printed, errors = spool(*words, "--memory", budget)
            self.assertEqual(status, 0, errors)
            self.assertAlmostEqual(json.loads(printed)["loss"], result["loss"], delta=1e-5)
            told = re.fullmatch(
                r"foretold peak .* \((\d+) bytes\), .* a batch: the loss of (.*), MLPs of (.*)\n", errors
            )
            self.assertIsNotNone(told, errors)
            return int(told[1]), told[2], told[3]

        peak, *rows = within("1GiB")
        self.assertEqual(rows, ["all rows at once"] * 2)
        self.assertEqual(within(peak)[0], peak)
        fewer, *rows = within(peak - 1)
        self.assertLess(fewer, peak)
        self.assertIn("rows at a time", " ".join(rows))
        refused = spool(*words, "--memory", "1kB")
        self.refused(refused, 1, "this evaluation", "in the budget", "(--memory, --batch")
        least = int(re.search(r"needs .* \((\d+) bytes\), and", refused[2])[1])
        self.assertEqual(within(least)[0], least)
        self.refused(spool(*words, "--memory", least - 1), 1, f"({least} bytes)")
        self.refused(spool(*words, "--memory", "much"), 2, "--memory")

    def test_eval_answers_multiple_choice_questions(self):
        checkpoint = self.trained(steps=40)

        def questions(answers):
            """A file of questions that ask how a line of the prose continues."""
            all_words = []
            for index, answer in enumerate(answers):
                choices = [[84 - 33] * 3, [64, 65, 66, 67]]
                words = [65535, 0, index, answer, 2, 2, 84 - 33, 85 - 33]
                for choice in choices:
                    words += [len(choice), *choice]
                words[1] = 2 * len(words)
                all_words += words
            header = struct.pack("<256i", 20240522, 1, len(answers), 34, *[0] * 252)
            path = self.folder / "questions.bin"
            path.write_bytes(header + struct.pack(f"<{len(all_words)}H", *all_words))
            return path

        words = ["eval", "--model", checkpoint, "--json", "--data"]
        parts = []
        for answer in [0, 1]:
            result = json.loads(self.done(*words, questions([answer] * 5)))
            self.assertEqual(result["questions"], 5)
            parts.append(result["accuracy"])
        self.assertEqual(sorted(parts), [0, 1])
        mixed = json.loads(self.done(*words, questions([0, 0, 0, 1]), "--batch", 3))
        self.assertIn(mixed["accuracy"], [0.25, 0.75])
        status, printed, errors = spool(*words, questions([0, 0, 0, 1]), "--memory", "1GiB")
        self.assertEqual((status, json.loads(printed)), (0, mixed))
        self.assertIn("foretold peak", errors)
        tight = spool(*words, questions([0]), "--memory", "1kB")
        self.refused(tight, 1, "this evaluation", "in the budget")
        self.refused(spool(*words, questions([2])), 1, "question 0", "right one")
        self.refused(spool(*words, questions([0]), "--ranks", 2), 1, "--ranks", "questions.bin")
        self.refused(spool(*words, questions([0]), "--seq", 3), 1, "beyond the 3")
        self.refused(spool(*words, questions([0]), self.text), 1, "without other files")
        # The same questions in lines of JSON: tokens are bytes, and a blank is the first of an ending.
        lines = self.folder / "questions.jsonl"

        def in_lines(answers, **more):
            line = {"ind": 3, "ctx": "of a", "endings": ["text", "#$%&"]}
            lines.write_text("".join(json.dumps(line | {"label": a} | more) + "\n\n" for a in answers))
            return lines

        result = json.loads(self.done(*words, in_lines([0, 0, 0, 1])))
        self.assertEqual(result, {"accuracy": 0.75, "accuracy_by_sum": 0.75, "questions": 4})
        self.refused(spool(*words, in_lines([0, 2])), 1, "questions.jsonl, line 3: field label", "from 0 to 1")
        self.refused(spool(*words, in_lines([0], endings=[1])), 1, "line 1: field endings[0]")
        self.refused(spool(*words, in_lines([0], endings=[])), 1, "line 1: field endings", "is empty")
        self.refused(spool(*words, in_lines([0], ctx="")), 1, "line 1: field ctx", "is empty")
        self.refused(spool(*words, in_lines([0]), "--limit", 2), 1, "--limit")
        lines.write_text('{"endings": ["a"]}')
        self.refused(spool(*words, lines), 1, "line 1", "ctx")


class Generate(Files):
    def test_stops_at_the_end_of_text(self):
        # Every document is two words, so the text ends after them.
        documents = []
        for i in range(60):
            documents.append(self.folder / f"d{i}")
            documents[-1].write_text("the text" if i % 2 else "thin ext")
        shard = self.folder / "t.bin"
        self.tokenize(*documents, "--out", shard, "--separate")
        self.trained("--lr", 0.01, data=shard, steps=150)
        words = ["generate", "--model", self.out, "--temperature", 0]
        self.assertEqual(self.done(*words, "--prompt", "the"), "the text\n")
        self.assertRegex(self.done(*words, "--tokens", 50), r"^(the text|thin ext)\n$")

    def test_interactive_lines_continue_one_text(self):
        self.trained()
        words = ["generate", "--model", self.out, "--interactive", "--tokens", 5, "--temperature", 0]
        printed = self.done(*words, input=b"the \n\na t\nthe \n")
        self.assertEqual(printed.count("the "), 2)
        alone = self.done(*words[:3], "--tokens", 10, "--temperature", 0, "--prompt", "the ")
        # An empty line continues the text, so there are twice as many tokens.
        self.assertTrue(printed.replace("\n", "").startswith(alone.rstrip("\n").replace("\n", "")))

    def test_interrupt_ends_the_text(self):
        self.trained()
        words = [PROGRAM, "generate", "--model", self.out, "--tokens", "100000000"]
        words += ["--tokenizer", "bytes"]  # whose texts never end
        process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE)
        process.stdout.read(100)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)

    def test_refuses_models_and_numbers_that_cannot_be(self):
        checkpoint = self.trained()
        for words, parts in [
            (["--model", "gpt2-124m"], ["no trained weights"]),
            (["--model", checkpoint, "--tokens", 0], ["--tokens"]),
            (["--model", checkpoint, "--temperature", -1], ["--temperature"]),
            (["--model", checkpoint, "--top-k", -1], ["--top-k"]),
            (["--model", self.folder / "none"], ["none"]),
        ]:
            self.refused(spool("generate", *words), 1, *parts)
        bare = self.folder / "bare"
        bare.mkdir()
        for name in ["model.safetensors", "config.json"]:
            shutil.copy(checkpoint / name, bare)
        self.refused(spool("generate", "--model", bare), 1, "--merges")
        self.done("generate", "--model", bare, "--merges", self.merges)
        self.done("generate", "--model", bare, "--tokenizer", "bytes")


if __name__ == "__main__":
    main()
