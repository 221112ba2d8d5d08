"""Ranks in every mix of stage, placement, budget and backend take and send what was foretold, all of
them alike, and end in the files of one rank in every type, also where work is late at random.

rank_mixes_command_test.py PROGRAM [CASE...]

With SPOOL_NIGHTLY=1 all mixes; else a few.
"""

import itertools
import os
import shutil
import unittest

from commands import PROGRAM, Folder, main, spool

FILES = ["model.safetensors", "optimizer.safetensors", "run.json"]
NIGHTLY = os.environ.get("SPOOL_NIGHTLY") == "1"
NIGHTLY_ALONE = unittest.skipUnless(NIGHTLY, "takes minutes")
HAS_MPI = shutil.which("mpirun") and "mpi: Open MPI" in spool("--version")[1]
MPIRUN = ["--oversubscribe", "--bind-to", "none", "-n"]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
BACKENDS = {"threads": 4, "processes": 2} | ({"mpirun": 3} if HAS_MPI else {})  # with so many ranks
STAGES = [0, 1, 2]
STATES = ["device", "streamed", "cpu"]
MODELS = {
    "gpt2-tiny": ["--model", "gpt2-tiny"],
    "llama-tiny": ["--model", "llama-tiny"],
    "chunks": ["--model", "gpt2-tiny", "--chunk-loss", 20, "--chunk-mlp", 16],
}
TYPES = {
    "f32": [],
    "masters": ["--dtype", "bf16"],
    "stochastic": ["--dtype", "bf16", "--rounding", "stochastic"],
}
SMALL, LARGE = ["--batch", 4, "--seq", 64], ["--batch", 11, "--seq", 128]
# What is kept and where, on so many tokens; or the share that a budget has of the bytes of keeping all.
PLACEMENTS = {
    "keep": [*SMALL, "--recompute", "none", "--chunk-loss", 0, "--chunk-mlp", 0],
    "block": [*SMALL, "--recompute", "block"],
    "some": [*SMALL, "--recompute", "norms,attention"],
    "chunks": [*SMALL, "--chunk-loss", 100, "--chunk-mlp", 64],
    "residual": [*LARGE, "--offload", "residual", "--recompute", "gelu"],  # of values above 1 MiB
    "all": [*LARGE, "--offload", "all"],
    "less": 0.8,
    "least": 0.6,
}
# By a number, so that models, types and places of state take turns in them.
MIXES = list(enumerate(itertools.product(PLACEMENTS, STAGES, BACKENDS)))


class RankMixes(Folder):
    def train_on(self, backend, ranks, *words, **variables):
        """Runs `spool train` on these ranks; returns what it printed."""
        program, words = PROGRAM, ["train", "--data", self.text, *words]
        if backend == "mpirun":
            program, words = "mpirun", [*MPIRUN, ranks, PROGRAM, *words]
        else:
            words += ["--ranks", ranks, "--ranks-as", backend]
        env = os.environ | AS_ROOT | variables
        status, printed, errors = spool(*words, program=program, env=env)
        self.assertEqual(status, 0, errors)
        self.assertEqual("which exchange by Open MPI" in printed, backend == "mpirun", printed)
        return printed

    def same(self, one, other):
        for name in FILES:
            theirs = (other / "latest" / name).read_bytes()
            self.assertEqual((one / "latest" / name).read_bytes(), theirs, f"{other.name} {name}")

    def numbers_of_ranks(self, log, ranks):
        """The last numbers of ranks, which took and sent what was foretold, and all took the same."""
        numbers = [entry for entry in self.log(log) if "ranks" in entry][-1]["ranks"]
        self.assertEqual([n["rank"] for n in numbers], list(range(ranks)))
        for n in numbers:
            for what in ["peak_bytes", "host_peak_bytes", "sent_bytes"]:
                self.assertEqual(n[what], n[f"foretold_{what}"], numbers)
            for what in ["peak_bytes", "host_peak_bytes"]:
                self.assertEqual(n[what], numbers[0][what], numbers)
            self.assertGreater(n["sent_bytes"], 0)
        return numbers

    def trains_a_mix(self, number, placement, stage, backend):
        ranks, state = BACKENDS[backend], STATES[(number + number // 3 + number // 9) % 3]
        rule, type_ = PLACEMENTS[placement], list(TYPES)[number // 2 % 3]
        type_ = "f32" if placement == "residual" else type_  # in bf16 those values are less than 1 MiB
        model = ["gpt2-tiny", "llama-tiny"][number % 2]
        words = [*MODELS[model], *TYPES[type_], "--optimizer-state", state, "--zero", stage]
        words += ["--accumulate", 2 * ranks, "--steps", 2, "--dropout", 0.1]
        if isinstance(rule, float):
            words += LARGE
            kept = self.foretold(self.train_on("threads", ranks, *words, "--dry-run"))
            budget = int(kept * rule)
            words += ["--memory", budget]
        else:
            words += rule
        log = self.folder / f"{number}.log"
        self.train_on(backend, ranks, *words, "--out", self.folder / f"{number}", "--log", log)
        first = self.numbers_of_ranks(log, ranks)[0]
        if isinstance(rule, float):
            self.assertLessEqual(first["peak_bytes"], budget)
        leaves = placement in ["residual", "all"] or state != "device"
        self.assertEqual(first["host_peak_bytes"] > 0, leaves)

    def test_take_and_send_what_was_foretold(self):
        for number, (placement, stage, backend) in MIXES if NIGHTLY else MIXES[3:36:13]:
            with self.subTest(placement=placement, stage=stage, backend=backend, number=number):
                self.trains_a_mix(number, placement, stage, backend)

    def run_on(self, backend, ranks, *words, name, steps=3, **variables):
        """Trains with 24 micro-batches a step; returns the run's folder."""
        out = self.folder / name
        fixed = ["--accumulate", 24, "--dropout", 0.1, "--batch", 2, "--seq", 32, "--lr-schedule", "constant"]
        fixed += ["--warmup", 1, "--steps", steps]
        self.train_on(backend, ranks, *fixed, *words, "--out", out, **variables)
        return out

    @NIGHTLY_ALONE
    def test_end_in_the_files_of_one_on_any_number(self):
        for model, words in MODELS.items():
            alone = self.run_on("threads", 1, *words, name=model)
            for ranks, backend in zip([2, 3, 4, 6, 8, 12], itertools.cycle(BACKENDS)):
                for by in {"threads", backend}:
                    self.same(alone, self.run_on(by, ranks, *words, name=f"{model} on {ranks} {by}"))

    @NIGHTLY_ALONE
    def test_end_in_the_files_of_one_in_every_type(self):
        late = {"SPOOL_CPU_DELAY": "200"}  # microseconds at most, at random
        for (model, words), (type_, of_type) in itertools.product(MODELS.items(), TYPES.items()):
            words = [*words, *of_type]
            alone = self.run_on("threads", 1, *words, name=f"{model} {type_}")
            for state, (backend, ranks) in itertools.product(STATES, BACKENDS.items()):
                name = f"{model} {type_} {state} {backend}"
                self.same(alone, self.run_on(backend, ranks, *words, "--optimizer-state", state, name=name, **late))

    @NIGHTLY_ALONE
    def test_end_in_the_same_files_in_every_stage(self):
        for model, words in MODELS.items():
            whole = self.run_on("threads", 24, *words, "--zero", 0, name=f"{model} 0")
            for stage in [1, 2]:
                self.same(whole, self.run_on("threads", 24, *words, "--zero", stage, name=f"{model} {stage}"))

    @NIGHTLY_ALONE
    def test_go_on_by_other_backends_with_the_state_elsewhere(self):
        parts = [("threads", 4, "streamed"), ("processes", 2, "device"), ("mpirun", 3, "cpu"), ("threads", 1, "device")]
        for type_, words in TYPES.items():
            whole = self.run_on("threads", 1, *words, name=f"whole {type_}", steps=8)
            out = self.run_on("threads", 4, *words, "--optimizer-state", "streamed", name=f"parts {type_}", steps=2)
            for steps, (backend, ranks, state) in zip([4, 6, 8], parts[1:]):
                to = ["--resume", "--out", out, "--steps", steps, "--optimizer-state", state]
                self.train_on(backend, ranks, *to)
            self.same(whole, out)


if __name__ == "__main__":
    main()
