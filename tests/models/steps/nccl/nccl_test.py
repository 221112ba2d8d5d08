"""Ranks with a GPU each, by NCCL, train one model with the bits of one rank, and all end where one does:
nccl_test.py PROGRAM [--gpus N].  With SPOOL_NIGHTLY=1 each end is tried 50 times, else once.

The GPUs and their NCCL are the emulator's, which refuses what it would not promise on real ones, unless it is said how many
real ones there are.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1)
EMULATED = "--gpus" not in sys.argv
GPUS = 4
if not EMULATED:
    GPUS = int(sys.argv.pop())
    sys.argv.pop()
ROUNDS = 50 if os.environ.get("SPOOL_NIGHTLY") == "1" else 1
TIMEOUT = 3  # seconds in which others come, of the program's ranks that one leaves
EXCHANGE = "the exchange '(gradients|norms|parameters|losses)'"


class Ranks:
    """Processes that train together."""

    def __init__(self, test, count, stage=2, dtype="f32", accumulate=12, state="device", graph="graph",
                 fate="none", of_rank_1=None, words_of_rank_1=None, **more):
        words = [PROGRAM, str(stage), dtype, str(accumulate), state, graph, fate]
        job = f"nccl_test-{os.getpid()}-{time.monotonic_ns()}"
        self.running = []
        test.addCleanup(self.kill)
        for rank in range(count):
            env = os.environ | {"EMULATOR_DEVICES": "4"} | more | (of_rank_1 or {} if rank == 1 else {})
            if count > 1:
                env |= {"SPOOL_RANK": str(rank), "SPOOL_RANKS": str(count), "SPOOL_MEETING": job}
            own = [(words_of_rank_1 or {}).get(word, word) if rank == 1 else word for word in words]
            self.running.append(subprocess.Popen(own, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                 text=True))

    def kill(self):
        for process in self.running:
            process.kill()
            process.communicate()

    def results(self):
        """What each rank printed, and what all said."""
        all_of_them = [process.communicate(timeout=120) for process in self.running]
        said = "".join(errors for _, errors in all_of_them)
        if any(process.returncode for process in self.running):
            raise AssertionError(said or "ranks ended without a word")
        return [json.loads(output) for output, _ in all_of_them], said

    def wait_for_rank_1(self):
        """Until it is killed or stopped."""
        stat = pathlib.Path(f"/proc/{self.running[1].pid}/stat")
        while stat.read_text().split(") ")[1][0] not in "ZT":
            time.sleep(0.01)

    def sentences(self, *left):
        """What these ranks say, which end by an error."""
        said = []
        for rank in left:
            _, errors = self.running[rank].communicate(timeout=60)
            if self.running[rank].returncode != 1:
                raise AssertionError(f"rank {rank} ended with {self.running[rank].returncode}: {errors}")
            said += errors.splitlines()
        return said


class NcclTest(unittest.TestCase):
    def trained(self, count, said="", **how):
        """The hash of what the ranks trained, which is one, in the peaks and bytes that were foretold, by copy
        engines unless NCCL says something."""
        with tempfile.TemporaryDirectory() as folder:
            counts = pathlib.Path(folder) / "counts"
            results, errors = Ranks(self, count, EMULATOR_NCCL_COUNTS=str(counts), **how).results()
            exchanges = re.findall(r"of \d+: (\d+) exchanges, (\d+) by copy engines", counts.read_text()) if EMULATED else []
        self.assertEqual(errors, said)
        self.assertEqual(len({result["hash"] for result in results}), 1, results)
        for result in results:
            self.assertEqual(result["peak"], result["foretold"], results)
            self.assertEqual(result["sent"], result["foretold_sent"], results)
            self.assertEqual(result["sent"] > 0, count > 1, results)
        self.assertEqual(len(exchanges), count if EMULATED else 0)
        for all_of_them, by_copy_engines in exchanges:
            self.assertEqual(by_copy_engines, "0" if said else all_of_them)
            self.assertGreater(int(all_of_them), 1)
        return results[0]["hash"]

    def test_any_number_of_ranks_trains_the_same_model(self):
        for dtype in "f32", "bf16":
            alone = self.trained(1, dtype=dtype)
            for count in range(2, min(GPUS, 4) + 1):
                self.assertEqual(self.trained(count, dtype=dtype), alone, (dtype, count))

    def test_stages_places_of_state_graphs_and_delays_change_no_bits(self):
        alone = self.trained(1, accumulate=2)
        for stage in 0, 1, 2:
            self.assertEqual(self.trained(2, stage=stage, accumulate=2), alone, stage)
            self.assertEqual(self.trained(2, stage=stage, accumulate=2, graph="none", fate="delays"), alone, stage)
        self.assertEqual(self.trained(2, accumulate=2, fate="delays"), alone)
        for graph in "graph", "none":
            for state in "streamed", "cpu":
                self.assertEqual(self.trained(2, accumulate=2, state=state, graph=graph), alone)

    @unittest.skipUnless(EMULATED, "these GPUs are as they are")
    def test_without_windows_exchanges_take_multiprocessors_and_one_line_says_so(self):
        said = ("NCCL takes no window of the GPUs' memory here, so exchanges go through its own buffers, on "
                "multiprocessors, and take longer\n")
        alone = self.trained(1, accumulate=2)
        self.assertEqual(self.trained(2, accumulate=2, said=said, EMULATOR_NCCL="no_windows"), alone)

    def end(self, says, seconds=TIMEOUT + 5, **how):
        """Rank 1 of three, or two, is lost, and the others end within so many seconds, with one sentence."""
        for _ in range(ROUNDS):
            for graph in "graph", "none":
                ranks = Ranks(self, min(GPUS, 3), graph=graph, **how)
                ranks.wait_for_rank_1()
                begin = time.monotonic()
                said = ranks.sentences(*range(0, min(GPUS, 3), 2))
                took = time.monotonic() - begin
                ranks.kill()
                self.assertEqual(len(said), 1, said)
                self.assertRegex(said[0], says)
                self.assertLess(took, seconds, said)
                print(f"{self._testMethodName}: {took:.2f} s: {said[0]}", file=sys.stderr)

    def test_the_others_end_where_one_never_arrives(self):
        self.end(fate="never arrives", says="^rank 1 did not come to the exchange 'machines' within ")

    def test_the_others_end_where_one_dies(self):
        self.end(fate="dies", says=f"^rank 1 disappeared at {EXCHANGE}")

    def test_the_others_end_where_one_hangs(self):
        self.end(fate="hangs", says=f"^rank 1 did not come to {EXCHANGE} within {TIMEOUT} s")

    def test_all_end_where_one_throws(self):
        for graph in "graph", "none":
            said = Ranks(self, 2, graph=graph, fate="throws").sentences(0, 1)
            self.assertIn("the text has no more rows", "".join(said))
            self.assertEqual(len(said), 1, said)

    @unittest.skipUnless(EMULATED, "aborts of real NCCL do not hang when told to")
    def test_the_others_end_though_an_abort_hangs(self):
        self.end(fate="dies", EMULATOR_NCCL_HANGS="abort", says=f"^rank 1 disappeared at {EXCHANGE}")

    @unittest.skipUnless(EMULATED, "links of real GPUs do not fail when told to")
    def test_all_end_where_a_link_fails(self):
        for _ in range(ROUNDS):
            for graph in "graph", "none":
                said = Ranks(self, 3, graph=graph, fate="fails",
                             of_rank_1={"EMULATOR_NCCL_FAILS_AT": "9"}).sentences(0, 1, 2)
                self.assertEqual(len(said), 1, said)
                self.assertRegex(said[0], "^rank 1: NCCL: gradients: ")

    @unittest.skipUnless(EMULATED, "calls of real NCCL return")
    def test_all_end_where_a_call_of_nccl_never_returns(self):
        for _ in range(ROUNDS):
            ranks = Ranks(self, 3, fate="fails", of_rank_1={"EMULATOR_NCCL_HANGS": "init"})
            said = ranks.sentences(0, 1, 2)
            self.assertRegex(said[0], "did not come to the exchange 'ncclCommInitRankConfig' within ")

    def test_two_ranks_on_one_gpu_are_refused(self):
        said = Ranks(self, 2, CUDA_VISIBLE_DEVICES="0").sentences(0, 1)
        self.assertIn("rank 0 and rank 1 have the same GPU", "".join(said))

    @unittest.skipUnless(EMULATED, "these GPUs are as they are")
    def test_ranks_whose_machines_differ_are_refused(self):
        for (name, value), differ in {
            ("EMULATOR_GPU", "other"): "in their GPUs: emulated GPU and other emulated GPU",
            ("EMULATOR_GPU", "new_driver"): "in the driver of CUDA: 13.0 and 13.1",
            ("EMULATOR_NCCL_VERSION", "23004"): "in their NCCL: NCCL 2.28.9 and NCCL 2.30.4",
        }.items():
            said = Ranks(self, 3, of_rank_1={name: value}).sentences(0, 1, 2)
            self.assertEqual({line.split(": ", 1)[1] for line in said},
                             {f"rank 0 and rank 1 differ {differ}; ranks on GPUs of one kind, with the same software, can train "
                              "together"})

    @unittest.skipUnless(EMULATED, "these GPUs are as they are")
    def test_a_rank_without_nccl_or_a_gpu_is_refused(self):
        for (name, value), words in {
            ("SPOOL_NCCL", "0"): "ranks on GPUs exchange by NCCL: SPOOL_NCCL is 0 in the environment; unset it$",
            ("EMULATOR_NCCL_VERSION", "22705"): "ranks on GPUs exchange by NCCL: NCCL here is 2.27.5, and Spool needs 2.28 or a "
                                                "newer version 2; install ",
            ("CUDA_VISIBLE_DEVICES", ""): "2 ranks on one machine need as many GPUs, and it has 0 in CUDA_VISIBLE_DEVICES; name "
                                          "more there, or choose the device cpu",
        }.items():
            said = Ranks(self, 2, of_rank_1={name: value}).sentences(0, 1)
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], f"^rank 1: {words}")

    def test_ranks_whose_steps_differ_are_refused_before_the_first(self):
        same = "; all ranks of a run need the same"
        graphs = same + ", as StepRequest::graph and SPOOL_CUDA_SYNC in the environment say"
        cases = [
            ({"words_of_rank_1": {"graph": "no graph"}}, "graphs of steps: captured and not captured" + graphs),
            ({"of_rank_1": {"SPOOL_CUDA_SYNC": "1"}}, "graphs of steps: captured and not captured" + graphs),
            ({"words_of_rank_1": {"2": "1"}}, "stage of ZeRO: 2 and 1" + same),
            ({"words_of_rank_1": {"12": "24"}}, "micro-batches of a step: 12 and 24" + same),
            ({"words_of_rank_1": {"f32": "bf16"}}, "type of parameters: f32 and bf16" + same),
            ({"words_of_rank_1": {"device": "streamed"}}, "place of the optimizer's state: device and streamed" + same),
        ]
        for differs, words in cases:
            said = Ranks(self, 2, **differs).sentences(0, 1)
            self.assertEqual({line.split(": ", 1)[1] for line in said}, {f"rank 0 and rank 1 differ in {words}"})

    def test_one_rank_needs_no_nccl(self):
        (without,), said = Ranks(self, 1, accumulate=2, SPOOL_NCCL="0").results()
        self.assertEqual((without["hash"], said), (self.trained(1, accumulate=2), ""))

    def test_more_ranks_than_gpus_are_refused(self):
        said = Ranks(self, 3, CUDA_VISIBLE_DEVICES="0,1").sentences(0, 1, 2)
        self.assertIn("3 ranks on one machine need as many GPUs, and it has 2 in CUDA_VISIBLE_DEVICES; name more there, start 2 "
                      "ranks, or choose the device cpu", "".join(said))


if __name__ == "__main__":
    unittest.main()
