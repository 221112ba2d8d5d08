"""Adapters (LoRA): `spool train --lora`, and what generate, eval and convert make of them.

adapter_command_test.py PROGRAM [CASE...]
"""

import json
import random
import re
import shutil
import signal
import subprocess
import time

from commands import BY_HAND, PROGRAM, Files, last_step, main, spool

STORED = ["adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors", "run.json"]


class Adapters(Files):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "lines.jsonl"
        lines = [{"prompt": f"{i}+{i}=", "completion": f"{2 * i}"} for i in range(40)]
        self.data.write_text("".join(json.dumps(line) + "\n" for line in lines))
        shape = "--layers 2 --heads 4 --channels 32 --context 64 --seq 32 --batch 4 --lr 3e-3 --steps 12".split()
        self.first = self.folder / "first"
        self.done("train", "--model", "llama-tiny", *shape, "--data", self.text, "--out", self.first, "--no-sample")
        self.base = self.folder / "base"
        shutil.copytree((self.first / "latest").resolve(), self.base)
        for name in ["run.json", "optimizer.safetensors"]:
            (self.base / name).unlink()

    def words(self, *words, model=None, out=None, lora=("--lora", 4, "--lr", 0.01), steps=6):
        usual = ["--seq", 32, "--batch", 2, "--no-sample", "--data", self.data, "--steps", steps]
        usual += [] if model else ["--tokenizer", "bytes"]
        return ["train", "--model", model or self.base, *usual, *lora, "--out", out or self.out, *words]

    def trained(self, *words, **more):
        return self.done(*self.words(*words, **more))

    def stored(self, run):
        return [(run / "latest" / name).read_bytes() for name in STORED]

    def loss(self, *model):
        result = self.done("eval", "--model", *model, "--data", self.data, "--seq", 32, "--json", "--tokenizer", "bytes")
        return json.loads(result)["loss"]

    def test_an_adapter_is_all_that_a_run_stores(self):
        before = self.loss(self.base)
        printed = self.trained(steps=60)
        self.assertRegex(printed, r"frozen")
        folder = (self.out / "latest").resolve()
        self.assertFalse((folder / "model.safetensors").exists())
        config = json.loads((folder / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["peft_type"]), (4, 8, "LORA"))
        self.assertEqual(config["base_model_name_or_path"], str(self.base))
        self.assertEqual(config["target_modules"],
                         ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"])
        size = (self.base / "model.safetensors").stat().st_size
        self.assertLess((folder / "adapter_model.safetensors").stat().st_size, size)
        after = self.loss(self.out)
        self.assertLess(after, before - 0.2)
        self.assertEqual(self.loss(self.base, "--adapter", folder), after)
        merged = self.folder / "merged"
        self.done("convert", self.out, merged)
        self.assertEqual(self.loss(merged), after)
        ask = ["--tokenizer", "bytes", "--prompt", "7+7=", "--tokens", 8, "--temperature", 0]
        self.assertEqual(self.done("generate", "--model", self.out, *ask), self.done("generate", "--model", merged, *ask))
        self.assertIn("safetensors", self.done("info", folder / "adapter_model.safetensors"))

    def test_bf16_keeps_masters(self):
        self.trained("--dtype", "bf16")
        first = (self.out / "latest" / "adapter_model.safetensors").read_bytes()
        self.assertIn(b'"F32"', first)
        self.assertNotIn(b'"BF16"', first)
        self.assertLess(self.loss(self.out, "--dtype", "bf16"), self.loss(self.base, "--dtype", "bf16"))

    def test_killed_and_resumed_under_another_plan(self):
        words = ["--lora-dropout", 0.1, "--checkpoint-every", 1]
        self.trained(*words, *BY_HAND, steps=16)
        killed = self.folder / "killed"
        log = self.folder / "log.jsonl"
        process = subprocess.Popen([PROGRAM, *map(str, self.words(*words, *BY_HAND, "--log", log, out=killed, steps=16))],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        at = random.randint(2, 12)
        while process.poll() is None and last_step(log) < at:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.done("train", "--resume", killed, "--no-sample", "--recompute", "block", "--chunk-loss", 0)
        self.assertEqual(self.stored(killed), self.stored(self.out))

    def test_any_plan_has_the_same_bits(self):
        words = ["--lora-dropout", 0.2]
        self.trained(*words, *BY_HAND)
        for more in [["--recompute", "block"], ["--recompute", "norms,activations"], ["--offload", "all"],
                     ["--recompute", "none", "--threads", 1]]:
            out = self.folder / "-".join(map(str, more)).replace(",", "-")
            self.trained(*words, *more, "--chunk-loss", 0, out=out)
            self.assertEqual(self.stored(out), self.stored(self.out), more)

    def test_chunks_change_last_digits_alone(self):
        losses = []
        for rows in [0, 32, 16]:
            log = self.folder / f"{rows}.jsonl"
            self.trained("--lora-dropout", 0.2, "--chunk-mlp", rows, "--log", log, out=self.folder / f"chunks{rows}")
            losses.append([e["loss"] for e in self.log(log) if "loss" in e])
        for chunked in losses[1:]:
            for a, b in zip(losses[0], chunked):
                self.assertAlmostEqual(a, b, delta=2e-6)

    def test_ranks_of_a_mesh_share_rows(self):
        losses = []
        for mesh in [[], ["--mesh", "tensor=2", "--shard", "megatron"], ["--mesh", "tensor=2", "--shard", "auto"]]:
            log = self.folder / f"{len(losses)}.jsonl"
            self.trained(*mesh, "--accumulate", 1, "--log", log, out=self.folder / f"mesh{len(losses)}")
            losses.append([e["loss"] for e in self.log(log) if "loss" in e])
        for shared in losses[1:]:
            for a, b in zip(losses[0], shared):
                self.assertAlmostEqual(a, b, delta=1e-4)

    def test_ranks_end_in_the_same_files(self):
        words = ["--accumulate", 4]
        self.trained(*words, "--ranks", 1)
        for more in [["--ranks", 2], ["--ranks", 4], ["--ranks", 2, "--ranks-as", "processes"], ["--ranks", 2, "--zero", 3]]:
            out = self.folder / "-".join(map(str, more))
            self.trained(*words, *more, out=out)
            self.assertEqual(self.stored(out), self.stored(self.out), more)

    def test_a_base_that_moved_or_changed(self):
        self.trained(steps=3)
        moved = self.folder / "moved"
        self.base.rename(moved)
        resume = ["train", "--resume", self.out, "--steps", 5, "--no-sample"]
        self.refused(spool(*resume), 1, str(self.base), "is not here", "--base")
        self.refused(spool("eval", "--model", self.out, "--data", self.data), 1, "--base")
        self.done("eval", "--model", self.out, "--base", moved, "--data", self.data)
        self.done(*resume, "--base", moved)
        config = json.loads((self.out / "latest" / "adapter_config.json").read_text())
        self.assertEqual(config["base_model_name_or_path"], str(moved))
        other = self.folder / "other"
        whole = bytearray((moved / "model.safetensors").read_bytes())
        whole[-5] ^= 1
        shutil.copytree(moved, other)
        (other / "model.safetensors").write_bytes(whole)
        result = spool("train", "--resume", self.out, "--steps", 7, "--no-sample", "--base", other)
        self.refused(result, 1, str(other), "differ", "--base")

    def test_an_adapter_is_trained_further(self):
        self.trained("--lora-targets", "q_proj,v_proj")
        first = self.loss(self.out)
        for more in [dict(model=self.out), dict()]:
            words = [] if more else ["--adapter", self.out]
            out = self.folder / f"further{len(more)}"
            self.trained(*words, lora=("--lr", 0.01), out=out, **more)
            self.assertLess(self.loss(out), first)
            config = json.loads((out / "latest" / "adapter_config.json").read_text())
            self.assertEqual((config["target_modules"], config["r"]), (["q_proj", "v_proj"], 4))
        self.assertEqual(*[(self.folder / f"further{i}" / "latest" / STORED[0]).read_bytes() for i in [0, 1]])
        self.refused(spool(*self.words("--adapter", self.out)), 1, "--lora", "trained further")
        self.refused(spool(*self.words(model=self.out)), 1, "--lora", "trained further")

    def test_the_base_of_a_run_is_its_checkpoint(self):
        """A run's directory is another model when that run goes on."""
        config = json.loads((self.base / "config.json").read_text())
        (self.base / "config.json").write_text(json.dumps({**config, "eos_token_id": 10}))
        self.trained(steps=2)
        named = json.loads((self.out / "latest" / "generation_config.json").read_text())
        self.assertEqual(named["eos_token_id"], [10])
        self.done("train", "--resume", self.out, "--steps", 3, "--no-sample")
        out = self.folder / "on-a-run"
        self.trained(steps=2, model=self.first, out=out)
        base = json.loads((out / "latest" / "adapter_config.json").read_text())["base_model_name_or_path"]
        self.assertEqual(base, str((self.first / "latest").resolve()))

    def test_what_is_refused(self):
        def refuse(*words, code=1, parts=(), **more):
            self.refused(spool(*self.words(*words, **more)), code, *parts)
            self.assertFalse(self.out.exists())

        refuse(lora=("--lora", 0), code=2, parts=["--lora"])
        refuse(lora=("--lora", "many"), code=2, parts=["--lora"])
        refuse(lora=("--lora", 33), parts=["33", "32", "--lora"])
        refuse("--lora-targets", "c_attn", parts=["c_attn", "q_proj", "--lora-targets"])
        refuse("--lora-alpha", "nan", parts=["within", "nan"])
        refuse("--lora-dropout", 1, parts=["[0, 1)"])
        refuse("--dtype", "bf16", "--rounding", "stochastic", parts=["--rounding", "masters"])
        refuse("--lora-alpha", 3, lora=(), parts=["--lora-alpha", "--lora"])
        refuse(model="llama-tiny", parts=["random weights"])
        refuse("--base", self.base, parts=["--base", "no adapter"])
        refuse("--adapter", self.base, lora=(), parts=["adapter_config.json"])
        refuse("--adapter", self.base, lora=(), model="llama-tiny", parts=["--adapter"])
        self.refused(spool("convert", self.base, self.folder / "x", "--base", self.base), 1, "no adapter")

    def test_a_plan_foretells_what_is_frozen(self):
        shape = ["--model", "smollm2-135m", "--seq", 512, "--batch", 1, "--device", "cpu", "--no-sample"]
        whole = self.done("plan", *shape, "--json", "-")
        report = json.loads(self.done("plan", *shape, "--lora", 16, "--json", "-"))
        by = report["peak_bytes_by_purpose"]
        self.assertGreater(by["frozen"], 500e6)
        self.assertLess(by["parameters"] + by["optimizer"], 70e6)
        self.assertNotIn('"frozen"', whole)


if __name__ == "__main__":
    main()
