"""What `spool generate` writes: batches of prompts, ends of texts, chats.

generate_command_test.py PROGRAM [CASE...]
"""

import json
import re
import shutil
import subprocess

from commands import CHATML, PROGRAM, PROSE, TOKENIZERS, Files, main, spool

SHAPE = "--layers 2 --heads 2 --channels 24 --context 64 --seq 32 --batch 4 --lr 0.01".split()


class Generate(Files):
    def model(self, *words, tokenizer="bytes", steps=60):
        fixed = ["--model", "llama-tiny", *SHAPE, "--tokenizer", tokenizer, "--data", self.text]
        self.done("train", *fixed, "--out", self.out, "--steps", steps, *words)
        return self.out

    def written(self, *words, **more):
        return self.done("generate", "--model", self.out, *words, **more)

    def lines(self, *words, **more):
        return [json.loads(line) for line in self.written(*words, "--json", **more).splitlines()]

    def test_prompts_of_a_file_become_what_each_becomes_alone(self):
        self.model()
        prompts = ["Line 1", "L", "of a text that says", "x" * 30, "a", "42", "Line"]
        file = self.folder / "prompts"
        file.write_text("\n\n".join(prompts) + "\r\n")
        words = ["--temperature", 0, "--tokens", 20]
        alone = [self.written(*words, "--prompt", p) for p in prompts]
        self.assertEqual(self.written(*words, "--prompts", file), "\n".join(alone))
        for batch in [1, 2, 3, 100]:
            lines = self.lines(*words, "--prompts", file, "--batch", batch)
            self.assertEqual([line["prompt"] + line["text"] + "\n" for line in lines], alone)
            self.assertEqual({line["ended_by"] for line in lines}, {"limit"})
        piped = self.written(*words, "--prompts", "-", input=file.read_bytes())
        self.assertEqual(piped, "\n".join(alone))

    def test_samples_of_a_prompt(self):
        self.model()
        words = ["--tokens", 20, "--prompt", "Line 1"]
        lines = self.lines(*words, "--samples", 5)
        self.assertEqual([line["sample"] for line in lines], list(range(5)))
        texts = [line["text"] for line in lines]
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual(self.written(*words), f"Line 1{texts[0]}\n")
        written = "---\n".join(f"Line 1{text}\n" for text in texts)
        for batch in [1, 2, 5, 100]:
            self.assertEqual(self.written(*words, "--samples", 5, "--batch", batch), written)
        self.assertEqual(self.written(*words, "--samples", 3), "---\n".join(written.split("---\n")[:3]))
        other = self.lines(*words, "--samples", 5, "--seed", 2)
        self.assertNotEqual([line["text"] for line in other], texts)
        greedy = self.lines(*words, "--samples", 3, "--temperature", 0)
        self.assertEqual(len({line["text"] for line in greedy}), 1)

    def test_samples_of_the_prompts_of_a_file(self):
        self.model()
        file = self.folder / "prompts"
        file.write_text("Line 1\nof a text\n")
        for batch in [1, 3, 100]:
            lines = self.lines("--tokens", 9, "--prompts", file, "--samples", 3, "--batch", batch)
            found = [(line["prompt"], line["sample"]) for line in lines]
            self.assertEqual(found, [(p, i) for p in ["Line 1", "of a text"] for i in range(3)])

    def test_the_samples_of_a_prompt_are_the_same_however_many_follow(self):
        self.model()
        file = self.folder / "prompts"
        file.write_text("Line 1\nof a text\nLine 1\n42\n")
        words = ["--tokens", 9, "--prompts", file]
        all_of_them = self.lines(*words, "--samples", 5)
        self.assertGreater(len({line["text"] for line in all_of_them}), 15)
        for samples in [1, 2, 3]:
            lines = self.lines(*words, "--samples", samples)
            some = [line for i, line in enumerate(all_of_them) if i % 5 < samples]
            self.assertEqual([line["text"] for line in lines], [line["text"] for line in some])
        file.write_text("Line 1\nof a text\n")  # fewer prompts
        texts = [line["text"] for line in self.lines(*words, "--samples", 5)]
        self.assertEqual(texts, [line["text"] for line in all_of_them[:10]])

    def test_samples_that_outgrow_the_context_are_written_too(self):
        self.model()
        lines = self.lines("--tokens", 100, "--samples", 3)
        self.assertEqual([(line["sample"], line["tokens"]) for line in lines], [(i, 100) for i in range(3)])
        self.assertEqual(self.written("--tokens", 100), lines[0]["text"] + "\n")
        self.assertEqual(len({line["text"] for line in lines}), 3)

    def test_stops_at_any_of_some_texts(self):
        self.model()
        words = ["--temperature", 0, "--tokens", 30, "--prompt", "Line 1"]
        whole = self.written(*words).rstrip("\n").removeprefix("Line 1")
        stop = whole[7:10]
        cut = whole[: whole.index(stop)]
        self.assertEqual(self.written(*words, "--stop", stop), f"Line 1{cut}\n")
        self.assertEqual(self.written(*words, "--stop", "~~", "--stop", stop), f"Line 1{cut}\n")
        (line,) = self.lines(*words, "--stop", stop)
        self.assertEqual((line["text"], line["ended_by"]), (cut, "stop text"))
        file = self.folder / "prompts"
        file.write_text("Line 1\n")
        (line,) = self.lines(*words[:4], "--prompts", file, "--stop", stop)
        self.assertEqual((line["text"], line["ended_by"]), (cut, "stop text"))

    def chat_model(self, template, steps=150):
        """A model that was trained on chats, whose tokenizer's folder has this template."""
        chats = "".join(
            f"<|im_start|>user\n{i}<|im_end|>\n<|im_start|>assistant\nIt is {i}.<|im_end|>"
            for i in range(10)
        )
        self.text.write_text(("<|endoftext|>" + chats) * 20)
        tokenizer = self.folder / "tokenizer.json"
        shutil.copy(TOKENIZERS / "smollm2.json", tokenizer)
        config = {"chat_template": template, "bos_token": "<|endoftext|>"}
        (self.folder / "tokenizer_config.json").write_text(json.dumps(config))
        return self.model(tokenizer=tokenizer, steps=steps)

    def test_chats_in_the_format_of_the_models_template(self):
        self.chat_model(CHATML)
        words = ["--chat", "--temperature", 0, "--tokens", 20]
        status, reply, errors = spool("generate", "--model", self.out, *words, "--prompt", "7")
        self.assertEqual((status, reply[:6], errors), (0, "It is ", ""))
        self.assertEqual(self.written(*words, "--prompt", "7", "--chat-format", "chatml"), reply)
        (line,) = self.lines(*words, "--prompt", "7")
        self.assertEqual((line["text"] + "\n", line["ended_by"]), (reply, "stop token"))
        (line,) = self.lines(*words, "--prompt", "7", "--system", "Speak of something else.")
        self.assertNotEqual(line["text"] + "\n", reply)
        # A conversation continues in the cache, whether its lines come at once or not.
        printed = self.written(*words, input=b"3\n\n4\n")
        self.assertEqual(len(printed.splitlines()), 2)
        self.assertEqual(self.written(*words, input=b"3\r\n\r\n4\r\n"), printed)  # as Windows ends lines
        self.assertEqual(printed.splitlines()[0], self.written(*words, "--prompt", "3").rstrip("\n"))
        file = self.folder / "prompts"
        file.write_text("7\n3\n")
        lines = self.lines(*words, "--prompts", file)
        self.assertEqual(lines[0]["text"] + "\n", reply)
        # The tokenizer lacks the tokens of another format.
        other = ["generate", "--model", self.out, "--chat", "--prompt", "7", "--chat-format", "llama3"]
        self.refused(spool(*other), 1, "<|eot_id|>", "llama3")
        self.refused(spool(*other[:-1], "chatm"), 1, "--chat-format", "'chatm'", "chatml", "granite")
        # A file may describe the same format.
        file = self.folder / "mine.json"
        form = {"begin_token": False, "begin": ""}
        for role in ["system", "user", "assistant"]:
            form[role] = {"before": f"<|im_start|>{role}\n", "trim": False, "end": "<|im_end|>", "after": "\n"}
        form["assistant"]["lead"] = ""
        file.write_text(json.dumps(form))
        self.assertEqual(self.written(*words, "--chat-format", file, input=b"3\n\n4\n"), printed)
        file.write_text(json.dumps(form | {"system": None}))
        told = ["--chat-format", file, "--prompt", "7", "--system", "Be kind."]
        self.refused(spool("generate", "--model", self.out, *words, *told), 1, "no message of the system")
        file.write_text(json.dumps(form | {"begin": 7}))
        self.refused(spool(*other[:-1], file), 1, "mine.json: field begin")

    def test_a_template_is_not_guessed_by_its_words(self):
        out = self.chat_model(CHATML.replace("message", "m"))
        config = out / "latest" / "tokenizer_config.json"
        words = ["--chat", "--temperature", 0, "--tokens", 8, "--prompt", "7"]
        self.refused(spool("generate", "--model", out, *words), 1, "none of those", "--chat-format", "such as chatml")
        named = self.written(*words, "--chat-format", "chatml")

        def template(value):
            config.write_text(json.dumps({"chat_template": value, "bos_token": "<tool_call>"}))

        def rendered(text):
            prompt = text + "<|im_start|>user\n7<|im_end|>\n<|im_start|>assistant\n"
            return self.written(*words[1:-1], prompt, "--stop", "<|im_end|>").removeprefix(prompt)

        for value in [None, [], {}, [{"name": "other", "template": "x"}]]:
            template(value)
            self.assertEqual(self.written(*words, "--chat-format", "chatml"), named)
            self.refused(spool("generate", "--model", out, *words), 1, "no template", "--chat-format")
        config.unlink()
        self.assertEqual(self.written(*words, "--chat-format", "chatml"), named)
        self.assertEqual(rendered(""), named)
        for value in [[{"name": "default", "template": CHATML}], {"default": CHATML, "tools": "x"}]:
            template(value)
            self.assertEqual(self.written(*words), named)
        # The beginning-of-text token comes first if the template has it or the user says so.
        template("{{ bos_token }}" + CHATML)
        begun = self.written(*words)
        self.assertEqual(begun, rendered("<tool_call>"))
        self.assertNotEqual(begun, named)
        self.assertEqual(self.written(*words, "--chat-format", "chatml"), begun)
        template("unknown")
        self.assertEqual(self.written(*words, "--chat-format", "chatml+bos"), begun)
        self.assertEqual(self.written(*words, "--chat-format", "chatml"), named)

    def test_stops_at_the_tokens_that_the_model_names_and_no_others(self):
        out = self.chat_model(CHATML)
        start = 601  # <|im_start|>
        file, tokenizer, config = (
            out / "latest" / f"{name}.json" for name in ("generation_config", "tokenizer", "config"))

        def written(says, prompt="<|im_start|>user\n7"):
            file.unlink(missing_ok=True)
            if says is not None:
                file.write_text(json.dumps(says))
            (line,) = self.lines("--temperature", 0, "--tokens", 12, "--prompt", prompt)
            return line["text"], line["ended_by"]

        whole, by = written({"eos_token_id": None})
        self.assertEqual(by, "limit")
        before = whole[: whole.index("<|im_start|>")]
        self.assertEqual(written({"eos_token_id": start}), (before, "stop token"))
        self.assertEqual(written({"eos_token_id": [5, start]}), (before, "stop token"))
        # config.json counts if the file says nothing of them.
        def configured(end):
            config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token_id": end}))

        configured(start)
        for says in [{"do_sample": False}, None]:
            self.assertEqual(written(says), (before, "stop token"))
        for says in [{"eos_token_id": 5}, {"eos_token_id": []}]:
            self.assertEqual(written(says), (whole, "limit"))
        configured([5, 600])
        self.assertEqual(written(None), (whole, "limit"))
        # The end-of-text token counts if neither names any.
        configured(None)
        text = tokenizer.read_text().replace("<|im_start|>", "<|other|>")
        text = text.replace("<|endoftext|>", "<|im_start|>").replace("<|other|>", "<|endoftext|>")
        tokenizer.write_text(text)
        prompt = "<|endoftext|>user\n7"
        for says in [None, {"do_sample": False}]:
            self.assertEqual(written(says, prompt), (before, "stop token"))
        for says in [{"eos_token_id": 5}, {"eos_token_id": []}]:
            self.assertEqual(written(says, prompt)[1], "limit")

    def samples(self, *words):
        """The samples that a run prints which starts from the model."""
        run = self.folder / "tuned"
        shutil.rmtree(run, ignore_errors=True)
        words = ["--steps", 1, "--lr", 1e-9, *words]
        printed = self.done("train", "--model", self.out, "--data", self.text, "--out", run, *words)
        return re.findall(r"^--- sample after step \d+\n(.*?)\n---$", printed, re.M | re.S)

    def test_a_run_of_a_chat_model_writes_chats_as_samples(self):
        out = self.chat_model(CHATML)
        (sample,) = self.samples()
        message, _, answer = sample.partition("\n")
        self.assertRegex(message, "^> .+")
        self.assertTrue(answer.startswith("It is"), answer)
        self.assertNotIn("<|im_end|>", answer)
        config = out / "latest" / "tokenizer_config.json"
        known = config.read_text()
        for other in [{"chat_template": "unknown"}, {"chat_template": 7}, {}]:
            config.write_text(json.dumps(other))
            (sample,) = self.samples()
            self.assertFalse(sample.startswith(">"), sample)
            self.assertIn("<|im_end|>\n<|im_start|>", sample)
        # A resumed run writes the same kind, of the same foretold peak.
        config.write_text(known)
        self.samples()
        run = ["train", "--out", self.folder / "tuned", "--steps", 2, "--final-eval", "none"]
        self.assertIn("\n> ", self.done(*run, "--resume"))

    def test_samples_stop_at_the_models_stop_tokens(self):
        out = self.chat_model("unknown")
        file = out / "latest" / "generation_config.json"
        (whole,) = self.samples()
        self.assertIn("<|im_end|>", whole)
        file.write_text('{"eos_token_id": [602, 603]}')  # <|im_end|>, alone or with a line break
        self.assertEqual(self.samples(), [whole[: whole.index("<|im_end|>")]])

    def test_a_run_may_write_no_samples(self):
        self.model(steps=1)
        self.assertEqual(len(self.samples()), 1)
        self.assertEqual(self.samples("--no-sample"), [])
        words = ["train", "--model", self.out, "--data", self.text, "--out", self.folder / "none"]
        self.refused(
            spool(*words, "--no-sample", "--sample-every", 2), 1, "samples", "--sample-every, --no-sample")
        # Nor is a sample foretold, even where it would have the peak.
        words = ["--model", "gpt2-tiny", "--layers", 12, "--channels", 16, "--context", 320]
        words += ["--seq", 1, "--batch", 1, "--heads", 1, "--tokenizer", "bytes"]
        peaks = []
        for more in [[], ["--no-sample"]]:
            run = self.folder / f"run{len(more)}"
            fixed = ["--data", self.text, "--out", run, "--steps", 1, "--final-eval", "none"]
            printed = self.done("train", *words, *fixed, *more)
            peak = self.foretold(printed)
            self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
            planned = json.loads(self.done("plan", *words, *more, "--json", "-"))
            peaks.append((peak, planned["peak_is_in"]))
        self.assertEqual([part for _, part in peaks][0], "sample")
        self.assertLess(peaks[1][0], peaks[0][0])
        self.assertNotEqual(peaks[1][1], "sample")

    def test_takes_what_the_model_says_about_sampling(self):
        out = self.model()
        words = ["--prompt", "Line", "--tokens", 20]
        greedy = self.written(*words, "--temperature", 0)
        self.assertNotEqual(self.written(*words, "--temperature", 5), greedy)
        file = out / "latest" / "generation_config.json"
        file.write_text('{"do_sample": true, "temperature": 5, "top_p": 1e-9}')
        self.assertEqual(self.written(*words), greedy)
        self.assertNotEqual(self.written(*words, "--top-p", 1), greedy)
        # A run that begins with the model keeps it.
        tuned = self.folder / "tuned"
        self.done("train", "--model", out, "--data", self.text, "--out", tuned, "--steps", 1)
        self.assertEqual((tuned / "latest" / file.name).read_bytes(), file.read_bytes())
        file.write_text('{"do_sample": true, "temperature": -5}')
        self.refused(spool("generate", "--model", out, *words), 1, file.name, "temperature")

    def test_penalty_avoids_what_was_written(self):
        self.model(steps=1)
        words = ["--prompt", "Line", "--tokens", 40, "--temperature", 0]
        few = set(self.written(*words))
        self.assertGreater(len(set(self.written(*words, "--repetition-penalty", 3))), len(few))

    def test_refuses_what_cannot_be(self):
        self.model(steps=1)
        file = self.folder / "prompts"
        blank = self.folder / "blank"
        blank.write_text("\n\n")
        file.write_text("one\n\n" + "long " * 20 + "\n")
        for words, parts in [
            (["--top-p", 0], ["--top-p"]),
            (["--top-p", 1.5], ["--top-p"]),
            (["--min-p", -1], ["--min-p"]),
            (["--min-p", 2], ["--min-p"]),
            (["--repetition-penalty", 0], ["--repetition-penalty"]),
            (["--batch", 0], ["--batch"]),
            (["--prompts", file, "--prompt", "a"], ["--prompts", "--prompt"]),
            (["--prompts", file, "--interactive"], ["--prompts", "--interactive"]),
            (["--prompts", file, "--tokens", 20], ["line 3", "100 tokens", "--tokens", "64"]),
            (["--samples", 0], ["--samples", "1 to 4096"]),
            (["--samples", 2, "--interactive"], ["--samples", "--interactive"]),
            (["--prompts", self.folder / "none"], ["none"]),
            (["--prompts", self.folder], [self.folder.name]),
            (["--prompts", blank], ["no prompt"]),
            (["--system", "x"], ["--system", "--chat"]),
            (["--chat-format", "chatml"], ["--chat-format", "--chat"]),
            (["--chat", "--chat-format", "talk"], ["talk", "chatml", "+bos"]),
            (["--chat", "--chat-format", "talk+bos"], ["talk+bos", "chatml"]),
            (["--chat"], ["no template", "--chat-format"]),
            (["--chat", "--chat-format", "chatml"], ["<|im_end|>"]),
        ]:
            self.refused(spool("generate", "--model", self.out, *words), 1, *parts)

    def test_lines_of_a_conversation_may_end_as_those_of_windows(self):
        self.model()
        words = ["--interactive", "--temperature", 0, "--tokens", 9]
        printed = self.written(*words, input=b"Line 1\n\nof a\n")
        self.assertTrue(printed.startswith("Line 1"), printed)
        self.assertEqual(self.written(*words, input=b"Line 1\r\n\r\nof a\r\n"), printed)

    def test_a_context_beyond_the_models_is_said(self):
        config = json.loads((self.model() / "latest" / "config.json").read_text())
        most = config["max_position_embeddings"]
        for context, more in [(most + 1, []), (2**62, ["--samples", 2])]:
            words = ["generate", "--model", self.out, "--tokens", 5, *more]
            status, printed, errors = spool(*words, "--context", context)
            self.assertEqual(status, 0, errors)
            self.assertIn(f"--context {context} is beyond the model's, which sees {most} tokens", errors)
            self.assertEqual(spool(*words, "--context", most), (0, printed, ""))

    def test_an_interrupt_ends_a_batch(self):
        self.model(steps=1)
        command = [PROGRAM, "generate", "--model", self.out, "--prompts", "-", "--tokens", 40, "--json"]
        process = subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdin.write(b"a\n" * 200_000)
        process.stdin.close()
        process.stdout.readline()
        process.terminate()
        printed = process.stdout.read()
        self.assertEqual(process.wait(60), 130)
        self.assertTrue(all(json.loads(line) for line in printed.splitlines()))


if __name__ == "__main__":
    main()
