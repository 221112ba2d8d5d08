"""`spool info` on every kind of file that Spool reads or writes.

info_command_test.py PROGRAM [CASE...]
"""

import json
import shutil
import struct

from commands import MERGES, SHAPE, VOCABULARY, Files, main, spool
from hostile import given
from hostile.given import TOKENIZER


class Info(Files):
    def info(self, path):
        """What the file is, and its details by name."""
        printed = self.done("info", path)
        first, *rest = printed.splitlines()
        self.assertTrue(first.startswith(f"{path}: "), first)
        details, last = {}, None
        for line in rest:
            self.assertTrue(line.startswith("  "), line)
            name, value = line[2:18].strip(), line[19:]
            last = name or last
            details[last] = f"{details[last]} {value}" if not name else value
        return first.removeprefix(f"{path}: "), details

    def test_says_what_a_run_is_and_its_checkpoints(self):
        log, plan = self.folder / "log.jsonl", self.folder / "plan.json"
        more = ["--checkpoint-every", 2, "--log", log, "--save-plan", plan, "--memory", "10MB"]
        checkpoint = self.trained(*more, "--lr", 0.002, steps=5)
        what, details = self.info(self.out)
        self.assertEqual(what, "a run, at step 5 of 5")
        self.assertEqual(details["checkpoints"], "step-000004, step-000005")
        self.assertEqual(details["model"], "GPT-2, 2 layers, 2 heads, 16 channels")
        self.assertEqual(details["vocabulary"], str(VOCABULARY))
        self.assertIn("gpt2, ", details["tokenizer"])
        self.assertEqual(details["data"], str(self.text))
        for words in ["lr 0.002", "batch 2", "seq 16", "steps 5", "seed 1"]:
            self.assertRegex(details["settings"], rf"(^|[ ,]){words}(,|$)")
        version = self.done("--version").splitlines()
        self.assertIn(details["written by"].split()[-1], version[1])
        self.assertEqual(self.info(checkpoint)[0], "a checkpoint of a run, of step 5 of 5")
        self.assertIn("a checkpoint of a run, of step 5", self.info(checkpoint / "run.json")[0])
        size = (checkpoint / "model.safetensors").stat().st_size
        self.assertIn(f"({size} bytes)", self.info(checkpoint / "model.safetensors")[1]["size"])
        optimizer = self.info(checkpoint / "optimizer.safetensors")
        self.assertEqual(optimizer[0], "a safetensors file")
        self.assertEqual(optimizer[1]["tensors"], str(2 * 28))
        merges = self.info(checkpoint / "merges.txt")
        self.assertEqual(merges[1]["tokens"], str(VOCABULARY))
        loss = self.log(log)
        steps = [line["loss"] for line in loss if "loss" in line]
        what, details = self.info(log)
        self.assertEqual((what, details["last step"]), ("the log of a run", "5"))
        self.assertAlmostEqual(float(details["its loss"]), steps[-1])
        what, details = self.info(plan)
        self.assertEqual((what, details["budget"]), ("a plan", "10000000 bytes"))
        self.assertRegex(details["tape"], r"^\d+ nodes, fingerprint [0-9a-f]{16}$")

    def test_says_what_a_model_is(self):
        self.trained()
        for name, what in [("m.bin", "a model of llm.c"), ("folder", "a model")]:
            path = self.folder / name
            self.done("convert", self.out, path)
            found, details = self.info(path)
            self.assertEqual(found, what)
            self.assertEqual(details["context"], "32")
            self.assertRegex(details["parameters"], r"^\d+ of f32$")

    def test_counts_the_bytes_of_all_shards_of_a_model(self):
        self.trained()
        folder = self.folder / "shards"
        self.done("convert", self.out, folder, "--shard-bytes", "10kB")
        shards = list(folder.glob("model-*.safetensors"))
        self.assertGreater(len(shards), 1)
        what, details = self.info(folder)
        self.assertEqual(what, "a model")
        self.assertIn(f"({sum(s.stat().st_size for s in shards)} bytes)", details["size"])

    def test_counts_the_tokens_of_a_shard(self):
        shard = self.folder / "s.bin"
        self.tokenize(self.text, "--out", shard)
        count = (shard.stat().st_size - 1024) // 2
        what, details = self.info(shard)
        self.assertEqual((what, details["tokens"]), ("a shard of tokens", f"{count} of uint16"))
        whole = shard.read_bytes()
        shard.write_bytes(whole[:-1])
        self.refused(spool("info", shard), 1, "s.bin", "tokens require")
        shard.write_bytes(struct.pack("<3i", 20240801, 7, 3) + bytes(1012) + struct.pack("<3I", 1, 2, 70000))
        self.assertEqual(self.info(shard)[1]["tokens"], "3 of uint32")

    def test_says_what_tokenizers_are(self):
        words, config = self.folder / "words", {"tokens": "706"}
        words.mkdir()
        for name in ["tokenizer.json", "renamed.json"]:
            shutil.copy(TOKENIZER, words / name)
            what, details = self.info(words / name)
            self.assertIn("tokenizer", what)
            self.assertEqual(details["tokens"], config["tokens"])
        what, details = self.info(words)  # of which no weights are there
        self.assertEqual((what, details["tokens"]), ("a tokenizer, tokenizer.json", "706"))
        (words / "tokenizer.json").unlink()
        (words / "merges.txt").write_text(MERGES)
        self.assertEqual(self.info(words / "merges.txt")[1]["tokens"], str(VOCABULARY))
        what, details = self.info(words)
        self.assertEqual((what, details["tokens"]), ("a tokenizer, merges.txt", str(VOCABULARY)))
        llmc = self.folder / "llmc" / "gpt2_tokenizer.bin"
        llmc.parent.mkdir()
        given.llmc_tokenizer(llmc)
        what, details = self.info(llmc)
        self.assertEqual((what, details["tokens"]), ("a tokenizer of llm.c", "258"))

    def test_says_what_an_index_of_weights_is(self):
        self.trained()
        folder = self.folder / "shards"
        self.done("convert", self.out, folder, "--shard-bytes", "10kB")
        index, count = folder / "model.safetensors.index.json", len(list(folder.glob("model-*")))
        self.assertGreater(count, 1)
        what, details = self.info(index)
        self.assertEqual(what, f"the index of a model's weights in {count} files")
        self.assertRegex(details["parameters"], r"^\d+ of f32$")
        (folder / "config.json").rename(self.folder / "config.json")
        for path in [index, folder]:
            what, details = self.info(path)
            self.assertEqual(what, f"the index of a model's weights in {count} files")
            self.assertGreater(int(details["tensors"]), 20)
        index.write_text('{"weight_map": [1]}')
        self.refused(spool("info", index), 1, "model.safetensors.index.json: ")
        for path in [self.folder / "config.json", self.folder]:
            what, details = self.info(path)
            self.assertTrue(what.endswith("the configuration of a model, without its weights"), what)
            self.assertEqual(details["context"], "32")

    def test_a_configuration_without_a_type_is_a_sentence(self):
        model = self.trained()
        for config, parts in [
            ({"hidden_size": 64, "num_hidden_layers": 2}, ["has no model_type", "gpt2, llama, qwen2, qwen3"]),
            ({"model_type": None}, ["has no model_type", "gpt2, llama"]),
            ({"n_layer": 2}, ["is missing"]),
        ]:
            (model / "config.json").write_text(json.dumps(config))
            for words in [["info", model], ["eval", "--model", model, "--data", self.text]]:
                self.refused(spool(*words), 1, "config.json: ", *parts)

    def test_says_what_reports_tables_and_texts_are(self):
        self.assertIn("text", self.info(self.text)[0])
        report = self.folder / "report.json"
        self.done("plan", *SHAPE, "--json", report, "--machine", "h200")
        self.assertEqual(self.info(report)[0], "the report of a plan")

    def test_says_what_of_a_plan_lives_on_the_host(self):
        plan = self.folder / "plan.json"
        homes = ["--parameters", "host", "--update", "backward", "--clip", 0]
        self.done("plan", *SHAPE, *homes, "--machine", "rtx4090", "--save-plan", plan)
        what, details = self.info(plan)
        self.assertEqual(what, "a plan")
        self.assertRegex(details["units"], r"^parameters and gradients of 4 of 4 units on the host, updated in backward$")
        self.assertRegex(details["optimizer state"], r"^streamed, in buckets of \d+ elements$")
        self.done("plan", *SHAPE, "--machine", "rtx4090", "--save-plan", plan)
        self.assertNotIn("units", self.info(plan)[1])

    def test_refuses_what_it_does_not_know(self):
        unknown = self.folder / "x.bin"
        unknown.write_bytes(bytes(range(256)) * 9)
        self.refused(spool("info", unknown), 1, "x.bin", "none of what this command knows")
        self.refused(spool("info", self.folder / "none"), 1, "there is no such file")
        empty = self.folder / "empty"
        empty.mkdir()
        self.refused(spool("info", empty), 1, "model.safetensors", str(empty))
        self.refused(spool("info", "/dev/null"), 1, "not a regular file")
        for name in ["plan.json", "model.safetensors", "run.json"]:
            damaged = self.folder / name
            damaged.write_text('{"spool_plan": 3, "format_version": 1')
            self.refused(spool("info", damaged), 1, name)


if __name__ == "__main__":
    main()
