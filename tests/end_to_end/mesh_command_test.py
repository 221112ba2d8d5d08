"""Ranks that share each micro-batch train as one rank does, and their runs go on on any mesh.

mesh_command_test.py PROGRAM [CASE...]
"""

import json
import os
import shutil
import subprocess
import unittest

from commands import PROGRAM, SHAPE, Folder, main, nightly, spool

STEP = ["--heads", 4, "--accumulate", 2, "--dropout", 0.1, "--eval-every", 2, "--eval-batches", 3]
MEGATRON = ["--shard", "megatron"]
LLAMA = ["--model", "llama-tiny"]


class Mesh(Folder):
    def run_on(self, mesh, *words, name, steps=4):
        """Trains on this mesh; returns the losses and norms of its steps.  Peaks are as foretold."""
        log, out = self.folder / f"{name}.log", self.folder / name
        on = ["--mesh", mesh, *words] if mesh else [*words]
        status, printed, errors = self.train(*STEP, *on, "--log", log, "--threads", 1, out=out, steps=steps)
        self.assertEqual(status, 0, errors)
        peak = printed.split("\npeak ")[1].split("\n")[0]
        self.assertEqual(*[words.split()[-2] for words in peak.split(", ")], peak)
        if mesh:
            numbers = [entry for entry in self.log(log) if "ranks" in entry][-1]["ranks"]
            for rank in numbers:
                self.assertEqual(rank["sent_bytes"], rank["foretold_sent_bytes"], rank)
                self.assertEqual(rank["peak_bytes"], rank["foretold_peak_bytes"], rank)
        return self.losses(log)

    def mpirun(self, ranks, *words, **more):
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command = [str(w) for w in ["mpirun", "--oversubscribe", "-n", ranks, PROGRAM, *words]]
        return subprocess.run(command, env=os.environ | allowed, capture_output=True, text=True, timeout=300, **more)

    def close(self, found, wanted):
        self.assertEqual(found.keys(), wanted.keys())
        for step, numbers in wanted.items():
            for one, other in zip(found[step], numbers):
                self.assertAlmostEqual(one, other, delta=2e-5 * max(1, abs(other)), msg=step)

    def same(self, one, other):
        for name in ["model.safetensors", "optimizer.safetensors", "run.json"]:
            mine, theirs = [(self.folder / run / "latest" / name).read_bytes() for run in [one, other]]
            self.assertEqual(mine, theirs, f"{one} {other} {name}")

    def test_have_the_losses_of_one_rank(self):
        for model, words in {"gpt2": [], "llama": LLAMA}.items():
            alone = self.run_on(None, *words, name=f"{model}-alone")
            for mesh, shard in [("tensor=2", "megatron"), ("2x2", "megatron"), ("rows=2", "rows"), ("r=2", "none")]:
                self.close(self.run_on(mesh, "--shard", shard, *words, name=f"{model}-{mesh}"), alone)

    def test_choose_how_ops_are_cut(self):
        for model, words in {"gpt2": [], "llama": LLAMA}.items():
            alone = self.run_on(None, *words, name=f"{model}-alone")
            self.close(self.run_on("2x2", *words, name=f"{model}-auto"), alone)
        chosen = self.run_on("tensor=2", "--save-shard", self.folder / "chosen.json", name="chosen")
        found = self.run_on("tensor=2", "--shard", self.folder / "chosen.json", name="found")
        self.assertEqual(chosen, found)
        self.close(self.run_on("tensor=2", "--ranks-as", "processes", "--shard", "auto", name="processes"), chosen)

    @nightly
    def test_have_the_losses_of_one_rank_in_twenty_steps(self):
        for model in "gpt2-tiny", "llama-tiny":
            words = ["--model", model, "--channels", 192, "--layers", 4, "--context", 128, "--seq", 64,
                     "--dropout", 0, "--lr", 5e-4]
            alone = self.run_on(None, *words, name=f"{model}-alone", steps=20)
            for mesh in "tensor=2", "tensor=4", "2x2", "data=2,tensor=2":
                found = self.run_on(mesh, *MEGATRON, *words, name=f"{model}-{mesh}", steps=20)
                for step, (loss, _) in alone.items():
                    self.assertAlmostEqual(found[step][0], loss, delta=1e-5 * max(1, loss), msg=(mesh, step))

    def test_of_two_groups_end_in_the_bytes_of_one(self):
        self.run_on("tensor=2", *MEGATRON, name="one")
        self.run_on("data=2,tensor=2", *MEGATRON, name="two")
        self.same("one", "two")

    def test_as_processes_and_by_a_file_end_in_the_same_bytes(self):
        shards = self.folder / "shards.json"
        self.run_on("tensor=2", *MEGATRON, "--save-shard", shards, name="threads")
        self.assertEqual(json.loads(shards.read_text())["mesh"], "tensor=2")
        self.run_on("tensor=2", "--shard", shards, "--ranks-as", "processes", name="processes")
        self.same("threads", "processes")

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun here")
    def test_under_mpirun_end_in_the_bytes_of_threads(self):
        self.run_on("2x2", *MEGATRON, name="threads")
        words = [*SHAPE, "--data", self.text, "--steps", 4, *STEP, "--mesh", "2x2", *MEGATRON, "--threads", 1]
        ended = self.mpirun(4, "train", *words, "--out", self.folder / "mpi")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.same("threads", "mpi")

    def test_go_on_on_any_mesh(self):
        alone = self.run_on(None, name="alone", steps=6)
        parts = self.run_on("tensor=4", *MEGATRON, name="parts", steps=2)
        for mesh, steps in [(None, 4), ("2x2", 6)]:
            on = ["--mesh", mesh, *MEGATRON] if mesh else []
            log = self.folder / f"{steps}.log"
            words = ["--out", self.folder / "parts", "--resume", "--steps", steps, "--threads", 1, "--log", log]
            status, _, errors = spool("train", *words, *on)
            self.assertEqual(status, 0, errors)
            parts |= self.losses(log)
        self.assertEqual(parts.keys(), alone.keys())

    def test_in_a_budget_keep_to_it(self):
        self.run_on("tensor=2", *MEGATRON, "--memory", "900KiB", name="budget")

    def test_write_the_text_of_one_rank_in_between(self):
        texts = []
        for mesh in [[], ["--mesh", "tensor=2", *MEGATRON], ["--mesh", "data=2,tensor=2", *MEGATRON]]:
            words = [*STEP, "--sample-every", 2, "--threads", 1, *mesh]
            status, printed, errors = self.train(*words, out=self.folder / "run", steps=2)
            self.assertEqual(status, 0, errors)
            texts.append(printed.split("--- sample after step 2\n")[1].split("\n---\n")[0])
            shutil.rmtree(self.folder / "run")
        self.assertEqual(texts, texts[:1] * 3)

    def test_evaluate_in_a_budget_as_one_rank_does(self):
        self.run_on(None, name="run")
        words = ["eval", "--model", self.folder / "run", "--data", self.text, "--threads", 1]
        for memory in [[], ["--memory", "240KiB"]]:
            printed = []
            for mesh in [[], ["--mesh", "tensor=2"], ["--mesh", "2x2"], ["--mesh", "data=2,tensor=2"]]:
                status, out, errors = spool(*words, *memory, *mesh)
                self.assertEqual(status, 0, errors)
                printed.append(float(out.split()[1]))
                if memory and "2x2" not in mesh:  # of four ranks each has room for all rows
                    self.assertIn("rows at a time", errors)
            for loss in printed[1:]:
                self.assertAlmostEqual(loss, printed[0], delta=1e-6)

    def test_generate_the_texts_of_one_rank(self):
        for number, model in enumerate([[], LLAMA]):
            run = f"run{number}"
            self.run_on(None, *model, name=run, steps=2)
            (self.folder / "prompts").write_text("One\nAnother prompt\nA third one\n")
            for words in [["--tokens", 200, "--temperature", 0], ["--samples", 3, "--batch", 2, "--tokens", 9, "--json"],
                          ["--prompts", self.folder / "prompts", "--tokens", 9], ["--tokens", 90, "--context", 20]]:  # fmt: skip
                printed = []
                for mesh in [[], ["--mesh", "tensor=2"], ["--mesh", "tensor=4"], ["--mesh", "2x2"]]:
                    command = ["generate", "--model", self.folder / run, "--threads", 1, *words, *mesh]
                    status, out, errors = spool(*command)
                    self.assertEqual(status, 0, errors)
                    printed.append(out)
                self.assertEqual(printed, printed[:1] * 4, words)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun here")
    def test_under_mpirun_generate_what_threads_do(self):
        self.run_on(None, name="run", steps=1)
        words = ["generate", "--model", self.folder / "run", "--json", "--threads", 1, "--mesh", "tensor=2"]
        lines = "One\n\nAnother\n"
        _, threads, errors = spool(*words, "--interactive", "--tokens", 9, input=lines.encode())
        ended = self.mpirun(2, *words, "--interactive", "--tokens", 9, input=lines)
        self.assertEqual((ended.returncode, ended.stdout), (0, threads), ended.stderr + errors)
        for wrong, part in [([], "--mesh tensor=2"), (["--mesh", "tensor=4"], "has 4")]:
            ended = self.mpirun(2, *words[:-2], *wrong)
            self.assertEqual(ended.returncode, 1)
            self.assertIn(part, ended.stderr)

    def test_generate_refuses_meshes_that_share_nothing(self):
        self.run_on(None, name="run", steps=1)
        for mesh, parts in {"data=2": ["other than data"], "data=2,tensor=2": ["give it tensor=2 alone"],
                            "tensor=65": ["mesh 'tensor=65'", "64"], "tensor": ["tensor"]}.items():  # fmt: skip
            self.refused(spool("generate", "--model", self.folder / "run", "--mesh", mesh), 1, *parts)
        self.refused(spool("generate", "--model", "gpt2-tiny", "--mesh", "tensor=2"), 1, "has no trained weights")
        self.refused(spool("eval", "--model", self.folder / "run", "--data", self.text, "--mesh", "2", "--ranks", 3), 1, "3")

    def test_refuse_what_cannot_be_cut(self):
        shards = self.folder / "shards.json"
        plan = self.folder / "plan.json"
        self.run_on("tensor=2", *MEGATRON, "--save-shard", shards, "--save-plan", plan, name="run", steps=1)
        for words, parts in [
            (MEGATRON, ["--shard", "--mesh", "tensor=2"]),
            (["--mesh", "tensor=2", "--plan", plan], ["--plan", "--shard", "save-shard"]),
            (["--mesh", "tensor=2,data=2", *MEGATRON], ["data", "comes first"]),
            (["--mesh", "tensor=2", "--shard", "nosuch"], ["nosuch", "none, rows, megatron"]),
            (["--mesh", "tensor=4", "--shard", shards], [shards.name, "tensor=2", "tensor=4"]),
            (["--mesh", "tensor=2", "--shard", shards, "--layers", 1], [shards.name, "another model"]),
            (["--mesh", "rows=2", "--shard", "rows", "--batch", 3], ["rows do not divide", "3"]),
            (["--mesh", "tensor=2", *MEGATRON, "--ranks", 3], ["tensor=2", "3"]),
            (["--mesh", "tensor=65", *MEGATRON], ["65", "64"]),
            (["--save-shard", self.folder / "none.json"], ["mesh"]),
        ]:
            self.refused(self.train(*STEP, *words, out=self.folder / "refused"), 1, *parts)
        self.assertFalse((self.folder / "refused").exists())

if __name__ == "__main__":
    main()
