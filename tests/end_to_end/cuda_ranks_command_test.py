"""Runs on ranks with a GPU each end in the files of one rank, byte for byte.

cuda_ranks_command_test.py PROGRAM [CASE...]
"""

import json

from commands import NIGHTLY, nightly, spool
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
