"""Ranks that are processes, of Spool's own or of a launcher, end in the files of threads; one that ends
takes the others with it, one sentence says why, and the run goes on with any number of them.

rank_processes_command_test.py PROGRAM [CASE...]
"""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time
import unittest

from commands import PROGRAM, PROSE, SHAPE, Folder, last_step, main, spool
from rank_processes import started_by

FILES = ["model.safetensors", "optimizer.safetensors", "run.json"]
STEP = ["--accumulate", 4, "--dropout", 0.1]
NIGHTLY = os.environ.get("SPOOL_NIGHTLY") == "1"
ROUNDS = 20 if NIGHTLY else 2
LONG = 200  # steps of a run that is ended
HAS_MPI = shutil.which("mpirun") and "mpi: Open MPI" in spool("--version")[1]
WITHOUT_MPI = "the program has no Open MPI, or there is no mpirun"
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OF_LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "mpirun": ("PMI_RANK", "PMI_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
}


def lives(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().split(") ")[1][0] not in "ZX"
    except OSError:
        return False


class RankProcesses(Folder):
    def words(self, out, *more, steps=4):
        fixed = ["train", *SHAPE, *STEP, "--data", self.text, "--out", out, "--steps", steps]
        return [str(w) for w in [*fixed, *more]]

    def start(self, words, before=(), cwd=None, **variables):
        """A process, whose errors are in the file .said of it; a launcher's words may come before."""
        said = open(self.folder / f"said-{random.randrange(10**9)}", "w+", encoding="utf-8")
        self.addCleanup(said.close)
        run = subprocess.Popen([*before, PROGRAM, *words], env=os.environ | variables, stderr=said,
                               stdout=subprocess.DEVNULL, cwd=cwd)
        run.said = said
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        return run

    def launched(self, launcher, ranks, words, variables=lambda _: {}):
        rank, size = OF_LAUNCHERS[launcher]
        return [self.start(words, **({rank: str(r), size: str(ranks)} | variables(r)))
                for r in range(ranks)]

    def ended(self, run, within=60):
        """Its exit code and the lines of its errors."""
        code = run.wait(timeout=within)
        run.said.seek(0)
        # Tests repeat flags of SHAPE.
        return code, [line for line in self.said(run.said.read()) if "the last one counts" not in line]

    def whole(self, *more, steps=4, name="whole"):
        self.assertEqual(spool(*self.words(self.folder / name, "--ranks", 1, *more, steps=steps))[0], 0)
        return self.folder / name

    def same(self, one, other):
        for name in FILES:
            theirs = (other / "latest" / name).read_bytes()
            self.assertEqual((one / "latest" / name).read_bytes(), theirs, f"{other.name} {name}")

    def test_end_in_the_files_of_one_rank(self):
        for name, more in {"f32": [], "bf16": ["--dtype", "bf16", "--optimizer-state", "streamed"]}.items():
            whole = self.whole(*more, name=name)
            for ranks in [2, 4]:
                out = self.folder / f"{name}-{ranks}"
                status, printed, errors = spool(
                    *self.words(out, *more, "--ranks", ranks, "--ranks-as", "processes"))
                self.assertEqual((status, self.said(errors)), (0, []))
                peak = printed.split("\npeak ")[1].split("\n")[0]
                self.assertEqual(*[part.split()[-2] for part in peak.split(", ")])
                self.same(whole, out)

    def test_of_a_launcher_end_in_the_files_of_one_rank(self):
        whole = self.whole()
        for launcher in OF_LAUNCHERS:
            out = self.folder / launcher
            for run in self.launched(launcher, 4, self.words(out)):
                self.assertEqual(self.ended(run), (0, []))
            self.same(whole, out)

    @unittest.skipUnless(HAS_MPI, WITHOUT_MPI)
    def test_of_mpirun_exchange_by_mpi(self):
        whole = self.whole()
        for ranks in [2, 4]:
            out = self.folder / f"mpi-{ranks}"
            words = [*MPIRUN, "-n", str(ranks), PROGRAM, *self.words(out)]
            done = subprocess.run(words, env=os.environ | AS_ROOT, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{ranks} ranks by mpirun, which exchange by Open MPI", done.stdout)
            self.same(whole, out)
        words = ["mpirun", "--oversubscribe", "-n", "3", PROGRAM, *self.words(self.out)]
        done = subprocess.run(words, env=os.environ | AS_ROOT, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("spool: "), 1, done.stderr)
        self.assertIn("spool: this run has 4 micro-batches a step", done.stderr)

    @unittest.skipUnless(HAS_MPI, WITHOUT_MPI)
    def test_of_mpirun_measure_their_link(self):
        environment = os.environ | AS_ROOT | {"XDG_CACHE_HOME": str(self.folder / "cache")}

        def launched(*words):
            words = [*MPIRUN, "-n", "2", PROGRAM, *(str(w) for w in words)]
            return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)

        done = launched("calibrate", *SHAPE, *STEP)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("the link between 2 ranks by mpi: "), 1, done.stdout)
        (file,) = (self.folder / "cache" / "spool").glob("kernels-cpu-*.json")
        stored = file.read_bytes()
        done = launched(*self.words(self.out, "--dry-run"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("; measured, by mpi\n"), 1, done.stdout)
        self.assertEqual(file.read_bytes(), stored)
        self.assertFalse(self.out.exists())
        refused = launched("plan", *SHAPE)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("spool plan runs in one process, and mpirun started 2", refused.stderr)

    def test_of_a_launcher_foretell_without_training(self):
        runs = self.launched("torchrun", 2, self.words(self.out, "--dry-run"))
        for run in runs:
            self.assertEqual(self.ended(run), (0, []))
        self.assertFalse(self.out.exists())

    def test_meet_at_an_address(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        out = self.folder / "address"
        for run in self.launched("torchrun", 2, self.words(out, "--meet", f"127.0.0.1:{port}")):
            self.assertEqual(self.ended(run), (0, []))
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            at = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(other.getsockname()[1])}
            run = self.start(self.words(self.out), RANK="0", WORLD_SIZE="2", **at)
            code, said = self.ended(run)
            self.assertEqual(code, 1)
            self.assertIn("is in use by another program", said[0])
            self.assertIn("--meet", said[0])

    def run_on_four(self, *more, before=(), variable="SPOOL_RANK", **variables):
        """A run on four processes that has saved and goes on; those by rank."""
        self.out = self.folder / f"run-{random.randrange(10**9)}"
        log = self.out.with_suffix(".log")
        words = self.words(self.out, "--checkpoint-every", 2, "--log", log, *more, steps=LONG)
        run = self.start(words, before, **variables)
        until = random.randint(3, LONG // 2)
        while run.poll() is None and not (last_step(log) >= until and (self.out / "latest").exists()):
            time.sleep(0.002)
        self.assertIsNone(run.poll())
        ranks = started_by(run.pid, variable)
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        return run, ranks

    def own_run(self, *more):
        return self.run_on_four("--ranks", 4, "--ranks-as", "processes", *more)

    def goes_on(self, ranks):
        """The run goes on, and ends in the files of one that was never stopped."""
        as_words = ["--ranks-as", "processes"] if ranks == 2 else []
        status, _, errors = spool("train", "--resume", "--out", self.out, "--ranks", ranks, *as_words)
        self.assertEqual(status, 0, errors)
        whole = self.folder / "long"
        if not whole.exists():
            self.whole("--checkpoint-every", 2, steps=LONG, name="long")
        self.same(whole, self.out)

    def end_of(self, run, ranks, code, *words, within=10):
        begin = time.monotonic()
        got, said = self.ended(run, within=60)
        while any(lives(process) for process in ranks.values()):
            time.sleep(0.01)
        self.assertLess(time.monotonic() - begin, within, said)
        if code is None:  # the launcher's own, which has something to say, too
            self.assertNotEqual(got, 0, said)
            said = [line for line in said if line.startswith("spool: ")]
        else:
            self.assertEqual(got, code, said)
        self.assertEqual(len(said), 1 if words else 0, said)
        for word in words:
            self.assertIn(word, said[0])

    def test_one_that_is_killed_ends_the_run_which_goes_on(self):
        for i in range(ROUNDS):
            run, ranks = self.own_run()
            rank = random.randrange(4)
            os.kill(ranks[rank], signal.SIGKILL)
            self.end_of(run, ranks, 1, f"rank {rank} was killed by signal 9", "the last checkpoint is")
            self.goes_on([1, 2, 4][i % 3])

    @unittest.skipUnless(HAS_MPI, WITHOUT_MPI)
    def test_one_of_mpirun_that_is_killed_ends_the_run_which_goes_on(self):
        for _ in range(ROUNDS // 2):
            run, ranks = self.run_on_four(before=[*MPIRUN, "-n", "4"], variable="OMPI_COMM_WORLD_RANK", **AS_ROOT)
            rank = random.randrange(4)
            os.kill(ranks[rank], signal.SIGKILL)
            self.end_of(run, ranks, None, f"rank {rank} disappeared in step", "the last checkpoint is")
            left = self.out
            for number in [1, 2, 4] if NIGHTLY else [2]:
                self.out = left.with_name(f"{left.name}-on-{number}")
                shutil.copytree(left, self.out, symlinks=True)
                self.goes_on(number)

    def test_one_that_hangs_ends_the_run_which_goes_on(self):
        for i in range(ROUNDS):
            run, ranks = self.own_run("--rank-timeout", 3)
            rank = random.randrange(4)
            os.kill(ranks[rank], signal.SIGSTOP)
            self.end_of(run, ranks, 1, f"rank {rank} did not come to the exchange", "the last checkpoint is",
                        within=20)
            self.goes_on([2, 4, 1][i % 3])

    def test_a_signal_saves_after_the_same_step_of_all(self):
        for i in range(ROUNDS):
            run, ranks = self.own_run()
            to = random.choice([run.pid, *ranks.values()])
            number = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1][i % 4]
            os.kill(to, number)
            self.end_of(run, ranks, 130)
            self.assertEqual(json.loads((self.out / "latest" / "run.json").read_text())["step"],
                             last_step(self.out.with_suffix(".log")))
            self.goes_on([4, 1, 2][i % 3])

    def test_save_when_the_program_that_started_them_is_killed(self):
        run, ranks = self.own_run()
        run.kill()
        self.end_of(run, ranks, -signal.SIGKILL)
        self.goes_on(2)

    def test_data_that_one_cannot_read_any_more_ends_the_run_which_goes_on(self):
        here = "/proc/self/cwd"  # of each its own
        self.text = f"{here}/text.txt"
        for ends, more in {"text.txt": [], "val.txt": ["--val-data", f"{here}/val.txt", "--eval-every", 2]}.items():
            self.out = self.folder / f"run-{ends}"
            log = self.out.with_suffix(".log")
            words = self.words(self.out, "--accumulate", 3, *more, "--log", log, steps=10**6)
            runs = []
            for rank in range(3):
                place = self.folder / f"{ends}-{rank}"
                place.mkdir()
                for name in ["text.txt", "val.txt"]:
                    (place / name).write_text(PROSE)
                of_rank = {"RANK": str(rank), "WORLD_SIZE": "3", "SPOOL_MEETING": str(self.out)}
                runs.append(self.start(words, cwd=place, **of_rank))
            while runs[0].poll() is None and last_step(log) < 3:
                time.sleep(0.002)
            os.truncate(self.folder / f"{ends}-2" / ends, 10)
            self.refused_once(runs, 1, f"spool: rank 2: {here}/{ends}: had", "saved after step", "--resume")
            stored = json.loads((self.out / "latest" / "run.json").read_text())
            self.assertEqual(stored["step"], last_step(log))

    def test_a_signal_ends_an_evaluation_of_all(self):
        self.text.write_text(PROSE * 200)
        for to in [0, 2]:
            self.out = self.folder / f"to-{to}"
            words = self.words(self.out, "--accumulate", 3, "--eval-every", 0, "--final-eval", "all", steps=2)
            runs = self.launched("torchrun", 3, words)
            while runs[0].poll() is None and not (self.out / "latest").exists():
                time.sleep(0.002)
            time.sleep(0.3)
            begin = time.monotonic()
            os.kill(runs[to].pid, signal.SIGTERM)
            self.assertEqual([self.ended(run) for run in runs], [(130, [])] * 3)
            self.assertLess(time.monotonic() - begin, 5)

    def refused_once(self, runs, code, *words):
        """One of the processes says one sentence, the others end silently."""
        ends = [self.ended(run) for run in runs]
        said = [line for _, lines in ends for line in lines]
        self.assertEqual(len(said), 1, said)
        for word in words:
            self.assertIn(word, said[0])
        self.assertEqual({end[0] for end in ends}, {code})

    def test_one_sentence_says_why_a_run_does_not_begin(self):
        good = self.words(self.out)
        nowhere = self.words(self.out, "--accumulate", 3, "--data", self.folder / "nowhere.txt")
        cases = [
            (nowhere, 1, "nowhere.txt: there is no such file"),
            ([*good, "--bad"], 2, "--bad"),
            ([*good, "--ranks", "2"], 1, "started 3 ranks, and the run is to have 2"),
            ([*good, "--mesh", "data=2"], 1, "started 3 ranks, and the run is to have 2"),
            (good, 1, "1, 2 or 4 ranks can compute it, not 3"),
            ([*good, "--ranks-as", "threads"], 1, "--ranks-as threads"),
            (["info", self.folder], 1, "spool info runs in one process"),
            (good, 1, "MASTER_PORT is set, and MASTER_ADDR is not"),
        ]
        # Each has a meeting of its own, as they all run at once.
        started = []
        for i, (words, _, said) in enumerate(cases):
            variables = {"SPOOL_MEETING": f"{self.out}-{i}"}
            variables |= {"MASTER_PORT": "29500"} if "MASTER_PORT" in said else {}
            started.append(self.launched("torchrun", 3, words, lambda _, v=variables: v))
        for runs, (_, code, words) in zip(started, cases):
            self.refused_once(runs, code, words)

    def test_one_that_alone_cannot_begin_says_why(self):
        good = self.words(self.out)
        bad = {"--bad": [*good, "--bad"], "trian": ["trian", *good[1:]], "spool info": ["info", str(self.folder)],
               "--accumulate": self.words(self.out, "--accumulate", "x")}
        # Each has a meeting of its own, as they all run at once.
        started = {}
        for rank in [2, 0]:
            for i, (word, words) in enumerate(bad.items()):
                of_job = {"SPOOL_MEETING": f"{self.out}-{rank}-{i}", "WORLD_SIZE": "3"}
                started[rank, word] = [self.start(words if r == rank else good, RANK=str(r), **of_job)
                                       for r in range(3)]
        for (rank, word), runs in started.items():
            ends = [self.ended(run, within=10) for run in runs]
            self.assertEqual([bool(code) for code, _ in ends], [True] * 3, ends)
            self.assertEqual([len(said) for _, said in ends], [1, 0, 0], ends)
            self.assertTrue(ends[0][1][0].startswith("spool: rank 2: " if rank else "spool: "), ends)
            self.assertIn(word, ends[0][1][0])

    def test_one_that_rank_0_does_not_hear_says_why_itself(self):
        good, nowhere = self.words(self.out), self.words(self.out, "--model", self.folder / "nowhere")
        other = {"WORLD_SIZE": "3"}
        runs = [self.start(words, RANK="2", SPOOL_MEETING=f"{self.out}-{i}", **(other | more)) for i, (words, more) in
                enumerate([([*good, "--bad"], {}), (nowhere, {}), (good, {"MASTER_PORT": "29500"})])]
        for run, word in zip(runs, ["--bad", "nowhere", "MASTER_ADDR"]):
            code, said = self.ended(run, within=10)
            self.assertGreater(code, 0)
            self.assertEqual(len(said), 1, said)
            self.assertTrue(said[0].startswith("spool: rank 2: "), said)
            self.assertIn(word, said[0])

    def test_that_differ_are_named(self):
        good = self.words(self.out)

        def other(words=None, **variables):
            return [self.start(good, RANK="0", WORLD_SIZE="2"),
                    self.start(words or good, RANK="1", WORLD_SIZE="2", **variables)]

        self.refused_once(other(self.words(self.out, "--seed", 7)), 1, "rank 0 and rank 1 differ in settings", "7")
        self.refused_once(other(SPOOL_URING="0"), 1, "differ in environment SPOOL_URING")
        self.refused_once(other([*good, "--threads", "2"]), 1, "rank 0 and rank 1 differ in threads")
        self.refused_once(other([*good, "--zero", "1"]), 1, "differ in zero: 2 and 1")
        nowhere = self.words(self.out, "--data", self.folder / "nowhere.txt")
        self.refused_once(other(nowhere), 1, "rank 1: ", "nowhere.txt")

    def test_on_gpus_that_there_are_not_are_refused(self):
        without_cuda = "cuda: not in this build" in spool("--version")[1]
        missing = "64 ranks on one machine need as many GPUs, and it has|there is no (NVIDIA driver|CUDA device) here"
        result = self.train("--accumulate", 64, "--ranks", 64, "--device", "cuda")
        self.refused(result, 1, "the device cpu")
        self.assertRegex(result[2], "this build has no CUDA backend" if without_cuda else missing)

    def test_of_no_launcher_are_refused(self):
        self.refused(self.train("--meet", "node:1234"), 1, "--meet", "launcher")
        self.refused(self.train("--ranks-as", "processes"), 1, "--ranks-as", "--ranks")
        self.refused(self.train("--ranks", 2, "--ranks-as", "fibres"), 2, "threads", "processes")
        run = self.start(self.words(self.out), RANK="1")
        code, said = self.ended(run)
        self.assertEqual(code, 1)
        self.assertIn("RANK is set, and WORLD_SIZE is not", said[0])


if __name__ == "__main__":
    main()
