"""Runs that are interrupted, killed, resumed, or lose their terminal.

resume_command_test.py PROGRAM [CASE...]
"""

import fcntl
import json
import os
import pathlib
import pty
import signal
import subprocess
import tempfile
import termios
import time
import unittest

from commands import PROGRAM, PROSE, SHAPE, Folder, as_of_an_earlier_version, last_step, main, spool


class Signals(Folder):
    def test_interrupt_writes_a_checkpoint(self):
        words = [PROGRAM, "train", *SHAPE, "--data", self.text, "--out", self.out]
        run = subprocess.Popen([*words, "--steps", "1000000"], stdout=subprocess.PIPE, errors="replace")
        for line in run.stdout:
            if line.startswith("step "):
                break
        run.send_signal(signal.SIGINT)
        rest = run.communicate(timeout=60)[0]
        self.assertEqual(run.returncode, 130)
        self.assertIn("--resume", rest)
        self.assertTrue((self.out / "latest" / "run.json").exists())

    def endless(self, **more):
        words = [PROGRAM, "train", *SHAPE, "--data", self.text, "--out", self.out]
        words += ["--checkpoint-every", "0", "--steps", "1000000"]
        run = subprocess.Popen(words, stderr=subprocess.PIPE, errors="replace", **more)
        self.addCleanup(run.kill)
        return run

    def test_a_terminal_that_goes_away_ends_a_run_with_a_checkpoint(self):
        main_end, terminal = pty.openpty()

        def in_session():
            os.setsid()
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)

        run = self.endless(stdin=terminal, stdout=terminal, preexec_fn=in_session)
        os.close(terminal)
        seen = b""
        while b"step 1/" not in seen:
            seen += os.read(main_end, 1000)
        os.close(main_end)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130)
        self.assertTrue((self.out / "latest" / "run.json").exists())

    def test_a_hangup_that_is_ignored_does_not_stop_a_run(self):
        log = self.folder / "log"
        words = ["--steps", "300", "--log", log, "--checkpoint-every", "0"]
        run = subprocess.Popen(
            ["nohup", PROGRAM, "train", *SHAPE, "--data", self.text, "--out", self.out, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while last_step(log) < 3:
            time.sleep(0.01)
        run.send_signal(signal.SIGHUP)
        self.assertEqual(run.wait(timeout=100), 0)
        self.assertEqual(last_step(log), 300)

    def test_a_reader_that_goes_away_does_not_end_a_run(self):
        log = self.folder / "log"
        words = ["--steps", "30", "--log", log]
        run = subprocess.Popen(
            [PROGRAM, "train", *SHAPE, "--data", self.text, "--out", self.out, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        run.stdout.readline()
        run.stdout.close()
        with run.stderr:
            errors = run.stderr.read()
        self.assertEqual(run.wait(timeout=100), 0, errors)
        self.assertEqual(last_step(log), 30)


class Resuming(Folder):
    def test_does_not_overwrite_a_run(self):
        self.assertEqual(self.train()[0], 0)
        self.refused(self.train(), 1, "--resume")

    def test_refuses_to_resume_with_other_settings_or_data(self):
        self.assertEqual(self.train("--lr", 0.01)[0], 0)
        resume = ["train", "--out", self.out, "--resume"]
        self.refused(spool(*resume, "--lr", 0.02), 1, "--lr", "0.01")
        self.refused(spool(*resume, "--steps", 2), 1, "--steps", "it has 3")
        self.refused(spool(*resume, "--model", "gpt2-124m"), 1, "gpt2-124m")
        self.refused(spool(*resume, "--chunk-mlp", 8), 1, "--chunk-mlp", "it has 0")
        self.assertEqual(spool(*resume, "--lr", 0.01)[0], 0)
        self.text.write_text(PROSE.replace("little", "a lot!"))
        self.refused(spool(*resume), 1, "other data")

    def test_a_finished_run_says_so_and_may_become_longer(self):
        self.assertEqual(self.train()[0], 0)
        resume = ["train", "--out", self.out, "--resume"]
        weights = self.weights(self.out)
        status, printed, errors = spool(*resume)
        self.assertEqual(status, 0, errors)
        self.assertIn("the run is finished: its 3 steps are done", printed)
        self.assertNotIn("validation loss", printed)
        self.assertEqual(self.weights(self.out), weights)
        log = self.folder / "log"
        status, printed, errors = spool(*resume, "--steps", 7, "--log", log)
        self.assertEqual(status, 0, errors)
        self.assertIn("the run now has 7 steps instead of 3", printed)
        self.assertEqual(sorted(self.losses(log)), [4, 5, 6, 7])
        self.assertEqual(self.log(log)[0]["configuration"]["steps"], 7)
        self.assertIn("its 7 steps are done", spool(*resume)[1])
        for words in [["--resume", self.out], [f"--resume={self.out}"]]:  # without --out
            self.assertIn("its 7 steps are done", spool("train", *words)[1])
        none = self.folder / "none"
        self.refused(spool("train", "--resume", none), 1, f"{none}: there is no checkpoint to resume")
        stored = as_of_an_earlier_version(self.out / "latest")
        stored.write_text(stored.read_text().replace('"step": 7', '"step": 8'))
        self.refused(spool(*resume), 1, "run.json", "beyond the 7 steps")

    def test_a_checkpoint_of_a_step_with_other_ops_is_resumed_and_said_once(self):
        self.assertEqual(self.train()[0], 0)
        resume = ["train", "--out", self.out, "--resume"]
        said = "another version of Spool wrote this checkpoint"
        self.assertNotIn(said, spool(*resume, "--steps", 4)[1])
        file = self.out / "latest" / "run.json"
        run = json.loads(file.read_text())
        for tape in (None, "0123456789abcdef"):  # of a version that wrote none, and of another one
            run["tape"] = tape
            if tape is None:
                del run["tape"]
            file.write_text(json.dumps(run))
            self.assertNotIn(said, spool(*resume)[1])  # the run is finished
        status, printed, errors = spool(*resume, "--steps", 5)
        self.assertEqual(status, 0, errors)
        self.assertIn(said, printed)
        self.assertNotIn(said, spool(*resume, "--steps", 6)[1])
        run["tape"] = "none"
        (self.out / "latest" / "run.json").write_text(json.dumps(run))
        self.refused(spool(*resume), 1, "run.json", "tape")

    def test_keeps_the_rows_of_its_evaluations(self):
        self.assertEqual(self.train()[0], 0)
        resume = ["train", "--out", self.out, "--resume"]

        def rows_of_run():
            return json.loads((self.out / "latest" / "run.json").read_text())["evaluation_rows"]

        def resumed_with(rows, steps):
            file = self.out / "latest" / "run.json"
            run = json.loads(file.read_text())
            run["evaluation_rows"] = rows
            if rows is None:  # of an earlier version
                del run["evaluation_rows"]
            file.write_text(json.dumps(run))
            return spool(*resume, "--steps", steps)

        self.assertEqual(rows_of_run(), {"loss": 0, "mlp": 0})
        few = {"loss": 8, "mlp": 16}
        status, _, errors = resumed_with(few, 4)
        self.assertEqual(status, 0, errors)
        self.assertEqual(rows_of_run(), few)
        status, _, errors = resumed_with(None, 5)
        self.assertEqual(status, 0, errors)
        self.assertEqual(rows_of_run(), {"loss": 0, "mlp": 0})
        for rows in ([], 7, {"loss": 1}, {"loss": -1, "mlp": 0}, {"loss": 1, "mlp": 2**31},
                     {"loss": "8", "mlp": 16}, {"loss": 1.5, "mlp": 0}):
            self.refused(resumed_with(rows, 6), 1, "run.json", "evaluation_rows")

    def test_a_log_keeps_what_was_done_before_a_run_resumes(self):
        self.goes_on_in_a_log_of(self.folder)

    @unittest.skipUnless(os.access("/dev/shm", os.W_OK), "there is no folder /dev/shm for files")
    def test_a_log_below_dev_is_a_file_as_others(self):
        with tempfile.TemporaryDirectory(prefix="spool-", dir="/dev/shm") as folder:
            self.goes_on_in_a_log_of(pathlib.Path(folder))

    def goes_on_in_a_log_of(self, folder):
        log = folder / "log"

        def entries():
            return [(e["step"], "loss" in e) for e in self.log(log) if "loss" in e or "val_loss" in e]

        words = ["--eval-every", 2, "--eval-batches", 999]  # all of the validation data
        self.assertEqual(self.train("--log", log, *words, steps=5)[0], 0)
        before = entries()
        self.assertEqual(len(before), 8)
        self.assertTrue(any(e.get("whole") and e["step"] == 2 for e in self.log(log)))
        resume = ["train", "--out", self.out, "--resume", "--log", log]
        self.assertEqual(spool(*resume)[0], 0)
        self.assertEqual(entries(), before)
        self.assertEqual(spool(*resume, "--steps", 6)[0], 0)
        self.assertEqual(entries(), [*before, (6, True), (6, False)])
        self.assertEqual(["format" in line for line in self.log(log)].count(True), 1)

    def test_resumes_with_data_that_moved(self):
        words = ["--checkpoint-every", 2, "--keep-checkpoints", 9]
        self.assertEqual(self.train(*words, steps=4)[0], 0)
        weights = self.weights(self.out)
        latest = self.out / "latest"
        latest.unlink()
        latest.symlink_to("step-000002")
        moved = self.folder / "moved.txt"
        self.text.rename(moved)
        resume = ["train", "--out", self.out, "--resume"]
        self.refused(spool(*resume), 1, "text.txt", "--data")
        other = self.folder / "other.txt"
        other.write_text(PROSE.replace("little", "a lot!"))
        self.refused(spool(*resume, "--data", other), 1, "other data")
        status, _, errors = spool(*resume, "--data", moved)
        self.assertEqual(status, 0, errors)
        self.assertEqual(self.weights(self.out), weights)

    def test_refuses_names_that_a_checkpoint_cannot_store(self):
        name = os.fsencode(self.folder) + b"/text\xff.txt"
        with open(name, "w") as file:
            file.write(PROSE)
        words = [PROGRAM, "train", *SHAPE, "--out", str(self.out)]
        for more in [[b"--data", name], [b"--data", os.fsencode(self.text), b"--val-data", name]]:
            done = subprocess.run([*words, *more], capture_output=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"is not UTF-8", done.stderr)
            self.assertFalse(self.out.exists())

    def test_a_plan_refuses_a_name_that_its_report_cannot_store(self):
        self.assertEqual(self.train()[0], 0)
        name = os.fsencode(self.folder) + b"/model\xff"
        os.symlink(self.out / "latest", name)
        words = [PROGRAM, "plan", "--model", name, "--seq", "16", "--batch", "2"]
        for more in [["--json", "-"], ["--json", "j"], ["--report", "page.html"]]:
            never = ["--memory", "1kB"]  # which planning would refuse
            done = subprocess.run([*words, *more, *never], capture_output=True, cwd=self.folder)
            self.assertEqual((done.returncode, done.stdout), (1, b""), done.stderr)
            self.assertIn(b"is not UTF-8", done.stderr)
            self.assertIn(b"--model", done.stderr)
        done = subprocess.run(words, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_resumes_after_a_kill_at_a_random_moment(self):
        words = ["--dropout", 0.1, "--checkpoint-every", 7, "--eval-every", 50, "--dtype", "bf16"]
        self.killed_and_resumed(*words, steps=400)

    def test_resumes_after_a_kill_without_masters(self):
        words = ["--checkpoint-every", 7, "--dtype", "bf16", "--rounding", "stochastic"]
        self.killed_and_resumed(*words, steps=200)
        checkpoint = self.out / "latest" / "optimizer.safetensors"
        self.assertNotIn(b"master.", checkpoint.read_bytes())
        other = ["--rounding", "nearest"]
        self.refused(spool("train", "--out", self.out, "--resume", *other), 1, "--rounding")

    def test_nondeterministic_is_kept_and_said_to_change_nothing_on_a_cpu(self):
        status, printed, errors = self.train("--nondeterministic")
        self.assertEqual(status, 0, errors)
        self.assertIn("--nondeterministic changes nothing on a cpu", printed)
        deterministic = self.train(out=self.folder / "deterministic")
        self.assertNotIn("nondeterministic", deterministic[1])
        stored = json.loads((self.out / "latest" / "run.json").read_text())
        self.assertTrue(stored["configuration"]["nondeterministic"])
        resume = ["train", "--out", self.out, "--resume"]
        self.assertEqual(spool(*resume)[0], 0)
        self.assertEqual(spool(*resume, "--nondeterministic")[0], 0)
        other = ["train", "--out", self.folder / "deterministic", "--resume", "--nondeterministic"]
        self.refused(spool(*other), 1, "--nondeterministic", "it has false")

    def test_a_setting_that_an_older_run_lacks_has_its_default(self):
        self.assertEqual(self.train()[0], 0)
        stored = as_of_an_earlier_version(self.out / "latest")
        run = json.loads(stored.read_text())
        for key in ["rounding", "chunk-loss", "dropout", "nondeterministic"]:
            del run["configuration"][key]
            stored.write_text(json.dumps(run))
            self.assertEqual(spool("train", "--out", self.out, "--resume")[0], 0)
        resume = ["train", "--out", self.out, "--resume", "--dropout", 0.1]
        self.refused(spool(*resume), 1, "--dropout", "it has 0")
        del run["configuration"]["layers"]
        stored.write_text(json.dumps(run))
        self.refused(spool("train", "--out", self.out, "--resume"), 1, "layers is missing")

    def test_resumes_a_run_from_before_mlps_had_chunks(self):
        self.assertEqual(self.train()[0], 0)
        stored = as_of_an_earlier_version(self.out / "latest")
        run = json.loads(stored.read_text())
        self.assertEqual(run["configuration"].pop("chunk-mlp"), 0)
        stored.write_text(json.dumps(run))
        resume = ["train", "--out", self.out, "--resume"]
        self.refused(spool(*resume, "--chunk-mlp", 8), 1, "--chunk-mlp", "it has 0")
        self.assertEqual(spool(*resume)[0], 0)


if __name__ == "__main__":
    main()
