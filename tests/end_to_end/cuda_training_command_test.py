"""Training on a GPU: the peak foretold, and losses that depend on the settings alone.

cuda_training_command_test.py PROGRAM [CASE...]
"""

from commands import BY_HAND, nightly
from on_cuda import CUDA, OnCuda, main


class Training(OnCuda):
    def test_peak_is_foretold_and_suffices_as_budget(self):
        printed = self.done()
        peak = self.foretold(printed)
        self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
        self.assertRegex(printed, r"f32 on cuda:0 \(.+\): 2 rows of 16 tokens\n")
        self.done("--memory", peak, out=self.folder / "exact")
        kept = [*BY_HAND, "--optimizer-state", "device"]  # a GPU's state could be streamed
        tight = self.train(*CUDA, *kept, "--memory", peak - 1, out=self.folder / "tight")
        self.refused(tight, 1, str(peak), "a batch of 1 would fit")

    @nightly
    def test_losses_do_not_depend_on_what_happens_between_steps(self):
        losses = []
        for every in 0, 1, 3:
            log = self.folder / f"{every}.jsonl"
            words = ["--eval-every", every, "--checkpoint-every", every, "--log", log]
            self.done(*words, out=self.folder / f"{every}", steps=7)
            losses.append(self.losses(log))
        self.assertEqual(losses[1:], losses[:1] * 2)

    @nightly
    def test_a_loss_that_is_not_finite_ends_the_run_with_a_step_in_the_queue(self):
        """Weights of 1e30 are finite, and their products are not."""
        words = ["--lr", "1e30", "--weight-decay", 0, "--warmup", 0, "--clip", 0]
        failed = self.train(*CUDA, *words, steps=50)
        self.refused(failed, 1, "step 2: the loss is ", "--lr")
        self.assertRegex(failed[2], r"the loss is -?(nan|inf),")

    def test_a_graph_changes_no_loss_and_no_weight(self):
        runs = []
        for name, words in ("graph", []), ("plain", ["--no-graph"]):
            log = self.folder / f"{name}.jsonl"
            out = self.folder / name
            words = [*words, "--log", log, "--dropout", 0.1, "--accumulate", 3, "--dtype", "bf16"]
            self.done(*words, out=out, steps=6)
            runs.append((self.losses(log), self.weights(out)))
        self.assertEqual(*runs)


if __name__ == "__main__":
    main()
