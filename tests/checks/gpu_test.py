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
        for by_name in "racecheck", "plans", "tests":
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


if __name__ == "__main__":
    unittest.main()
