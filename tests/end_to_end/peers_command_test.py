"""benchmarks/peers/sweep.py: the processes it runs, and a sweep where a script stands in for PyTorch."""

import contextlib
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import time
import unittest
import unittest.mock

from commands import PROGRAM, Folder, main

PEERS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
sys.path.insert(0, str(PEERS))

import sweep
from joint import machine, processes, spool_side, torch_side
from joint.points import MIB


class Processes(Folder):
    def test_a_log_is_read_as_it_grows(self):
        file = self.folder / "log"
        log = spool_side.Log(file)
        self.assertEqual(log.steps(), [])
        file.write_text('{"format": "spool-run"}\n{"step": 1, "loss": 2}\n{"step": 2, "lo')
        self.assertEqual([step["step"] for step in log.steps()], [1])
        with file.open("a") as more:
            more.write('ss": 3}\n{"step": 2, "corrected_step_ms": 1}\n')
        self.assertEqual([step["loss"] for step in log.steps()], [2, 3])

    def test_a_time_limit_ends_a_program_and_its_children(self):
        marker = self.folder / "pid"
        with self.assertRaisesRegex(processes.Failed, "time limit of 1 s"):
            with processes.Child(["sh", "-c", f"sleep 100 & echo $! >{marker}; wait"], 1) as child:
                child.wait()
        pid = int(marker.read_text())
        for _ in range(500):  # a child of a child is reaped by another process
            status = pathlib.Path(f"/proc/{pid}/stat")
            if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.01)
        self.fail("its child still runs")

    def test_reasons_are_a_sentence(self):
        self.assertEqual(processes.sentence("\n  raised:\n   No   compiler\nmore"), "raised: No compiler")
        self.assertEqual(processes.ending(1, "Traceback\nValueError: no\n"), "ValueError: no")
        self.assertIn("SIGKILL", processes.ending(-9, "noise"))
        self.assertIn("status 3", processes.ending(3, ""))

    def test_memory_and_processor_time_are_those_of_the_process(self):
        before = processes.processor_seconds(os.getpid())
        taken = bytearray(os.urandom(1)) * (64 * MIB)
        self.assertGreaterEqual(processes.memory_of(os.getpid(), "VmHWM"), len(taken))
        while time.process_time() < before + 0.05:
            pass
        self.assertGreater(processes.processor_seconds(os.getpid()), before)

    def test_a_peak_begins_anew_and_the_whole_one_stays(self):
        peak = processes.Peak(os.getpid())
        taken = bytearray(os.urandom(1)) * (64 * MIB)
        del taken
        peak.begin()
        first = peak.numbers()
        peak.begin()
        second = peak.numbers()
        for found in (first, second):
            self.assertGreaterEqual(found["process_peak_bytes"], 64 * MIB)
            if found["steps_peak_bytes"] is not None:  # not every system forgets
                self.assertLess(found["steps_peak_bytes"], found["process_peak_bytes"] - 32 * MIB)

    def test_what_spool_does_not_say_is_a_sentence(self):
        for found in ({"a": 1}, 7):
            with self.assertRaisesRegex(processes.Failed, "^spool plan has no b: this program is of another"):
                spool_side.members("spool plan", found, ["b"])

    def test_the_last_line_of_pytorch_has_the_numbers(self):
        self.assertEqual(torch_side.parse('warning\n{"step_ms": 1}\n'), {"step_ms": 1})
        self.assertIsNone(torch_side.parse("warning\n"))
        self.assertIsNone(torch_side.parse(""))
        with self.assertRaisesRegex(processes.Failed, "out of memory"):
            torch_side.parse('{"error": "out of memory"}')


class Surroundings(Folder):
    def program(self, name, text):
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return file

    def test_a_build_for_cuda_is_told(self):
        python = self.program("python", 'case "$*" in *version.cuda*) echo 9.9+cu1 13.2 ;; esac')
        self.assertEqual(torch_side.conditions(python), {"torch": "9.9+cu1", "torch built": "for CUDA 13.2"})
        python = self.program("python", "echo 9.9 None")
        self.assertEqual(torch_side.conditions(python)["torch built"], "without CUDA")

    def test_the_build_for_cuda_is_installed_with_a_word(self):
        python = self.program(
            "python", 'case "$*" in *--index-url*) echo "ERROR: no route" >&2; exit 1 ;; esac'
        )
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            torch_side.install(python, "cpu")
        self.assertIn("without CUDA (ERROR: no route): PyPI's build follows", said.getvalue())
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            torch_side.install(python, "cuda")
        self.assertEqual(said.getvalue(), "")
        broken = self.program("broken", "echo no disk >&2; exit 1")
        with contextlib.redirect_stderr(said), self.assertRaisesRegex(ValueError, "torch: no disk; --python"):
            torch_side.install(broken, "cpu")

    def test_a_gpu_is_named_with_its_driver(self):
        self.program(
            "nvidia-smi",
            'case "$*" in *query*) echo "NVIDIA H100, 570.1" ;;'
            ' *) echo "| NVIDIA-SMI 570.1  CUDA Version: 12.8 |" ;; esac',
        )
        for path, said in ((f"{self.folder}:{os.environ['PATH']}", "NVIDIA H100, driver 570.1, CUDA 12.8"),
                           (str(self.folder / "none"), "unknown, as nvidia-smi does not tell")):
            with unittest.mock.patch.dict(os.environ, PATH=path):
                self.assertEqual(machine.gpu(), said)


class Arguments(unittest.TestCase):
    def refused(self, word, *words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            sweep.parse(words)
        self.assertIn(word, said.getvalue())

    def test_lists(self):
        found = sweep.parse(["--shapes", "4x64,1x1024", "--dtypes", "f32,bf16", "--ways", "spool,eager"])
        self.assertEqual((found.shapes, found.ways), ([(4, 64), (1, 1024)], ["spool", "eager"]))
        self.assertEqual(found.fractions[0], 0.1)
        self.assertEqual(sweep.parse(["--self-test"]).model, "gpt2-tiny")

    def test_what_cannot_be_is_refused(self):
        self.refused("4x is not rows x tokens", "--shapes", "4x")
        self.refused("lazy is none of spool", "--ways", "spool,lazy")
        self.refused("2 is not a number from 0 to 1", "--fractions", "0.5,2")
        self.refused("has 128 tokens at most", "--model", "gpt2-tiny", "--shapes", "1x256")
        self.refused("--warm-up is 1 at least", "--warm-up", "0")


# Stands in for a python with PyTorch: it knows one way, takes too long in one, and fails in the others.
STAND_IN = """#!/bin/sh
case "$*" in
*torch.__version__*) echo 9.9 None ;;
*"--way eager "*)
  echo a warning
  echo '{"step_ms": 5000, "processor_ms": 9, "steps_peak_bytes": 900000000,
         "process_peak_bytes": 900000000, "before_model_bytes": 500000000,
         "returned_peak_bytes": 800000000, "tensors_peak_bytes": 40000000}' | tr -d '\\n' ;;
*"--way compiled "*) sleep 100 ;;
*) echo "RuntimeError: not today" >&2; exit 1 ;;
esac
"""


class WholeSweep(Folder):
    def setUp(self):
        super().setUp()
        self.python = self.folder / "python"
        self.python.write_text(STAND_IN)
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)
        self.json = self.folder / "out.json"

    def sweep(self, *words, ways="spool,spool-frontier,eager,checkpoint"):
        fixed = ["--spool", PROGRAM, "--python", self.python, "--model", "gpt2-tiny", "--shapes", "2x64"]
        fixed += ["--threads", 2, "--budgets", 1, "--steps", 3, "--ways", ways, "--out", self.json]
        command = [sys.executable, PEERS / "sweep.py", *fixed, *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    def points(self):
        return {(p["way"], p["turn"]): p for p in json.loads(self.json.read_text())["points"].values()}

    def test_spool_and_a_peer(self):
        status, out, errors = self.sweep()
        self.assertEqual(status, 0, errors)
        self.assertIn("6 points, about", errors)
        self.assertEqual(self.json.with_suffix(".md").read_text(), out.removesuffix("\n"))
        found = self.points()
        for way in ("spool", "spool-frontier"):
            for turn in (0, 1):
                point = found[way, turn]
                self.assertNotIn("error", point)
                self.assertEqual(point["arena_peak_bytes"], point["foretold_peak_bytes"])
                self.assertGreaterEqual(len(point["steps_ms"]), 3)
                self.assertGreater(point["process_peak_bytes"], 1 << 24)
                self.assertGreaterEqual(point["process_peak_bytes"], point["steps_peak_bytes"] or 0)
        budget = found["spool-frontier", 0]
        self.assertLessEqual(budget["arena_peak_bytes"], budget["setting"])
        self.assertLess(budget["arena_peak_bytes"], found["spool", 0]["arena_peak_bytes"])
        (program,) = json.loads(self.json.read_text())["programs"].values()
        self.assertTrue(1 << 20 < program < 1 << 28, program)
        self.assertEqual(found["checkpoint", 0]["error"], "RuntimeError: not today")
        self.assertIn("PyTorch, checkpoint: RuntimeError: not today", out)
        self.assertRegex(out, r"\| PyTorch, eager \| Spool, (no budget|\d+\.\d MiB) \| \d+ % \|")

    def test_it_goes_on_where_it_stopped(self):
        self.assertEqual(self.sweep(ways="eager,checkpoint")[0], 0)
        first = self.points()
        status, out, errors = self.sweep(ways="eager,checkpoint")
        self.assertIn("0 points", errors)
        self.assertIn("PyTorch, eager", out)
        self.assertEqual(self.points(), first)
        self.assertIn("1 point,", self.sweep("--again", "failed", ways="eager,checkpoint")[2])
        self.assertIn("2 points", self.sweep("--again", ways="eager,checkpoint")[2])
        status, _, errors = self.sweep("--warm-up", 6, ways="eager")
        self.assertEqual(status, 1)
        self.assertIn("was measured with warm-up 5, and this is 6", errors)

    def test_more_ways_have_spool_beside_them(self):
        self.assertEqual(self.sweep(ways="spool,eager")[0], 0)
        status, out, errors = self.sweep(ways="spool,checkpoint")
        self.assertEqual(status, 0, errors)
        self.assertIn("3 points", errors)
        self.assertEqual(self.points()["checkpoint", 2]["error"], "RuntimeError: not today")
        self.assertIn("Measured in 2 rounds", out)
        self.assertIn("0 points", self.sweep(ways="spool,eager,checkpoint")[2])

    def test_a_spool_of_another_version_is_told(self):
        spool = self.folder / "spool"
        spool.write_text('#!/bin/sh\ncase "$1" in plan) echo {} ;; train) exit 1 ;; *) echo spool 9 ;; esac\n')
        spool.chmod(spool.stat().st_mode | stat.S_IXUSR)
        status, out, errors = self.sweep("--spool", spool, ways="spool,eager")
        self.assertEqual(status, 0, errors)
        self.assertIn("no plan: spool plan has no peak_bytes_by_purpose", errors)
        self.assertIn("Spool's own memory: it ended with status 1", errors)
        self.assertNotIn("Traceback", errors)

    def test_a_gpu_is_a_condition(self):
        status, _, errors = self.sweep("--device", "cuda", ways="checkpoint")
        self.assertEqual(status, 0, errors)
        self.assertTrue(json.loads(self.json.read_text())["conditions"]["GPU"])

    def test_a_point_that_takes_too_long_is_a_row(self):
        status, out, errors = self.sweep("--limit", 4, ways="compiled")
        self.assertEqual(status, 0, errors)
        self.assertIn("PyTorch, compiled: it was ended after the time limit of 4 s", out)

    def test_what_it_runs_ends_with_it(self):
        fixed = ["--python", self.python, "--model", "gpt2-tiny", "--shapes", "2x64", "--ways", "compiled"]
        command = [sys.executable, PEERS / "sweep.py", "--spool", PROGRAM, *fixed]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        stand_in = []
        while not stand_in:
            self.assertIsNone(process.poll())
            found = [pathlib.Path(f"/proc/{pid}/cmdline") for pid in children.read_text().split()]
            with contextlib.suppress(OSError):
                stand_in = [line.parent for line in found if b"torch_point" in line.read_bytes()]
            time.sleep(0.01)
        process.terminate()
        self.assertEqual(process.wait(30), 130)
        self.assertFalse(stand_in[0].exists())

    def test_a_dry_run_measures_nothing(self):
        status, out, _ = self.sweep("--dry-run", ways="spool,eager")
        self.assertEqual(status, 0)
        self.assertEqual(len(out.splitlines()), 3)
        self.assertFalse(self.json.exists())
        self.sweep(ways="eager")
        before = self.json.read_text()
        self.sweep("--again", "--dry-run", ways="eager")
        self.assertEqual(self.json.read_text(), before)

    def test_a_missing_program_is_a_sentence(self):
        status, _, errors = self.sweep("--spool", self.folder / "none")
        self.assertEqual(status, 1)
        self.assertRegex(errors, r"^sweep\.py: .*none does not run \(No such file or directory\); --spool")


if __name__ == "__main__":
    main()
