"""Runs in bf16 on a processor without a tile unit, and on one whose unit is emulated.

tile_unit_command_test.py PROGRAM [CASE...]
"""

import os
from unittest import mock

from commands import BY_HAND, Folder, main, spool

# Heads of 32, and products of several tiles whose extents are no multiples of 32.
SHAPE = "--layers 2 --heads 2 --channels 64 --context 64 --seq 50 --batch 3 --vocab 300 --dtype bf16".split()
SETTING = "SPOOL_TILE_UNIT"


class OnTheProcessor(Folder):
    def on(self, unit):
        """What this test runs from now on runs on a processor with this unit."""
        change = mock.patch.dict(os.environ, {SETTING: unit})
        change.start()
        self.addCleanup(change.stop)


class Version(OnTheProcessor):
    def test_says_what_computes_products_of_bf16(self):
        for unit, products in [
            ("absent", r"(oneDNN|plain loops)"),
            ("emulated", r"tile unit, emulated \(SPOOL_TILE_UNIT\)"),
        ]:
            self.on(unit)
            status, printed, errors = spool("--version")
            self.assertEqual((status, errors), (0, ""))
            self.assertRegex(printed, rf"(?m)^bf16 products: {products}$")

    def test_other_words_are_refused_in_a_sentence(self):
        self.on("amx")
        for words in [["--version"], ["train", *SHAPE, "--data", self.text, "--out", self.out]]:
            status, printed, errors = spool(*words)
            self.assertEqual((status, printed), (1, ""), words)
            said = " ".join(errors.split())
            self.assertEqual(said, f"spool: {SETTING} is 'amx'; set it to absent, emulated or present, or leave "
                                   "it unset")
        self.assertFalse(self.out.exists())


class Runs:
    unit = ""
    same_machine = ""  # as --machine names one

    def setUp(self):
        super().setUp()
        self.on(self.unit)

    def trained(self, name, *words):
        """Trains; returns the peak, the losses and the weights."""
        log, out = self.folder / f"{name}.jsonl", self.folder / name
        fixed = ["--data", self.text, "--log", log, "--out", out, "--steps", 3]
        status, printed, errors = spool("train", *SHAPE, *fixed, *words)
        self.assertEqual(status, 0, errors)
        peak = self.foretold(printed)
        self.assertIn(f"peak {peak} bytes, foretold {peak} bytes", printed)
        model = self.weights(out)
        header = 8 + int.from_bytes(model[:8], "little")  # it names the run
        return peak, self.losses(log), model[header:]

    def test_peak_is_foretold_and_suffices_as_budget(self):
        peak = self.trained("free", *BY_HAND)[0]
        self.assertEqual(self.trained("exact", *BY_HAND, "--memory", peak)[0], peak)
        fixed = ["--data", self.text, "--out", self.folder / "tight"]
        status, _, errors = spool("train", *SHAPE, *fixed, *BY_HAND, "--memory", peak - 1)
        self.assertEqual(status, 1, errors)
        self.assertIn(str(peak), errors)

    def test_a_plan_elsewhere_foretells_the_same_peak(self):
        peak = self.trained("here", *BY_HAND, "--threads", 2)[0]
        self.on("absent" if self.unit == "emulated" else "emulated")
        status, printed, errors = spool("plan", *SHAPE, *BY_HAND, "--machine", self.same_machine)
        self.assertEqual(status, 0, errors)
        self.assertEqual(self.foretold(printed), peak)

    def test_what_is_recomputed_has_the_bits_of_what_is_kept(self):
        peak, *kept = self.trained("kept", *BY_HAND)
        for name, words in {
            "recomputed": ["--recompute", "block", "--chunk-loss", 0],
            "within": ["--memory", peak * 19 // 20, "--chunk-loss", 0],
            "cheap": ["--recompute", "norms,gelu,attention", "--chunk-loss", 0],
        }.items():
            less, *bits = self.trained(name, *words)
            self.assertLess(less, peak, name)
            self.assertEqual(bits, kept, name)

    def test_threads_have_equal_bits(self):
        self.assertEqual(self.trained("one", *BY_HAND, "--threads", 1)[1:],
                         self.trained("two", *BY_HAND, "--threads", 2)[1:])

    def test_killed_runs_resume_bit_for_bit(self):
        self.killed_and_resumed(*SHAPE, *BY_HAND, "--checkpoint-every", 2, steps=60)


class WithoutAUnit(Runs, OnTheProcessor):
    unit = "absent"
    same_machine = "cpu:2,avx512bf16,3GHz,20GB/s,8GiB"


class OnAnEmulatedUnit(Runs, OnTheProcessor):
    unit = "emulated"
    same_machine = "cpu:2,amx,3GHz,20GB/s,8GiB"


if __name__ == "__main__":
    main()
