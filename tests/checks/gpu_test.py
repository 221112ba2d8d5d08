"""The script that does everything on a GPU, without one: its stages, limits and targets, and how results
become tables.

gpu_test.py BUILD"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from tree import ROOT

BUILD = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build/release"
LIMIT = re.compile(r"^  (\w+) +(\d+) s   ", re.MULTILINE)


def gpu(*words, **more):
    return subprocess.run(["bash", ROOT / "scripts/gpu.sh", *words], capture_output=True, text=True, **more)


def dry_run(*stages):
    """The limits of the stages by name, and the targets."""
    said = gpu("--dry-run", *stages).stdout
    targets = re.search(r"^targets: (.*)$", said, re.MULTILINE)[1].split()
    return {name: int(seconds) for name, seconds in LIMIT.findall(said)}, targets


def programs_on_cuda():
    """The programs of ctest's tests that need a GPU, but those of the command line."""
    said = subprocess.run(
        ["ctest", "--test-dir", BUILD, "--label-regex", "^cuda$", "--show-only=json-v1"],
        capture_output=True, text=True, check=True,
    )
    tests = json.loads(said.stdout)["tests"]
    return {pathlib.Path(test["command"][0]).name for test in tests if not test["name"].startswith("end_to_end/cuda_")}


class Stages(unittest.TestCase):
    def test_limits_of_a_run_without_names_add_up_to_its_time(self):
        limits, _ = dry_run()
        self.assertEqual(sum(limits.values()), 570)
        for by_name in "racecheck", "plans", "tests", "ranks":
            self.assertNotIn(by_name, limits)
            self.assertIn(by_name, dry_run(by_name)[0])

    def test_stages_keep_their_order_and_are_run_once(self):
        self.assertEqual(list(dry_run("kernels", "device", "kernels")[0]), ["device", "kernels"])

    def test_a_stage_builds_what_it_needs_alone(self):
        self.assertEqual(dry_run("tune")[1], ["benchmark_tune"])
        self.assertEqual(dry_run("device")[1], [])
        self.assertIn("all", dry_run("tests")[1])

    def test_targets_are_the_programs_of_ctest_that_need_a_gpu(self):
        programs = programs_on_cuda()
        if not programs:
            self.skipTest("this build has no cuda device")
        self.assertEqual(set(dry_run("cuda_tests")[1]), programs)

    def test_says_how_much_is_carried(self):
        self.assertRegex(gpu("--dry-run").stdout, r"carried: \d+ bytes in .carry/")

    def test_a_wrong_stage_names_those_there_are(self):
        wrong = gpu("kernel")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("kernels", wrong.stderr)

    def test_without_a_gpu_nothing_is_built(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "nvidia-smi").symlink_to("/bin/false")
            env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "OUT": f"{folder}/out"}
            refused = gpu("build", env=env)
            self.assertEqual(refused.returncode, 3)
            self.assertIn("no CUDA GPU", refused.stderr)
            self.assertFalse((pathlib.Path(folder) / "out").exists())


class Results(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def run_script(self, script, *words):
        words = [sys.executable, ROOT / script, *map(str, words)]
        return subprocess.run(words, capture_output=True, text=True, check=True, cwd=self.folder).stdout

    def write(self, name, contents):
        text = contents if isinstance(contents, str) else json.dumps(contents)
        (self.folder / name).write_text(text)
        return name

    def test_foretold_times_stand_beside_measured_ones_on_the_last_page(self):
        table = "a plan\n  kernel     launches         ms\n  matmul          147     {}\n  {} 12 1.500\n  all 159 {}\n"
        foretold = self.write("foretold", table.format("36.500", "attention backward", "38.000"))
        measured = self.write("measured", table.format("40.150", "attention backward", "41.650"))
        self.run_script("scripts/gpu/kernel_times.py", "step.json", "gpt2-124m", foretold, measured)
        page = self.run_script("benchmarks/scripts/report.py", ".").strip().splitlines()
        self.assertIn("| matmul | 147 | 36.500 | 40.150 | 1.10 |", page)
        self.assertIn("| attention backward | 12 | 1.500 | 1.500 | 1.00 |", page)
        self.assertEqual(page[-1], "| all | 159 | 38.000 | 41.650 | 1.10 |")

    def test_a_kernel_that_one_side_lacks_has_no_ratio(self):
        foretold = self.write("foretold", "  kernel launches ms\n  matmul 2 1.000\n")
        measured = self.write("measured", "  kernel launches ms\n  gelu 3 2.000\n")
        self.run_script("scripts/gpu/kernel_times.py", "step.json", "m", foretold, measured)
        page = self.run_script("benchmarks/scripts/report.py", ".")
        self.assertIn("| matmul | 2 | 1.000 |  |  |", page)
        self.assertIn("| gelu | 3 |  | 2.000 |  |", page)

    def test_reports_are_merged_under_words(self):
        for word in "", "again: ":
            report = self.write("report.json", {"context": {}, "benchmarks": [{"name": "step", "real_time": 2}]})
            self.run_script("scripts/gpu/merge.py", "step.json", report, word)
        plans = self.write("plans.json", {"runs": []})
        self.run_script("scripts/gpu/merge.py", "step.json", plans, "plans")
        results = json.loads((self.folder / "step.json").read_text())
        self.assertEqual([b["name"] for b in results["benchmarks"]], ["step", "again: step"])
        self.assertEqual(results["plans"], {"runs": []})
        self.assertFalse((self.folder / "report.json").exists())

    def test_facts_are_written_without_a_gpu(self):
        said = self.run_script("scripts/gpu/facts.py", "device.json")
        facts = json.loads((self.folder / "device.json").read_text())
        for key in "gpus", "driver_of_kernel", "cuda_of_driver", "libraries", "headers":
            self.assertIn(key, facts)
        self.assertIn("libcudnn.so.9", facts["libraries"])
        self.assertTrue(said.strip())


# Stands in for `spool train` on ranks: of other losses, files or bytes where the variable FAKE says so.
FAKE_SPOOL = """#!/usr/bin/env python3
import json, os, pathlib, sys
words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
ranks, out = int(words["--ranks"]), pathlib.Path(words["--out"])
fault = os.environ.get("FAKE") if ranks > 1 else None
(out / "latest").mkdir(parents=True)
for name in "model.safetensors", "optimizer.safetensors", "run.json":
    (out / "latest" / name).write_text("one" if fault != "files" else "another")
bytes = {"peak_bytes": 5, "host_peak_bytes": 0, "sent_bytes": 7}
of_rank = {"rank": 0, **bytes, **{f"foretold_{k}": v + (fault == k) for k, v in bytes.items()}}
lines = [{"loss": 2.5 + (fault == "losses"), "step_ms": 4.0}] * 4 + [{"step": 4, "ranks": [of_rank]}]
pathlib.Path(words["--log"]).write_text("\\n".join(map(json.dumps, lines)))
print("the trace of step 2 is in t: foretold 200 us, exposed copies 0.0 % of it, exposed exchanges 4 us; measured 0.2 ms, "
      f"exposed copies 0.0 % of it, exposed exchanges {40 if fault == 'exposed' else 5} us")
"""
FAKE_EXCHANGE = """#!/usr/bin/env python3
import pathlib, sys
words = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
assert words["device"] == "cuda"
pathlib.Path(words["json"]).write_text('{"ranks": %s}' % words["ranks"])
"""


class Ranks(unittest.TestCase):
    def run_parts(self, *words, **more):
        """The exit status, the last line, and the results."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"spool": FAKE_SPOOL, "benchmarks/exchange": FAKE_EXCHANGE}.items():
                fake = pathlib.Path(folder) / name
                fake.parent.mkdir(exist_ok=True)
                fake.write_text(text)
                fake.chmod(0o755)
            run = subprocess.run(
                [sys.executable, ROOT / "scripts/gpu/ranks.py", folder, f"{folder}/ranks.json", *words],
                capture_output=True, text=True, env={**os.environ, **more},
            )
            self.assertEqual(run.stderr, "")
            results = json.loads((pathlib.Path(folder) / "ranks.json").read_text())
            return run.returncode, run.stdout.splitlines()[-1], results

    def test_files_of_any_number_of_ranks_are_those_of_one(self):
        status, said, results = self.run_parts("--gpus", "8", "--parts", "bits")
        self.assertEqual((status, said), (0, "1 of 1 parts passed, on 8 GPUs"))
        self.assertEqual([list(run) for run in results["bits"].values()], [["1", "2", "4", "8"]] * 3)

    def test_losses_of_a_mesh_are_near_those_of_one_rank(self):
        status, said, results = self.run_parts("--gpus", "4", "--parts", "mesh")
        self.assertEqual((status, said), (0, "1 of 1 parts passed, on 4 GPUs"))
        self.assertEqual([list(run) for run in results["mesh"].values()], [["tensor=2", "2x2", "data=2,tensor=2"]] * 2)
        status, _, results = self.run_parts("--gpus", "2", "--parts", "mesh", FAKE="losses")
        self.assertEqual((status, results["mesh"]["wrong"][0]),
                         (1, "gpt2-tiny f32: a loss on tensor=2 is 0.4 beside that of one rank"))

    def test_what_differs_is_named(self):
        for fault, words in {"files": "the files of 2 ranks are not", "losses": "the losses of 2 ranks are not",
                             "sent_bytes": "rank 0 has sent_bytes 7, foretold 8"}.items():
            status, said, results = self.run_parts("--gpus", "2", "--parts", "bits", FAKE=fault)
            self.assertEqual((status, said), (1, "0 of 1 parts passed, on 2 GPUs"))
            self.assertIn(words, results["bits"]["wrong"][0])

    def test_exposed_exchanges_stand_beside_foretold_ones(self):
        status, _, results = self.run_parts("--gpus", "2", "--parts", "steps")
        self.assertEqual(status, 0)
        self.assertEqual(results["steps"]["gpt2-1558m"]["ranks"]["traced"]["foretold"],
                         {"step_ms": 0.2, "exposed_ms": 0.004})
        status, _, results = self.run_parts("--gpus", "2", "--parts", "steps", FAKE="exposed")
        self.assertIn("+18.0% of the step beside what was foretold", results["steps"]["wrong"][0])

    def test_the_exchange_of_all_gpus_is_kept(self):
        status, _, results = self.run_parts("--gpus", "4", "--parts", "exchange")
        self.assertEqual((status, results["exchange"]), (0, {"ranks": 4}))

    def test_one_gpu_and_no_time_leave_parts_out(self):
        self.assertEqual(self.run_parts("--gpus", "1", "--parts", "bits,steps")[::2],
                         (0, {"gpus": 1, **dict.fromkeys(["bits", "steps"], {"left_out": "there is one GPU"})}))
        status, _, results = self.run_parts("--gpus", "2", "--parts", "bits", "--seconds", "-1")
        self.assertEqual((status, results["bits"]), (1, {"left_out": "no time is left"}))

    def test_a_program_that_fails_or_is_absent_is_said(self):
        status, _, results = self.run_parts("--gpus", "1", "--parts", "one")
        self.assertEqual(status, 1)
        self.assertIn("runtime_nccl_one_rank", results["one"]["wrong"][0])


if __name__ == "__main__":
    unittest.main()
