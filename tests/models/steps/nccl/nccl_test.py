"""Ranks with a GPU each, by NCCL, train one model with the bits of one rank:
nccl_test.py PROGRAM [--gpus N].

The GPUs and their NCCL are the emulator's, which refuses what it would not promise on real ones, unless it is said how many
real ones there are.
"""

import json
import os
import subprocess
import sys
import time
import unittest

PROGRAM = sys.argv.pop(1)
EMULATED = "--gpus" not in sys.argv
GPUS = 4
if not EMULATED:
    GPUS = int(sys.argv.pop())
    sys.argv.pop()


class Ranks:
    """Processes that train together."""

    def __init__(self, count, stage=2, dtype="f32", accumulate=12, state="device", graph="graph", fate="none", **more):
        words = [PROGRAM, str(stage), dtype, str(accumulate), state, graph, fate]
        job = f"nccl_test-{os.getpid()}-{time.monotonic_ns()}"
        if fate != "none" or "EMULATOR_NCCL_FAILS_AT" in more:
            # What was enqueued before a step failed reads memory that the step has freed meanwhile.
            options = os.environ.get("ASAN_OPTIONS", "")
            more = more | {"ASAN_OPTIONS": options + ":allow_user_poisoning=0"}
        self.running = []
        for rank in range(count):
            env = os.environ | {"EMULATOR_DEVICES": "4"} | more
            if count > 1:
                env |= {"SPOOL_RANK": str(rank), "SPOOL_RANKS": str(count), "SPOOL_MEETING": job}
            self.running.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                 text=True))

    def results(self):
        """What each rank printed."""
        all_of_them = [process.communicate(timeout=120) for process in self.running]
        self.said = [errors for _, errors in all_of_them]
        if any(process.returncode for process in self.running):
            raise AssertionError("".join(errors for _, errors in all_of_them) or "ranks ended without a word")
        return [json.loads(output) for output, _ in all_of_them]


class NcclTest(unittest.TestCase):
    def trained(self, count, **how):
        """The hash of what the ranks trained, which is one, in the peaks that were foretold."""
        results = Ranks(count, **how).results()
        self.assertEqual(len({result["hash"] for result in results}), 1, results)
        for result in results:
            self.assertEqual(result["peak"], result["foretold"], results)
        return results[0]["hash"]

    def test_any_number_of_ranks_trains_the_same_model(self):
        for dtype in "f32", "bf16":
            alone = self.trained(1, dtype=dtype)
            for count in range(2, min(GPUS, 4) + 1):
                self.assertEqual(self.trained(count, dtype=dtype), alone, (dtype, count))

    def test_stages_places_of_state_and_graphs_change_no_bits(self):
        alone = self.trained(1, accumulate=2)
        for stage in 0, 1, 2:
            self.assertEqual(self.trained(2, stage=stage, accumulate=2), alone, stage)
        self.assertEqual(self.trained(2, accumulate=2, graph="none"), alone)
        self.assertEqual(self.trained(2, accumulate=2, state="streamed"), alone)
        self.assertEqual(self.trained(2, accumulate=2, state="cpu"), alone)

    @unittest.skipUnless(EMULATED, "these GPUs are as they are")
    def test_gpus_without_access_to_each_other_train_the_same_and_say_so(self):
        alone = self.trained(1, accumulate=2)
        ranks = Ranks(2, accumulate=2, EMULATOR_NCCL="no_windows")
        self.assertEqual({result["hash"] for result in ranks.results()}, {alone})
        self.assertIn("NCCL takes no window of the GPUs' memory here", ranks.said[0])
        self.assertEqual(ranks.said[1], "")

    def end(self, ranks, seconds):
        """The sentences of ranks that end, all but rank 1, within so many seconds."""
        begin = time.monotonic()
        said = []
        for rank, process in enumerate(ranks.running):
            if rank == 1:
                continue
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, errors)
            said += errors.splitlines()
        self.assertLess(time.monotonic() - begin, seconds)
        ranks.running[1].kill()
        ranks.running[1].communicate()
        return said

    def test_the_others_end_where_one_dies(self):
        for graph in "graph", "none":
            said = self.end(Ranks(min(3, GPUS), fate="dies", graph=graph), seconds=20)
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], "^rank 1 disappeared.* at the exchange '(gradients|losses)'")

    def test_the_others_end_where_one_hangs(self):
        said = self.end(Ranks(min(3, GPUS), fate="hangs"), seconds=3 + 20)
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], "^rank 1 did not come to the exchange '(gradients|losses)' within 3 s")

    @unittest.skipUnless(EMULATED, "links of real GPUs do not fail when told to")
    def test_a_link_that_fails_ends_all(self):
        for graph in "graph", "none":
            ranks = Ranks(3, graph=graph, EMULATOR_NCCL_FAILS_AT="9")
            said = "".join(process.communicate(timeout=60)[1] for process in ranks.running)
            self.assertEqual([process.returncode for process in ranks.running], [1, 1, 1], said)
            self.assertIn("NCCL: gradients: ", said)

    def test_two_ranks_on_one_gpu_are_refused(self):
        ranks = Ranks(2, CUDA_VISIBLE_DEVICES="0")
        said = "".join(process.communicate(timeout=60)[1] for process in ranks.running)
        self.assertEqual([process.returncode for process in ranks.running], [1, 1], said)
        self.assertIn("rank 0 and rank 1 have the same GPU", said)

    def test_more_ranks_than_gpus_are_refused(self):
        ranks = Ranks(3, CUDA_VISIBLE_DEVICES="0,1")
        said = "".join(process.communicate(timeout=60)[1] for process in ranks.running)
        self.assertIn("3 ranks on one machine need as many GPUs, and it has 2; start 2 ranks", said)


if __name__ == "__main__":
    unittest.main()
