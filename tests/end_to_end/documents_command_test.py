"""Data that is several documents or is not text, and models that have no weights.

documents_command_test.py PROGRAM [CASE...]
"""

import gzip
import json
import pathlib
import shutil
import struct

from commands import PROSE, SHAPE, Files, as_of_an_earlier_version, main, spool

PUBLISHED = pathlib.Path(__file__).parents[1] / "reference" / "transformers" / "published"


def ids(shard):
    whole = shard.read_bytes()
    return list(struct.unpack(f"<{struct.unpack('<3i', whole[:12])[2]}H", whole[1024:]))


class Documents(Files):
    def setUp(self):
        super().setUp()
        self.files = [self.folder / f"{i}.txt" for i in range(3)]
        for i, file in enumerate(self.files):
            file.write_text(PROSE[i * 400 : i * 400 + 300])
        shard = self.folder / "t.bin"
        self.parts = []
        for file in self.files:
            self.tokenize(file, "--out", shard)
            self.parts.append(ids(shard))
        self.tokenize(self.files[0], "--separate", "--out", shard)
        self.end = ids(shard)[0]

    def joined(self, between, before=()):
        all_ids = []
        for i, part in enumerate(self.parts):
            all_ids += [*before, *(between if i else []), *part]
        return all_ids

    def test_tokenize_puts_the_end_of_text_between_files(self):
        shard = self.folder / "all.bin"
        for words, expected in [
            ([], self.joined([self.end])),
            (["--separate"], self.joined([], [self.end])),
            (["--no-separate"], self.joined([])),
        ]:
            self.tokenize(*self.files, "--out", shard, *words)
            self.assertEqual(ids(shard), expected, words)
        both = ["--separate", "--no-separate"]
        result = spool("tokenize", "--merges", self.merges, *self.files, "--out", shard, *both)
        self.refused(result, 1, *both)

    def test_train_and_eval_read_what_tokenize_writes(self):
        shard = self.folder / "all.bin"
        self.trained()
        words = ["eval", "--model", self.out, "--json", "--data"]
        for more in [[], ["--no-separate"]]:
            self.tokenize(*self.files, "--out", shard, *more)
            self.assertEqual(self.done(*words, *self.files, *more), self.done(*words, shard))
            outs = [self.folder / f"{form}{len(more)}" for form in ("text", "shard")]
            fixed = [*SHAPE, "--merges", self.merges, "--steps", 2, "--data"]
            self.done("train", *fixed, *self.files, "--out", outs[0], *more)
            self.done("train", *fixed, shard, "--out", outs[1])
            self.assertEqual(self.weights(outs[0]), self.weights(outs[1]))

    def test_a_run_keeps_how_it_reads_its_files(self):
        words = [*SHAPE, "--merges", self.merges, "--data", *self.files]
        for more, stored in [([], True), (["--no-separate"], False)]:
            shutil.rmtree(self.out, ignore_errors=True)
            whole = self.folder / f"whole{stored}"
            self.done("train", *words, *more, "--steps", 4, "--lr-schedule", "constant", "--out", whole)
            self.done("train", *words, *more, "--steps", 2, "--lr-schedule", "constant", "--out", self.out)
            run = json.loads((self.out / "latest" / "run.json").read_text())
            self.assertEqual(run["configuration"]["separate"], stored)
            resume = ["train", "--resume", "--out", self.out, "--steps", 4]
            if stored:
                self.refused(spool(*resume, "--no-separate"), 1, "separate", "it has true")
            else:  # of a version that knew nothing of it
                file = as_of_an_earlier_version(self.out / "latest")
                run = json.loads(file.read_text())
                for key in ["separate", "data-format"]:
                    del run["configuration"][key]
                file.write_text(json.dumps(run))
            self.done(*resume)
            self.assertEqual(self.weights(self.out), self.weights(whole))

    def test_files_that_run_into_each_other_are_said_once(self):
        said = "files are read as one text: the tokenizer bytes has no token to put between them"
        words = ["train", *SHAPE, "--steps", 1, "--final-eval", "none", "--out"]
        data = ["--data", *self.files, "--val-data", *self.files]
        self.assertEqual(self.done(*words, self.out, *data).count(said), 1)
        self.assertNotIn(said, self.done(*words, self.folder / "one", "--data", self.text))
        self.assertNotIn(said, self.done(*words, self.folder / "no", *data, "--no-separate"))
        more = ["--data", *self.files, "--json"]
        for command in (["eval", "--model", self.out], ["tokenize", "--tokenizer", "bytes"]):
            end = more if command[0] == "eval" else [*self.files, "--out", self.folder / "b.bin"]
            self.assertEqual(spool(*command, *end)[2].count(said), 1, command)


class Kinds(Files):
    def test_a_file_that_is_not_text_is_refused_by_every_command(self):
        packed = self.folder / "text.txt.gz"
        packed.write_bytes(gzip.compress(PROSE.encode()))
        table = self.folder / "texts.csv"
        table.write_text("text\na\n")
        self.trained()
        for file, word in [(packed, "gzip"), (table, "table")]:
            for command in [
                ["train", *SHAPE, "--steps", 1, "--out", self.folder / "new", "--data", file],
                ["train", *SHAPE, "--steps", 1, "--out", self.folder / "new", "--val-data", file],
                ["eval", "--model", self.out, "--data", file],
                ["tokenize", "--out", self.folder / "new.bin", file],
            ]:
                self.refused(spool(*command), 1, file.name, word, "--data-format")
                self.assertFalse((self.folder / "new").exists())
        lines = self.folder / "chats.jsonl"
        lines.write_text('{"text": "a"}\n')
        result = spool("tokenize", "--out", self.folder / "new.bin", lines)
        self.refused(result, 1, lines.name, "JSON lines", "--data-format")

    def test_data_format_text_takes_any_bytes_and_stays_with_the_run(self):
        packed = self.folder / "text.txt.gz"
        packed.write_bytes(gzip.compress(PROSE.encode()))
        words = [*SHAPE, "--data", packed, "--data-format", "text", "--steps", 2, "--out", self.out]
        self.done("train", *words)
        self.done("train", "--resume", "--out", self.out, "--steps", 3)
        resume = ["train", "--resume", "--out", self.out, "--steps", 4, "--data-format", "auto"]
        self.refused(spool(*resume), 1, "--data-format", 'it has "text"')
        eval_words = ["eval", "--model", self.out, "--json", "--data", packed]
        tokens = json.loads(self.done(*eval_words, "--data-format", "text"))["tokens"]
        self.assertEqual(tokens, packed.stat().st_size - 1)
        out, back = self.folder / "p.bin", self.folder / "back"
        self.done("tokenize", packed, "--data-format", "text", "--out", out)
        self.done("tokenize", "--decode", out, "--out", back)
        self.assertEqual(back.read_bytes(), packed.read_bytes())


class WithoutWeights(Files):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(PUBLISHED, self.model)

    def test_a_plan_needs_the_configuration_alone(self):
        words = ["plan", "--machine", "h200", "--seq", 8, "--json", "-", "--model"]
        whole = json.loads(self.done(*words, self.model))
        (self.model / "model.safetensors").write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
        )
        for path in [self.model, self.model / "config.json"]:
            plan = json.loads(self.done(*words, path))
            named = [key for key in whole if whole[key] != plan[key]]
            self.assertLessEqual(set(named), {"model", "plan_ms", "explanation"})
            train = ["train", "--model", path, "--data", self.text, "--out", self.out, "--seq", 8]
            self.refused(spool(*train), 1, "model.safetensors", "Git LFS")
        self.refused(spool("info", self.model), 1, "Git LFS")

    def test_the_configuration_of_a_gpt2_stays_what_it_was(self):
        file = self.model / "config.json"
        config = json.loads(file.read_text())
        config |= {"resid_pdrop": 0.0, "pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2}
        config["task_specific_params"] = {"text-generation": {"do_sample": True}}
        file.write_text(json.dumps(config))
        del config["architectures"]
        file.write_text(json.dumps(config))
        self.done("convert", self.model, self.folder / "copy")
        again = json.loads((self.folder / "copy" / "config.json").read_text())
        self.assertEqual(again, config)


main()
