"""`spool train`, `plan` and `eval` on examples in lines of JSON.

examples_command_test.py PROGRAM [CASE...]
"""

import json
import re
import shutil

from commands import BY_HAND, CHATML, Files, main, spool

SHAPE = "--layers 1 --heads 2 --channels 16 --context 128 --seq 64 --batch 2".split()


def chat(*contents, system=None):
    roles = ["user", "assistant"]
    turns = [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]
    return {"messages": ([{"role": "system", "content": system}] if system else []) + turns}


CHATS = [chat(f"Say {i}.", f"{i}, and {i * i}." + " So it is." * (i % 3)) for i in range(60)]


class Examples(Files):
    def setUp(self):
        super().setUp()
        self.tokenizer = self.chat_tokenizer()
        self.data = self.folder / "chats.jsonl"
        self.write(CHATS)

    def write(self, lines, file=None):
        (file or self.data).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def chat_model(self):
        """A folder with the weights of a small model of chats."""
        model = self.folder / "model"
        words = ["--tokenizer", self.tokenizer, "--data", self.text, "--steps", 1, "--no-sample"]
        self.done("train", "--model", "llama-tiny", *SHAPE, *words, "--out", self.folder / "first")
        shutil.copytree((self.folder / "first" / "latest").resolve(), model)
        for name in ["run.json", "optimizer.safetensors"]:
            (model / name).unlink()
        (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
        return model

    def words(self, *words, model=None, data=None, out=None):
        if model is None:
            shape = ["--model", "llama-tiny", *SHAPE, "--tokenizer", self.tokenizer, "--chat-format", "chatml"]
        else:
            shape = ["--model", model, "--seq", 64, "--batch", 2]
        return ["train", *shape, "--data", data or self.data, "--out", out or self.out, *words]

    def trained(self, *words, **more):
        return self.done(*self.words(*words, **more))

    def refused_training(self, *parts, words=(), code=1, **more):
        self.refused(spool(*self.words("--no-sample", *words, **more)), code, *parts)

    def files(self, run):
        names = ["model.safetensors", "optimizer.safetensors"]
        return [(run / "latest" / name).read_bytes() for name in names]

    def run_json(self, run=None):
        return json.loads(((run or self.out) / "latest" / "run.json").read_text())

    def test_epochs_are_steps(self):
        printed = self.trained("--no-sample")
        counts = re.search(r"60 examples, 0 cut at 65 tokens, 0 dropped .*: 54 to train on, 6 to validate", printed)
        self.assertTrue(counts, printed)
        rows, fill = re.search(r"(\d+) rows of 64 tokens, ([\d.]+) % full, with \d+ tokens to learn", printed).groups()
        self.assertGreater(float(fill), 70)
        steps = -(-3 * int(rows) // 2)
        self.assertIn(f"3 epochs are {steps} steps", printed)
        configuration = self.run_json()["configuration"]
        self.assertEqual((configuration["steps"], configuration["accumulate"]), (steps, 1))
        self.assertEqual(self.run_json()["step"], steps)
        out = self.folder / "half"
        printed = self.trained("--epochs", 0.5, "--no-sample", out=out)
        self.assertIn(f"0.5 epochs are {-(-int(rows) // 4)} steps, which are few", printed)
        out = self.folder / "two"
        self.assertNotIn("epoch", self.trained("--steps", 2, "--no-sample", out=out))

    def test_a_format_from_a_file(self):
        form = {"begin_token": False, "begin": ""}
        for role in ["system", "user", "assistant"]:
            form[role] = {"before": f"<|im_start|>{role}\n", "trim": False, "end": "<|im_end|>", "after": "\n"}
        form["assistant"]["lead"] = ""
        file, other = self.folder / "mine.json", self.folder / "other"
        file.write_text(json.dumps(form))
        self.trained("--steps", 2, "--no-sample")
        self.trained("--steps", 2, "--no-sample", "--chat-format", file, out=other)
        told = ["eval", "--data", self.data, "--json", "--chat-format"]
        loss = self.done(*told, "chatml", "--model", self.out)
        self.assertEqual(self.done(*told, file, "--model", other), loss)
        told += [file, "--model", other]
        self.done("train", "--resume", "--out", other, "--steps", 3)
        file.write_text(json.dumps(form | {"user": {}}))
        self.refused(spool(*told), 2, "--chat-format", "mine.json: field user")
        self.refused_training("mine.json: field user", words=["--chat-format", file], out=self.folder / "new", code=2)

    def test_a_schedule_has_the_length_of_the_epochs(self):
        log = self.folder / "log.jsonl"
        self.trained("--lr-schedule", "linear", "--warmup", 2, "--log", log, "--no-sample")
        rates = [e["lr"] for e in self.log(log) if "loss" in e]
        steps = self.run_json()["configuration"]["steps"]
        self.assertEqual(len(rates), steps)
        self.assertLess(rates[-1], rates[0])
        self.refused_training("warm-up of 5000", words=["--warmup", 5000], out=self.folder / "long")

    def test_a_dry_run_knows_the_length(self):
        printed = self.trained("--dry-run", "--no-sample")
        self.assertRegex(printed, "3 epochs are [0-9]+ steps")
        self.assertFalse(self.out.exists())

    def test_answers_are_learnt(self):
        model = self.chat_model()
        log = self.folder / "log.jsonl"
        words = ["--epochs", 40, "--lr", 0.02, "--log", log, "--eval-every", 0, "--final-eval", "none"]
        self.write([chat("Hi", "Hello there"), chat("Bye", "Farewell now")] * 4)
        printed = self.trained(*words, "--val-data", self.data, model=model)
        losses = [e["loss"] for e in self.log(log) if "loss" in e]
        self.assertLess(losses[-1], losses[0] / 20)
        # The sample is the answer to the first prompt, up to the token that ends it.
        self.assertRegex(printed, r"--- sample after step \d+\n> Hi\nHello there\n---")
        asked = self.done("generate", "--model", self.out, "--chat", "--prompt", "Bye", "--temperature", 0)
        self.assertIn("Farewell now", asked)

    def test_prompts_texts_and_alpaca(self):
        lines = [{"prompt": "1+1=", "completion": "2"}, {"text": "Once upon a time."}]
        self.write([line for line in lines for _ in range(10)])
        printed = self.trained("--val-data", self.data, "--steps", 3)
        self.assertRegex(printed, r"--- sample after step 3\n> 1\+1=\n")
        more = [{"instruction": "Add.", "input": "1 2", "output": "3"}]
        turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}]
        self.write(more + [{"conversations": turns}] + lines)
        self.trained("--steps", 2, out=self.folder / "mixed")
        # The first line says what a file of another name is.
        other = self.folder / "chats.json"
        shutil.copy(self.data, other)
        self.trained("--steps", 2, "--no-sample", data=other, out=self.folder / "named")
        self.assertEqual(self.files(self.folder / "named"), self.files(self.folder / "mixed"))

    def test_bytes_need_no_files(self):
        self.write([{"prompt": f"{i}+{i}=", "completion": f"{2 * i}"} for i in range(30)])
        printed = self.done("train", "--model", "gpt2-tiny", *SHAPE, "--data", self.data, "--out", self.out,
                            "--epochs", 1)
        self.assertRegex(printed, r"--- sample after step \d+\n> 27\+27=\n")
        self.write(CHATS)
        result = spool("train", "--model", "gpt2-tiny", *SHAPE, "--data", self.data, "--out", self.folder / "chats")
        self.refused(result, 1, "chats.jsonl", "--chat-format")

    def test_settings_of_examples(self):
        self.trained("--steps", 2, "--no-sample")
        for words in [["--no-pack"], ["--learn", "all"], ["--system", "Be brief."], ["--data-seed", 5]]:
            out = self.folder / words[0].strip("-")
            self.trained("--steps", 2, "--no-sample", *words, out=out)
            self.assertNotEqual(self.files(out), self.files(self.out), words)
            self.refused(spool("train", "--resume", "--out", self.out, "--steps", 3, *words), 1, words[0])
            resumed = self.done("train", "--resume", "--out", out, "--steps", 3, "--no-sample")
            self.assertIn("resuming at step 2", resumed)

    def test_packed_rows_learn_what_each_alone_does(self):
        """One step on all examples has the same loss and gradients, packed or not."""
        losses = {}
        self.write([chat(f"Say {i}.", f"{i}, and {i * i}.") for i in range(20)])
        for words in [[], ["--no-pack"]]:
            log = self.folder / f"{len(words)}.jsonl"
            printed = self.trained("--dry-run", "--steps", 1, "--no-sample", "--val-data", self.data, *words)
            rows = int(re.search(r"(\d+) rows? of 64 tokens", printed)[1])
            self.trained("--batch", 1, "--accumulate", rows, "--steps", 1, "--no-sample", "--val-data", self.data,
                         "--log", log, *words, out=self.folder / f"run{len(words)}")
            step = next(e for e in self.log(log) if "loss" in e)
            losses[len(words)] = (step["loss"], step["grad_norm"], rows)
        self.assertLess(losses[0][2], losses[1][2])
        for packed, alone in zip(losses[0][:2], losses[1][:2]):
            self.assertAlmostEqual(packed, alone, delta=2e-5 * alone)

    def test_ranks_end_in_the_same_files(self):
        words = ["--epochs", 1, "--accumulate", 2, "--no-sample", "--keep-best", "--eval-every", 3]
        self.trained(*words, "--ranks", 1)
        for more in [["--ranks", 2], ["--ranks", 2, "--ranks-as", "processes"], ["--ranks", 2, "--zero", 3]]:
            out = self.folder / "-".join(map(str, more))
            self.trained(*words, *more, out=out)
            self.assertEqual(self.files(out), self.files(self.out), more)

    def test_ranks_that_share_rows(self):
        """Rows of several texts are cut over a mesh as others are."""
        words = ["--steps", 3, "--no-sample", "--log"]
        losses = []
        for model in ["llama-tiny", "gpt2-tiny"]:
            for mesh in [[], ["--mesh", "tensor=2", "--shard", "megatron"], ["--mesh", "2", "--shard", "auto"]]:
                name = self.folder / f"{model}{len(losses)}"
                log = name.with_suffix(".jsonl")
                self.trained(*words, log, *mesh, "--model", model, out=name)
                losses.append([e["loss"] for e in self.log(log) if "loss" in e])
        for alone, *shared in [losses[:3], losses[3:]]:
            for one in shared:
                for a, b in zip(alone, one):
                    self.assertAlmostEqual(a, b, delta=1e-4)

    def test_any_plan_has_the_same_bits(self):
        words = ["--steps", 3, "--no-sample"]
        self.trained(*words, *BY_HAND)
        for more in [["--recompute", "block"], ["--recompute", "attention,norms"], ["--offload", "all"]]:
            out = self.folder / more[1].replace(",", "-")
            self.trained(*words, *more, "--chunk-loss", 0, out=out)
            self.assertEqual(self.files(out), self.files(self.out), more)

    def test_a_budget_and_a_saved_plan(self):
        plan = self.folder / "plan.json"
        shape = ["--model", "llama-tiny", *SHAPE, "--tokenizer", self.tokenizer]
        printed = self.done("plan", *shape, "--no-sample", "--data", self.data, "--recompute", "block",
                            "--save-plan", plan)
        self.assertIn("the plan is in", printed)
        self.trained("--plan", plan, "--steps", 2, "--no-sample")
        self.refused_training("a tape that differs", words=["--plan", plan, "--no-pack", "--steps", 2],
                              out=self.folder / "other")
        printed = self.trained("--dry-run", "--no-sample", out=self.folder / "dry")
        least = self.foretold(printed) * 3 // 4
        printed = self.trained("--memory", least, "--steps", 2, "--no-sample", out=self.folder / "small")
        peak = re.search(r"peak (\d+) bytes, foretold (\d+) bytes", printed)
        self.assertEqual(peak[1], peak[2])
        self.assertLessEqual(int(peak[1]), least)

    def test_killed_and_resumed(self):
        words = ["--chat-format", "chatml", "--tokenizer", self.tokenizer, "--checkpoint-every", 3]
        self.text = self.data
        self.killed_and_resumed(*words, *SHAPE, "--no-sample", steps=24)

    def test_a_run_goes_on(self):
        model = self.chat_model()
        self.trained("--epochs", 2, "--no-sample", model=model)
        self.assertEqual(self.run_json()["configuration"]["accumulate"], 1)  # of texts it is 8
        steps = self.run_json()["step"]
        printed = self.done("train", "--resume", "--out", self.out, "--epochs", 3, "--no-sample")
        self.assertEqual(self.run_json()["step"], -(-3 * steps // 2))
        self.assertIn("the run now has", printed)
        self.trained("--steps", self.run_json()["step"], "--no-sample", model=model, out=self.folder / "whole")
        self.refused(spool("train", "--resume", "--out", self.out, "--epochs", 1), 1, "--epochs", "not shorter")
        with self.data.open("a") as file:
            file.write(json.dumps(chat("More?", "Yes.")) + "\n")
        result = spool("train", "--resume", "--out", self.out, "--epochs", 4)
        self.refused(result, 1, "other data than")

    def test_evaluations_decide(self):
        log = self.folder / "log.jsonl"
        words = ["--eval-every", 2, "--patience", 2, "--keep-best", "--lr", 0.5, "--epochs", 20, "--no-sample"]
        printed = self.trained(*words, "--log", log)
        self.assertIn("the run ends after step", printed)
        targets = {e["val_targets"] for e in self.log(log) if "val_loss" in e}
        rows = re.search(r"with (\d+) tokens to learn; (\d+) rows? to validate", printed)
        self.assertLess(max(targets), int(rows[1]))
        self.assertTrue((self.out / "best").exists())

    def test_eval_measures_what_is_learnt(self):
        model = self.chat_model()
        printed = self.trained("--epochs", 2, "--val-data", self.data, "--no-sample", model=model)
        wanted, targets = re.search(r"validation loss ([\d.]+) nats a token, over all (\d+) targets", printed).groups()
        result = json.loads(self.done("eval", "--model", self.out, "--data", self.data, "--seq", 64, "--json"))
        self.assertAlmostEqual(result["loss"], float(wanted), places=3)
        self.assertEqual(result["tokens"], int(targets))
        for words in [["--ranks", 2], ["--batch", 1], ["--memory", "64MiB"], ["--mesh", "tensor=2"]]:
            other = json.loads(self.done("eval", "--model", self.out, "--data", self.data, "--seq", 64, "--json", *words))
            self.assertAlmostEqual(other["loss"], result["loss"], places=5)
            self.assertEqual(other["tokens"], result["tokens"])
        told = json.loads(self.done("eval", "--model", self.out, "--data", self.data, "--seq", 64, "--system", "Be kind.", "--json"))
        self.assertNotEqual(told["loss"], result["loss"])
        self.assertEqual(told["tokens"], result["tokens"])
        (self.out / "latest" / "tokenizer_config.json").unlink()
        command = ["eval", "--model", self.out, "--data", self.data]
        self.refused(spool(*command), 1, "line 1", "--chat-format")
        self.done(*command, "--chat-format", "chatml")
        self.refused(spool("eval", "--model", self.out, "--data", self.text, "--system", "x"), 1, "--system")

    def test_settings_that_contradict_each_other(self):
        self.refused_training("--epochs", "--steps", words=["--epochs", 2, "--steps", 3])
        for value in ["0", "-1", "nan", "inf"]:
            self.refused_training("--epochs", words=["--epochs", value], code=2)
        self.refused_training("--chat-format", "chatml", words=["--chat-format", "jinja"], code=2)
        self.refused_training("--learn", "assistant", words=["--learn", "nothing"], code=2)
        self.refused_training("--epochs", "fewer", words=["--epochs", 1e12])
        for words in [["--epochs", 1], ["--no-pack"], ["--learn", "all"], ["--system", "x"]]:
            result = spool("train", *SHAPE, "--data", self.text, "--out", self.out, *words)
            self.refused(result, 1, words[0], "examples")
            if words[0] in ["--no-pack"]:
                self.refused(spool("plan", *SHAPE, "--data", self.text, *words), 1, words[0])
        self.refused(spool("train", *SHAPE, "--chat-format", "chatml", "--out", self.out), 1, "--chat-format")
        self.refused(spool("plan", *SHAPE, "--data", self.folder / "none.jsonl"), 1, "none.jsonl")

    def test_text_beside_examples(self):
        self.refused_training("text.txt", "only one kind", words=["--data", self.data, self.text])
        self.refused_training("text.txt", "--val-data", words=["--val-data", self.text])
        result = spool("train", *SHAPE, "--data", self.text, "--val-data", self.data, "--out", self.out)
        self.refused(result, 1, "chats.jsonl", "JSON lines")
        result = spool("eval", "--model", self.chat_model(), "--data", self.text, self.data)
        self.refused(result, 1, "only one kind")
        # As text, they are.
        self.done("train", *SHAPE, "--data", self.data, "--data-format", "text", "--steps", 1, "--out", self.out)

    def test_wrong_examples(self):
        good = json.dumps(chat("Hi", "Hello"))
        image = chat("Hi", [{"type": "image_url", "image_url": "x"}])
        calls = chat("Hi", "Hello")
        calls["messages"][1]["tool_calls"] = [{"name": "x"}]
        for text, parts in [
            ("", ["no example"]),
            ("\n\n", ["no example"]),
            (good, ["one example"]),
            ("no json\n", ["chats.jsonl, line 1"]),
            (good + "\n" + good[:-3] + "\n", ["line 2"]),
            (good + "\n[1, 2]\n", ["line 2", "no JSON object"]),
            ('{"answer": 42}\n', ["line 1", "no known form"]),
            (json.dumps({"messages": []}), ["messages", "empty"]),
            (json.dumps({"messages": [{"role": "user", "content": "Hi"}]}), ["line 1", "assistant"]),
            (json.dumps(chat("Hi", None)), ["messages[1].content"]),
            (json.dumps(image), ["image_url", "text alone"]),
            (json.dumps(calls), ["tool_calls"]),
            (json.dumps({"messages": [{"role": "tool", "content": "x"}, *chat("a", "b")["messages"]]}), ["'tool'"]),
            (json.dumps({"prompt": "x"}), ["response"]),
            ('{"text": "' + "a" * (17 << 20) + '"}', ["line 1", "16.0 MiB"]),
            (json.dumps(chat("long " * 90, "Hello")) * 1 + "\n" + json.dumps(chat("long " * 90, "Yes")), ["--seq"]),
        ]:
            self.data.write_text(text)
            self.refused_training(*parts)
        self.data.write_bytes(b'{"text": "\xff\xfe"}\n')
        self.refused_training("line 1")
        self.data.unlink()
        self.refused_training("chats.jsonl", "no such file")

    def test_a_template_that_is_not_known(self):
        model = self.chat_model()
        (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
        self.refused_training("line 1", "--chat-format", model=model)
        self.trained("--chat-format", "chatml", "--steps", 1, "--no-sample", model=model)
        printed = self.done("train", "--resume", "--out", self.out, "--steps", 2)
        self.assertRegex(printed, r"--- sample after step 2\n> Say 54.\n")

    def test_a_tokenizer_with_a_template(self):
        """A model without weights has the chats of its tokenizer's folder, also where its run goes on."""
        (self.folder / "chat_template.jinja").write_text(CHATML)
        (self.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 5}))
        self.write([*CHATS, {"prompt": "a", "completion": "b"}])
        shape = ["--model", "gpt2-tiny", *SHAPE, "--tokenizer", self.tokenizer, "--data", self.data]
        self.done("train", *shape, "--out", self.out, "--steps", 2, "--no-sample")
        for name in ["chat_template.jinja", "generation_config.json"]:
            (self.folder / name).unlink()
        printed = self.done("train", "--resume", "--out", self.out, "--steps", 3)
        self.assertIn("resuming at step 2", printed)
        self.done("generate", "--model", self.out, "--chat", "--prompt", "Hi", "--tokens", 3)

    def test_long_examples_are_cut(self):
        self.write([chat("Hi", "Yes. " * 40), chat("Why? " * 40, "Yes."), *CHATS])
        printed = self.trained("--steps", 1, "--no-sample")
        self.assertIn("62 examples, 2 cut at 65 tokens, 1 dropped with nothing to learn", printed)

    def test_marks_and_line_ends(self):
        text = "".join(json.dumps(line) + "\n" for line in CHATS)
        self.trained("--steps", 1, "--no-sample")
        for i, other in enumerate(["\ufeff" + text, text.replace("\n", "\r\n"), text.replace("\n", "\n \n"), text[:-1]]):
            self.data.write_text(other, newline="")
            out = self.folder / f"other{i}"
            self.trained("--steps", 1, "--no-sample", out=out)
            self.assertEqual(self.files(out), self.files(self.out))

    def test_several_files(self):
        self.trained("--steps", 1, "--no-sample")
        for i in range(3):
            self.write(CHATS[20 * i : 20 * i + 20], self.folder / f"part{i}.jsonl")
        printed = self.trained("--steps", 1, "--no-sample", data=self.folder / "part*.jsonl", out=self.folder / "parts")
        self.assertIn("part0.jsonl and 2 more", printed)
        self.assertEqual(self.files(self.folder / "parts"), self.files(self.out))


if __name__ == "__main__":
    main()
