"""Runs on ranks with a GPU each end in the files of one rank, byte for byte.

cuda_ranks_command_test.py PROGRAM [CASE...]
"""

import json
import os
import pty
import subprocess

from commands import NIGHTLY, PROGRAM, nightly, spool
from on_cuda import CUDA, starts
from on_cuda_ranks import CudaRanks, main


class Bits(CudaRanks):
    def test_end_in_the_same_files_on_any_number(self):
        alone = self.run_on(1, "--eval-every", 2, "--eval-batches", 3)
        for ranks in [2, 3, 4] if NIGHTLY else [2]:
            self.same(alone, self.run_on(ranks, "--eval-every", 2, "--eval-batches", 3))
        loss = [spool("eval", *CUDA, "--model", alone / "latest", "--data", self.text, *on)[1]
                for on in ([], ["--ranks", 2])]
        self.assertEqual(*loss)

    def test_store_large_parameters_in_parts(self):
        wide = ["--layers", 1, "--channels", 128, "--recompute", "gathers"]
        parts = self.run_on(2, "--zero", 3, *wide, name="parts", steps=2)
        self.same(self.run_on(1, *wide[:4], name="whole", steps=2), parts)

    def close(self, one, other):
        """The losses and norms of two runs' steps."""
        mine, theirs = (self.losses(run.with_suffix(".log")) for run in (one, other))
        self.assertEqual(mine.keys(), theirs.keys())
        for step, numbers in mine.items():
            for number, found in zip(numbers, theirs[step]):
                self.assertAlmostEqual(found, number, delta=2e-5 * max(1, number), msg=(other.name, step))

    def test_share_each_micro_batch(self):
        """As one rank has them, too: evaluations, and the text that a model writes."""
        for model in ["gpt2-tiny", "llama-tiny"] if NIGHTLY else ["gpt2-tiny"]:
            words = ["--model", model, "--heads", 4, "--eval-every", 2, "--eval-batches", 1]
            steps = 5 if NIGHTLY else 2
            alone = self.run_on(1, *words, name=f"{model}-alone", steps=steps)
            meshes = ["tensor=2", "2x2", "data=2,tensor=2"] if NIGHTLY else ["tensor=2"]
            for mesh in meshes:
                starts.clear()
                on = ["--mesh", mesh, "--shard", "megatron"]
                ranks = 2 if mesh == "tensor=2" else 4
                self.close(alone, self.run_on(ranks, *words, *on, name=f"{model}-{mesh}", steps=steps))
            starts.clear()
            latest = ["--model", alone / "latest", *CUDA]
            losses, texts = ([spool(*command, *latest, *on) for on in ([], ["--mesh", "tensor=2"])] for command in
                             (["eval", "--limit", 4, "--data", self.text], ["generate", "--tokens", 5, "--temperature", 0]))
            self.assertEqual([status for status, _, _ in losses + texts], [0] * 4, losses + texts)
            self.assertAlmostEqual(*[float(printed.split()[1]) for _, printed, _ in losses], delta=1e-6)
            self.assertEqual(texts[0][1], texts[1][1])

    @nightly
    def test_converse_on_a_terminal(self):
        """Ctrl-C ends a text, and the second one the next; nobody who reads a pipe no more ends all silently."""
        model = self.run_on(1, "--heads", 4, name="run", steps=1) / "latest"
        words = ["generate", "--model", model, *CUDA, "--mesh", "tensor=2", "--tokens", 1_000_000]
        process, terminal = pty.fork()
        if process == 0:
            os.execv(PROGRAM, list(map(str, [PROGRAM, *words, "--interactive", "--temperature", 0])))
        seen = b""
        for prompts in 1, 2, 3:
            while seen.count(b"> ") < prompts:
                seen += os.read(terminal, 4096)
            if prompts == 3:
                break
            os.write(terminal, b"One\n")
            before = len(seen)
            while len(seen) < before + 20:
                seen += os.read(terminal, 4096)
            os.write(terminal, b"\x03")
        os.write(terminal, b"\x04")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), 0, seen)
        os.close(terminal)
        run = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        run.stdout.read(20)
        run.stdout.close()
        self.assertEqual((run.stderr.read(), run.wait(timeout=60)), (b"", 141))
        run.stderr.close()

    @nightly
    def test_share_micro_batches_of_parameters_in_parts(self):
        words = ["--heads", 4, "--layers", 1, "--channels", 128]
        on = ["--mesh", "data=2,tensor=2", "--shard", "megatron"]
        whole = self.run_on(4, *words, *on, name="whole", steps=2)
        self.same(whole, self.run_on(4, *words, *on, "--zero", 3, "--recompute", "gathers", name="parts", steps=2))

    @nightly
    def test_trace_one_step_and_replay_the_others(self):
        graphs = self.run_on(2, name="graphs")
        trace = self.folder / "trace.json"
        self.same(graphs, self.run_on(2, "--trace", trace, name="traced"))
        spans = json.loads(trace.read_text())["traceEvents"]
        foretold, measured = ([s["name"] for s in spans if s["ph"] == "X" and s["pid"] == process and
                               s["name"] in ("gradients", "parameters", "losses")] for process in (1, 2))
        self.assertIn("gradients", measured)
        self.assertEqual(sorted(measured), sorted(foretold))

    @nightly
    def test_every_type_stage_and_place_of_state(self):
        kinds = [[], ["--dtype", "bf16"], ["--dtype", "bf16", "--rounding", "stochastic"],
                 ["--offload", "all"], ["--recompute", "block"], ["--chunk-loss", 8, "--chunk-mlp", 8]]
        places = [["--optimizer-state", place] for place in ("device", "streamed", "cpu")]
        for kind in kinds:
            for place in places:
                with self.subTest(kind=kind, place=place):
                    starts.clear()
                    tag = "".join(map(str, kind + place))
                    alone = self.run_on(1, *kind, *place, name=f"1{tag}", steps=3)
                    self.same(alone, self.run_on(2, *kind, *place, name=f"2{tag}", steps=3))
                    for zero in 0, 1, 2:  # with one micro-batch a rank the stages add in one order
                        words = [*kind, *place, "--zero", zero]
                        self.same(alone, self.run_on(4, *words, name=f"4{zero}{tag}", steps=3))


if __name__ == "__main__":
    main()
