"""The files of a checkpoint belong together, and a full disk loses no more than it must.

checkpoints_command_test.py PROGRAM [CASE...]
"""

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

from commands import (
    PROGRAM,
    SHAPE,
    Files,
    Folder,
    as_of_an_earlier_version,
    main,
    metadata,
    set_metadata,
    spool,
)

FILES = ["model.safetensors", "optimizer.safetensors", "run.json"]


class Checkpoints(Files):
    def resume(self, *words):
        return spool("train", "--resume", "--out", self.out, *words)

    def run_json(self, run=None):
        return json.loads(((run or self.out) / "latest" / "run.json").read_text())

    def tensors(self, run):
        """Digests of the two files of tensors."""
        return [hashlib.sha256((run / "latest" / name).read_bytes()).hexdigest() for name in FILES[:2]]

    def trained_to(self, steps, *words, out=None, data=None):
        """A run with checkpoints after steps 2, 4, ...; returns its directory."""
        out = out or self.out
        words = ["--checkpoint-every", 2, "--keep-checkpoints", 9, *words]
        status, _, errors = self.train(*words, out=out, data=data, steps=steps)
        self.assertEqual(status, 0, errors)
        return out


class BelongTogether(Checkpoints):
    def test_each_file_holds_the_step_and_the_run(self):
        run = self.trained_to(4)
        for step in [2, 4]:
            checkpoint = run / f"step-{step:06}"
            stored = json.loads((checkpoint / "run.json").read_text())
            self.assertEqual(stored["step"], step)
            self.assertRegex(stored["run"], "^[0-9a-f]{16}$")
            self.assertNotIn("initial_weights", stored)
            mark = {"spool_run": stored["run"], "spool_step": str(step)}
            self.assertEqual(metadata(checkpoint / "optimizer.safetensors"), mark)
            self.assertEqual(metadata(checkpoint / "model.safetensors"), mark | {"format": "pt"})

    def test_equal_runs_write_equal_files(self):
        one = self.trained_to(4, "--threads", 1)
        moved = self.folder / "moved.txt"
        shutil.copy(self.text, moved)
        words = ["--threads", 3, "--recompute", "block"]
        other = self.trained_to(4, *words, out=self.folder / "other", data=moved)
        self.assertEqual(self.tensors(other), self.tensors(one))
        self.assertEqual(self.run_json(other)["run"], self.run_json(one)["run"])
        for i, more in enumerate([["--seed", 7], ["--lr", 0.001], ["--data", self.merges]]):
            third = self.trained_to(4, *more, out=self.folder / str(i))
            self.assertNotEqual(self.run_json(third)["run"], self.run_json(one)["run"], more)

    def test_weights_that_a_run_begins_from_are_told_by_their_values(self):
        weights = self.trained(steps=3).resolve()
        forms = [weights, self.folder / "a.bin", self.folder / "copy"]
        self.done("convert", weights, forms[1])
        shutil.copytree(weights, forms[2])
        tuned = []
        for i, form in enumerate(forms):
            tuned.append(self.folder / f"tuned{i}")
            words = ["--model", form, "--merges", self.merges, "--data", self.text, "--out", tuned[-1]]
            self.done("train", *words, "--batch", 2, "--steps", 2, "--dtype", "bf16")
            self.assertEqual(self.tensors(tuned[-1]), self.tensors(tuned[0]), form)
        first = self.run_json(tuned[0])
        self.assertRegex(first["initial_weights"], "^[0-9a-f]{16}$")
        self.assertEqual(self.run_json(tuned[1])["initial_weights"], first["initial_weights"])
        # A resumed run keeps them, without their file.
        shutil.rmtree(forms[2])
        self.done("train", "--resume", "--out", tuned[2], "--steps", 4)
        self.assertEqual(self.run_json(tuned[2])["initial_weights"], first["initial_weights"])
        self.assertNotEqual(self.run_json(tuned[2])["run"], first["run"])  # which is longer
        # Weights that differ in one bit make another run, even under the same name.
        file = forms[0] / "model.safetensors"
        whole = bytearray(file.read_bytes())
        whole[-2] ^= 1
        file.write_bytes(whole)
        words = ["--model", forms[0], "--data", self.text, "--out", self.folder / "changed"]
        self.done("train", *words, "--batch", 2, "--steps", 2, "--dtype", "bf16")
        self.assertNotEqual(self.run_json(self.folder / "changed")["run"], first["run"])

    def test_a_file_of_another_checkpoint_is_refused_by_its_name(self):
        run = self.trained_to(6)
        twin = self.trained_to(6, "--seed", 5, out=self.folder / "twin")
        latest, sources = run / "latest", {
            "is of step 4, and the other files of the checkpoint are of step 6": run / "step-000004",
            "is of step 6 of another run, and": twin / "step-000006",
            "is of step 4 of another run, and": twin / "step-000004",
        }  # fmt: skip
        for name in FILES:
            whole = (latest / name).read_bytes()
            for words, source in sources.items():
                shutil.copy(source / name, latest / name)
                self.refused(self.resume("--steps", 8), 1, f"step-000006/{name}: {words}", "latest")
            (latest / name).write_bytes(whole)
        self.assertEqual(self.resume("--steps", 8)[0], 0)

    def test_three_files_of_three_checkpoints_are_all_named(self):
        run = self.trained_to(6)
        for step, name in zip([2, 4], FILES):
            shutil.copy(run / f"step-{step:06}" / name, run / "step-000006" / name)
        every = ["model.safetensors of step 2", "optimizer.safetensors of step 4", "run.json of step 6"]
        self.refused(self.resume(), 1, "step-000006: its files are of three checkpoints", *every)

    def test_a_longer_run_does_not_mix_with_what_it_was(self):
        run = self.trained_to(4)
        before = self.folder / "before"
        shutil.copytree(run / "step-000004", before)
        (run / "latest").unlink()
        (run / "latest").symlink_to("step-000002")
        self.assertEqual(self.resume("--steps", 6, "--checkpoint-every", 2)[0], 0)
        shutil.copy(before / "optimizer.safetensors", run / "step-000004")
        (run / "latest").unlink()
        (run / "latest").symlink_to("step-000004")
        self.refused(self.resume(), 1, "optimizer.safetensors: is of step 4 of another run")

    def test_settings_edited_by_hand_are_refused_and_paths_are_not(self):
        run = self.trained_to(2)
        file = run / "latest" / "run.json"
        stored = self.run_json()
        settings = stored["configuration"]
        whole = metadata(run / "latest" / "optimizer.safetensors")
        for edited in [
            {"configuration": settings | {"lr": 0.5}},
            {"configuration": settings | {"steps": 9}},
            {"configuration": {k: v for k, v in settings.items() if k != "dropout"}},
            {"configuration": settings | {"beta3": 1}},
            {"data_fingerprint": 1},
            {"initial_weights": "0" * 16},
        ]:
            file.write_text(json.dumps(stored | edited))
            self.refused(self.resume(), 1, "run.json: its configuration, data_finger", "--model")
        for wrong, words in [
            ({"configuration": 7}, "configuration: is not an object"),
            ({"initial_weights": "xyz"}, "initial_weights"),
            ({"run": 7}, "field run"),
            ({"step": 3}, "run.json: is of step 3, and the other files of the checkpoint are of step 2"),
            ({"vocabulary": {"merges.txt": 1}}, "merges.txt"),
        ]:
            file.write_text(json.dumps(stored | wrong))
            self.refused(self.resume(), 1, words)
        file.write_text(json.dumps(stored))
        for mark in [{"spool_step": "2"}, {"spool_run": "a", "spool_step": "2x"}]:
            set_metadata(run / "latest" / "optimizer.safetensors", mark)
            self.refused(self.resume(), 1, "optimizer.safetensors: its metadata does not name")
        set_metadata(run / "latest" / "optimizer.safetensors", whole)
        moved = self.folder / "moved.txt"
        self.text.rename(moved)
        file.write_text(json.dumps(stored | {"configuration": settings | {"data": [str(moved)]}}))
        self.assertEqual(self.resume("--steps", 3)[0], 0)

    def test_a_checkpoint_of_an_earlier_version_goes_on_unmarked_ones_do_not_mix(self):
        whole = self.trained_to(6, out=self.folder / "whole")
        run = self.trained_to(6)
        (run / "latest").unlink()
        (run / "latest").symlink_to("step-000004")
        marked = self.folder / "marked"
        shutil.copytree(run / "step-000004", marked)
        as_of_an_earlier_version(run / "step-000004")
        unmarked = self.folder / "unmarked"
        shutil.copytree(run / "step-000004", unmarked)
        for name in FILES:
            for one, other, words in [
                (unmarked, marked, "is of step 4, and the other files of the checkpoint are of no step"),
                (marked, unmarked, "is of no step, as of older versions, and the other files of the"),
            ]:
                shutil.copytree(one, run / "step-000004", dirs_exist_ok=True)
                shutil.copy(other / name, run / "step-000004" / name)
                self.refused(self.resume(), 1, f"step-000004/{name}: {words}")
        shutil.copytree(unmarked, run / "step-000004", dirs_exist_ok=True)
        self.assertEqual(self.resume()[0], 0)
        self.assertEqual(self.tensors(run), self.tensors(whole))

    def test_a_model_or_a_vocabulary_of_another_run_is_refused(self):
        checkpoint = self.trained("--checkpoint-every", 2)
        config = checkpoint / "config.json"
        whole = config.read_text()
        config.write_text(whole.replace('"n_head": 2', '"n_head": 4'))
        self.assertNotEqual(config.read_text(), whole)
        self.refused(self.resume("--steps", 4), 1, "config.json: describes another model")
        config.write_text(whole)
        for name in ["merges.txt", "vocab.json"]:
            whole = (checkpoint / name).read_text()
            (checkpoint / name).write_text(whole.replace("e", "f"))
            self.refused(self.resume("--steps", 4), 1, f"{name}: is not the file that the checkpoint")
            (checkpoint / name).write_text(whole)
        (checkpoint / "vocab.json").unlink()
        self.refused(self.resume("--steps", 4), 1, "vocab.json: cannot be read")
        (checkpoint / "merges.txt").unlink()
        self.assertEqual(self.resume("--steps", 4, "--merges", self.merges)[0], 0)

    def test_its_model_is_a_model_like_any_other(self):
        checkpoint = self.trained()
        set_metadata(checkpoint / "model.safetensors", {"format": "pt", "spool_run": "?", "spool_step": "x"})
        self.assertIn("cat", self.done("generate", "--model", checkpoint, "--prompt", "cat", "--tokens", 5))
        self.done("eval", "--model", checkpoint, "--data", self.text)
        self.done("convert", checkpoint, self.folder / "converted")
        converted = self.folder / "converted" / "model.safetensors"
        self.assertEqual(metadata(converted), {"format": "pt"})


class Disks(Checkpoints):
    def small_files(self, most):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

        return limit

    def endless(self, *words, out=None, every=5, **more):
        fixed = ["--data", self.text, "--out", out or self.out, "--steps", 1000000]
        fixed += ["--checkpoint-every", every, "--eval-every", 0]
        run = subprocess.Popen(
            [PROGRAM, "train", *SHAPE, *map(str, [*fixed, *words])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
            **more,
        )
        self.addCleanup(run.communicate)
        self.addCleanup(run.kill)
        return run

    def line_with(self, run, words):
        """The line of the warning on standard error."""
        for line in run.stderr:
            if words in line:
                return line
        self.fail(f"the run ended without saying {words}: {run.stdout.read()}")

    def let_write(self, run, most):
        resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    def wait_until(self, condition, run):
        while not condition():
            if run.poll() is not None:
                self.fail(run.stderr.read())
            time.sleep(0.01)

    def wait_for_a_checkpoint_after(self, run, before):
        latest = self.out / "latest"
        self.wait_until(lambda: latest.exists() and os.readlink(latest) != before, run)

    def stop(self, run):
        run.send_signal(signal.SIGINT)
        return (*run.communicate(timeout=100), run.returncode)

    def test_what_does_not_fit_is_said_and_tried_again(self):
        run = self.endless(preexec_fn=self.small_files(20000))
        line = self.line_with(run, "no checkpoint of step 5: ")
        for words in ["safetensors: cannot be written: File too large", "has no checkpoint yet",
                      "training goes on, and the next is tried at step 10"]:  # fmt: skip
            self.assertIn(words, line)
        self.assertFalse((self.out / "latest").exists())
        self.let_write(run, resource.RLIM_INFINITY)
        self.wait_for_a_checkpoint_after(run, None)
        before = os.readlink(self.out / "latest")
        self.let_write(run, 20000)
        self.assertIn("no checkpoint of step ", self.line_with(run, "the latest checkpoint is "))
        self.let_write(run, resource.RLIM_INFINITY)
        self.wait_for_a_checkpoint_after(run, before)
        _, errors, status = self.stop(run)
        self.assertEqual(status, 130, errors)
        self.assertEqual(self.said(errors), [])
        self.assertGreater(self.run_json()["step"], 10)

    def test_every_time_at_which_it_is_tried_again_is_said(self):
        best = ["--keep-best", "--eval-every", 1000]
        for words, every, when in [
            (["--checkpoint-minutes", 90], 5, "at step 10 or in 90 minutes, whichever is first"),
            (best, 5, "at step 10 or after a better evaluation, whichever is first"),
            (["--checkpoint-minutes", 1e-9, *best], 0, "at step 1000000 or in 1e-09 minutes or after a better"),
        ]:
            out = self.folder / str(len(when))
            run = self.endless(*words, out=out, every=every, preexec_fn=self.small_files(20000))
            self.assertIn(f"the next is tried {when}", self.line_with(run, "no checkpoint of step "))
            run.kill()

    def test_an_evaluation_that_cannot_be_stored_is_said_and_made_again(self):
        self.assertEqual(self.train("--eval-every", 0, steps=4)[0], 0)
        before = self.run_json()
        words = ["--resume", "--steps", 10**6, "--eval-every", 4, "--checkpoint-every", 0]
        log = self.folder / "log"
        command = [PROGRAM, "train", "--out", self.out, *words]
        run = subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               errors="replace", preexec_fn=self.small_files(1000))  # fmt: skip
        self.addCleanup(run.communicate)
        self.addCleanup(run.kill)
        line = self.line_with(run, "the evaluation after step 4 is not stored: ")
        self.assertIn("cannot be written: File too large; training goes on", line)
        run.kill()
        self.assertEqual(self.run_json(), before)
        run.communicate()
        status, _, errors = spool(*command[1:4], "--resume", "--steps", 6, "--eval-every", 4, "--log", log)
        self.assertEqual(status, 0, errors)
        evaluated = [line["step"] for line in self.log(log) if "val_loss" in line]
        self.assertEqual(evaluated, [4, 6])
        self.assertEqual(self.run_json()["evaluations"]["last"]["step"], 4)

    def test_the_last_that_does_not_fit_ends_the_run(self):
        self.assertEqual(self.train(steps=2)[0], 0)
        stopped = self.folder / "stopped"
        run = self.endless(out=stopped, preexec_fn=self.small_files(20000))
        self.line_with(run, "no checkpoint of step 5: ")
        _, errors, status = self.stop(run)
        self.assertEqual(status, 1)
        self.assertIn("File too large; the run has no checkpoint yet", errors)
        self.assertEqual([p.name for p in stopped.iterdir()], [".lock"])
        # The evaluation at the end of a run, after an earlier one that is no better.
        words = ["--resume", "--out", self.out, "--steps", 4, "--checkpoint-every", 1]
        status, printed, errors = spool("train", *words, preexec_fn=self.small_files(20000))
        self.assertEqual(status, 1)
        self.assertIn("no checkpoint of step 3: ", errors)
        self.assertNotIn("no checkpoint", printed)
        self.assertIn(f"File too large; the latest checkpoint is {self.out}/step-000002", errors)
        self.assertEqual(self.run_json()["step"], 2)
        self.assertEqual(self.resume("--steps", 4)[0], 0)

    def test_a_full_disk_is_told_with_what_a_checkpoint_takes(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "spool", disk]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            raise unittest.SkipTest("no small disk can be mounted here")
        self.addCleanup(subprocess.run, ["umount", disk])
        words = ["--checkpoint-every", 2]
        status, printed, errors = self.train(*words, out=disk / "run", steps=4)
        self.assertEqual(status, 1)
        self.assertNotIn("No space left", printed)
        for line in self.said(errors):
            self.assertRegex(line, r"No space left on device; a checkpoint takes \d+ KiB, and [\d.]+ KiB are free")
        self.assertEqual(len(self.said(errors)), 2, errors)
        self.assertEqual([p.name for p in (disk / "run").iterdir()], [".lock"])

    def test_a_directory_that_goes_away_is_said_and_may_come_back(self):
        run = self.endless()
        self.wait_for_a_checkpoint_after(run, None)
        aside = self.folder / "aside"
        self.out.rename(aside)
        # A checkpoint that was being written says something else.
        line = self.line_with(run, "No such file or directory; the run has no checkpoint yet")
        self.assertIn("no checkpoint of step ", line)
        aside.rename(self.out)
        self.wait_for_a_checkpoint_after(run, os.readlink(self.out / "latest"))
        _, errors, status = self.stop(run)
        self.assertEqual(status, 130, errors)

    def test_a_log_that_cannot_be_written_is_said_once(self):
        log = self.folder / "log"
        run = self.endless("--log", log, every=100, preexec_fn=self.small_files(150000))
        line = self.line_with(run, "log: cannot be written: File too large; training goes on")
        self.wait_until(lambda: log.read_bytes().endswith(b"}\n"), run)  # each try is cut back
        full = log.read_bytes().rpartition(b"\n")[0] + b"\n"
        saved = os.readlink(self.out / "latest")
        self.wait_for_a_checkpoint_after(run, saved)  # a hundred steps later
        self.let_write(run, resource.RLIM_INFINITY)
        # A line of which a part was written before is cut back.
        self.wait_until(lambda: (now := log.read_bytes()).endswith(b"}\n") and len(now) > len(full), run)
        printed, errors, status = self.stop(run)
        self.assertEqual(status, 130, errors)
        self.assertNotIn("cannot be written", printed)
        steps = sorted(self.losses(log))
        self.assertEqual(steps[-1], self.run_json()["step"])
        self.assertLess(len(steps), steps[-1])
        self.assertTrue(log.read_bytes().startswith(full))
        self.refused(self.train("--log", "/dev/full", out=self.folder / "no"), 1, "/dev/full: cannot be written: No space")


if __name__ == "__main__":
    main()
