"""Runs whose directory has no symbolic links: copies of others, and those on a file system without links.

copied_runs_command_test.py PROGRAM [CASE...]
"""

import json
import os
import pathlib
import shutil
import subprocess

from commands import Files, main, spool

# Errors of file systems without links: exFAT has EPERM, some network shares have others.
REFUSING = """
#include <errno.h>
int symlink(const char *target, const char *path) { (void)target; (void)path; errno = %s; return -1; }
int symlinkat(const char *target, int at, const char *path) { (void)at; return symlink(target, path); }
"""


def copied(run, to, how):
    """Copies a run as some programs do: links become folders or files with their name, or are lost."""
    shutil.copytree(run, to, symlinks=how != "folders")
    for name in ["latest", "best"]:
        link = to / name
        if not link.is_symlink() or how == "links":
            continue
        target = os.readlink(link)
        link.unlink()
        if how == "names":
            link.write_text(target + "\n")
        elif how == "empty":
            link.write_text("")
    return to


class CopiedRuns(Files):
    def trained(self, *words, **more):
        fixed = ["--checkpoint-every", 2, "--eval-every", 2, "--eval-batches", 1, "--keep-best"]
        status, printed, errors = self.train(*fixed, *words, **more)
        self.assertEqual(status, 0, errors)
        return printed + errors

    def weights(self, run):
        return (run / "latest" / "model.safetensors").read_bytes()

    def checkpoints(self, run):
        return sorted(path.name for path in run.glob("step-*"))

    def test_a_copy_goes_on_as_the_run_would(self):
        self.trained(steps=6)
        names = self.checkpoints(self.out)
        self.assertEqual(names[-2:], ["step-000004", "step-000006"])
        whole = copied(self.out, self.folder / "whole", "links")
        prompt = ["--prompt", "Line", "--tokens", 4, "--temperature", 0]
        for how in ["links", "folders", "names", "empty", "lost"]:
            with self.subTest(how=how):
                run = copied(self.out, self.folder / how, how) if how != "links" else whole
                before = self.done("generate", "--model", run, *prompt)
                self.assertEqual(before, self.done("generate", "--model", self.out, *prompt))
                self.assertIn("step 6", self.done("info", run))
                said = self.done("train", "--resume", "--out", run, "--steps", 10, "--sample-every", 0)
                self.assertEqual(self.weights(run), self.weights(whole))
                best = json.loads((run / "latest" / "run.json").read_text())["evaluations"]["best"]
                self.assertEqual(os.readlink(run / "latest"), "step-000010", said)
                self.assertEqual(os.readlink(run / "best"), f"step-{best['step']:06}")
                kept = {"step-000008", "step-000010", f"step-{best['step']:06}"}
                self.assertEqual(set(self.checkpoints(run)), kept)

    def test_files_in_the_place_of_links_are_models(self):
        self.trained(steps=4)
        run = copied(self.out, self.folder / "names", "names")
        prompt = ["--prompt", "Line", "--tokens", 4, "--temperature", 0]
        for name in ["latest", "best"]:
            words = ["generate", *prompt, "--model"]
            self.assertEqual(self.done(*words, run / name), self.done(*words, self.out / name))

    def test_a_checkpoint_of_another_run_does_not_replace_one(self):
        self.trained(steps=4)
        run = copied(self.out, self.folder / "mixed", "lost")
        other = self.folder / "other"
        self.trained("--seed", 9, steps=4, out=other)
        shutil.copytree(other / "step-000004", run / "best")
        weights = run / "step-000004" / "model.safetensors"
        before = weights.read_bytes()
        result = spool("train", "--resume", "--out", run, "--steps", 6)
        self.refused(result, 1, "best", "another run's checkpoint of step 4")
        self.assertEqual(weights.read_bytes(), before)

    def test_half_a_copy_in_the_way_is_refused_before_a_step(self):
        self.trained(steps=4)
        run = copied(self.out, self.folder / "half-way", "lost")
        for marker in run.rglob(".spool"):
            marker.unlink()
        os.truncate(run / "step-000004" / "optimizer.safetensors", 100)
        log = self.folder / "resumed.jsonl"
        result = spool("train", "--resume", "--out", run, "--steps", 6, "--log", log)
        self.refused(result, 1, "step-000004", "lacks files", "from step 2")
        self.assertFalse(log.exists() and '"loss"' in log.read_text())
        shutil.rmtree(run / "step-000004")
        self.done("train", "--resume", "--out", run, "--steps", 6)

    def test_half_a_copy_goes_on_from_the_newest_whole_checkpoint(self):
        self.trained(steps=6)
        run = copied(self.out, self.folder / "half", "lost")
        for link in ["latest", "best"]:
            (run / link).unlink(missing_ok=True)
        file = run / "step-000006" / "optimizer.safetensors"
        file.write_bytes(file.read_bytes()[:-5])
        printed = self.done("train", "--resume", "--out", run, "--steps", 8)
        self.assertIn("resuming at step 4", printed)
        for step in self.checkpoints(run):
            (run / step / "model.safetensors").unlink()
        (run / "latest").unlink()
        self.refused(spool("train", "--resume", "--out", run), 1, "no checkpoint to resume")

    def test_a_file_system_without_links_has_files_with_names(self):
        whole = self.folder / "whole"
        self.trained(steps=4, out=whole)
        self.done("train", "--resume", "--out", whole, "--steps", 6)
        for reason in ["EPERM", "ENOSYS", "EOPNOTSUPP"]:
            source, library = self.folder / "refuse.c", self.folder / f"{reason}.so"
            source.write_text(REFUSING % reason)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            refusing = {"env": os.environ | {"LD_PRELOAD": str(library)}}
            run = self.folder / reason
            self.trained(steps=4, out=run, **refusing)
            self.assertEqual((run / "latest").read_text(), "step-000004\n")
            self.assertFalse((run / "latest").is_symlink())
            self.done("train", "--resume", "--out", run, "--steps", 6, **refusing)
            self.assertEqual((run / "latest").read_text(), "step-000006\n")
            self.assertTrue(pathlib.Path(run / (run / "best").read_text().strip()).is_dir())
            self.assertEqual(
                (run / "step-000006" / "model.safetensors").read_bytes(), self.weights(whole))
            self.assertEqual(self.checkpoints(run), self.checkpoints(whole))
            self.done("eval", "--model", run, "--data", self.text, "--seq", 8)
            # On a file system with links, it has them again.
            self.done("train", "--resume", "--out", run, "--steps", 8)
            self.assertEqual(os.readlink(run / "latest"), "step-000008")

    def test_other_things_of_these_names_are_left_alone(self):
        self.out = self.folder / "trained"
        self.trained(steps=2)
        for name in ["latest", "best"]:
            for make in [lambda path: path.mkdir(), lambda path: path.write_text("my notes")]:
                run = copied(self.out, self.folder / "run", "links")
                (run / name).unlink()
                make(run / name)
                words = ["train", "--resume", "--out", run, "--steps", 4]
                self.refused(spool(*words), 1, f"run/{name}: ")
                self.assertTrue((run / name).is_dir() or (run / name).read_text() == "my notes")
                shutil.rmtree(run)


if __name__ == "__main__":
    main()
