"""`spool show-data`: examples as a model sees them, with what it would learn.

show_data_command_test.py PROGRAM [CASE...]
"""

import json

from commands import CHATML, Files, main, spool

SHAPE = "--layers 1 --heads 2 --channels 16 --context 64 --seq 32 --batch 2".split()


def chat(*contents):
    roles = ["user", "assistant"]
    return {"messages": [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]}


class ShowData(Files):
    def setUp(self):
        super().setUp()
        tokenizer = self.chat_tokenizer()
        self.data = self.folder / "chats.jsonl"
        self.write([chat("Hi", "Hello"), chat("1+1?", "2", "2+2?", "4")])
        words = ["--model", "llama-tiny", *SHAPE, "--tokenizer", tokenizer, "--data", self.text]
        self.done("train", *words, "--out", self.out, "--steps", 1, "--no-sample")
        self.config = self.out / "latest" / "tokenizer_config.json"
        self.config.write_text(json.dumps({"chat_template": CHATML}))

    def write(self, lines):
        self.data.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def shown(self, *words):
        return self.done("show-data", self.data, "--model", self.out, *words)

    def report(self, *words):
        return json.loads(self.shown(*words, "--json", "-"))

    def refused(self, *parts, words=()):
        status, printed, errors = spool("show-data", self.data, "--model", self.out, *words)
        self.assertEqual(status, 1, printed)
        for part in parts:
            self.assertIn(part, errors)

    def test_what_is_learnt_is_marked(self):
        printed = self.shown()
        self.assertIn("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n»Hello<|im_end|>«\n", printed)
        self.assertIn("»2<|im_end|>«\n<|im_start|>user\n2+2?", printed)
        self.assertIn("2 examples: 0 cut", printed)
        self.assertIn("1 row of 64 tokens", printed)
        report = self.report()
        self.assertEqual((report["examples"], report["rows"], report["seq"]), (2, 1, 64))
        learnt = [sum(example["learnt"]) for example in report["first_rows"][0]]
        self.assertEqual(sum(learnt), report["learnt"])
        self.assertEqual(sum(len(example["tokens"]) for example in report["first_rows"][0]), report["tokens"])

    def test_rows_and_lengths(self):
        self.write([chat("Say it", f"It is {i}.") for i in range(40)])
        packed, alone = self.report(), self.report("--no-pack")
        self.assertLess(packed["rows"], alone["rows"])
        self.assertEqual(alone["rows"], 40)
        self.assertGreater(packed["fill"], alone["fill"])
        short = self.report("--seq", 24)
        self.assertEqual(short["cut"], 40)
        self.assertEqual(self.report("--rows", 0)["first_rows"], [])
        everything = self.report("--learn", "all")
        self.assertEqual(everything["learnt"], everything["tokens"] - 40)  # a first token is no target
        self.assertEqual(self.report("--learn", "assistant"), packed)
        told = self.report("--system", "Be kind.")
        self.assertGreater(told["tokens"], packed["tokens"])
        self.assertEqual(told["learnt"], packed["learnt"])

    def test_files_of_other_forms(self):
        self.write([{"prompt": "a", "completion": "b"}, {"text": "c"}, {"instruction": "d", "output": "e"}])
        printed = self.shown()
        self.assertIn("a»b<|endoftext|>«", printed)
        self.assertIn("<|im_start|>assistant\n»e<|im_end|>«", printed)
        self.config.unlink()  # no template: texts need none
        self.refused("line 3", "--chat-format", "chatml")
        self.assertIn("»e<|im_end|>«", self.shown("--chat-format", "chatml"))

    def test_formats_from_files(self):
        said = {"before": "Q: ", "trim": True, "end": "", "after": "\n"}
        answered = {"before": "A:", "lead": " ", "trim": True, "end": "<|im_end|>", "after": "\n"}
        form = {"begin_token": False, "begin": "A chat.\n", "system": {"join": "\n"}, "user": said}
        form |= {"assistant": answered}
        file = self.folder / "mine.json"
        file.write_text(json.dumps(form))
        words = ["--chat-format", file, "--system", "Add."]
        self.write([chat(" 1+1? ", " 2\n", "2+2?", "4")])
        self.assertIn("A chat.\nQ: Add.\n1+1?\nA:» 2<|im_end|>«\nQ: 2+2?\nA:» 4<|im_end|>«\n", self.shown(*words))
        self.write([{"messages": [{"role": "assistant", "content": "x"}, {"role": "system", "content": "y"}]}])
        self.refused("line 1", "field messages", "the system comes first", words=words[:2])
        file.write_text(json.dumps(form | {"system": None}))
        self.refused("line 1", "no message of the system", words=words[:2])
        file.write_text(json.dumps(form | {"role": "x"}))
        self.refused("mine.json: field role", "begin_token", words=words)
        answered["end"] = "<none>"
        file.write_text(json.dumps(form))
        self.refused("<none>", "mine.json", "--chat-format", words=words)
        file.unlink()
        self.refused("mine.json", words=words)

    def test_what_cannot_be_shown(self):
        self.refused("--seq 65", words=["--seq", 65])
        self.refused("--chat-format", "chatml", words=["--chat-format", "jinja"])
        self.refused("--json", words=["--json", self.folder])
        self.refused("has anything to learn", words=["--seq", 1])
        for text, parts in [
            ("", ["no example"]),
            ("\n \n", ["no example"]),
            ("no json\n", ["chats.jsonl, line 1"]),
            ('{"text": "a"}\n{"messages": [{"role": "user", "content": "x"}]}\n', ["line 2", "assistant"]),
            ('{"messages": [{"role": "assistant", "content": [{"type": "image"}]}]}', ["line 1", "content[0].type"]),
        ]:
            self.data.write_text(text)
            self.refused(*parts)
        self.data.write_bytes(b'{"text": "\xff\xfe"}\n')
        self.refused("line 1")
        self.data.unlink()
        self.refused("chats.jsonl")


if __name__ == "__main__":
    main()
