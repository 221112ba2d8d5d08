"""Helpers of the tests that run the program: SCRIPT PROGRAM [CASE...].

The program runs on the cpu unless a test names a device.
"""

import atexit
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
os.environ["SPOOL_DEVICE"] = "cpu"
CACHE = tempfile.mkdtemp(prefix="spool-cache-")  # measured kernels, for all tests of a script
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)
os.environ["XDG_CACHE_HOME"] = CACHE
NIGHTLY = os.environ.get("SPOOL_NIGHTLY") == "1"
nightly = unittest.skipUnless(NIGHTLY, "takes long: SPOOL_NIGHTLY=1")
SKIPPED = 77  # the exit code that CTest takes for "could not run here"
SHAPE = "--layers 2 --heads 2 --channels 16 --context 32 --seq 16 --batch 2".split()
BY_HAND = ["--recompute", "none", "--chunk-loss", 0]  # nothing is left to choose for a budget
TOKENIZERS = pathlib.Path(__file__).parents[1] / "reference" / "tokenizers"
CHATML = (  # that of docs/files.md
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PROSE = "".join(f"Line {i} of a text that says little: {i * i}.\n" for i in range(400))


def spool(*words, program=PROGRAM, **more):
    """Runs the program; returns its exit code, standard output and standard error."""
    done = subprocess.run([program, *map(str, words)], capture_output=True, timeout=300, **more)
    return done.returncode, *(t.decode(errors="replace") for t in (done.stdout, done.stderr))


def last_step(log):
    """The last step that a run has logged so far, or 0."""
    steps = re.findall(r'"step": ?(\d+)', log.read_text(errors="replace")) if log.exists() else []
    return int(steps[-1]) if steps else 0


def metadata(file):
    """The header of a safetensors file."""
    whole = file.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    return json.loads(whole[8:end]).get("__metadata__", {})


def set_metadata(file, metadata):
    whole = file.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:end]) | {"__metadata__": metadata}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + whole[end:])


GPT2_NUMBERS = {"layers": "n_layer", "heads": "n_head", "channels": "n_embd", "context": "n_positions",
                "vocab": "vocab_size", "epsilon": "layer_norm_epsilon"}


def as_of_an_earlier_version(checkpoint):
    """Removes the mark that a checkpoint's files share; returns its run.json."""
    for name in ["model.safetensors", "optimizer.safetensors"]:
        set_metadata(checkpoint / name, {"format": "pt"} if name.startswith("model") else {})
    file = checkpoint / "run.json"
    run = json.loads(file.read_text())
    for key in ["run", "initial_weights", "vocabulary"]:
        run.pop(key, None)
    settings = run["configuration"]
    config = settings.pop("config")  # the numbers of a GPT-2 were stored one by one
    for key, of_config in GPT2_NUMBERS.items():
        settings[key] = config[of_config]
    settings["gelu"] = "tanh"
    file.write_text(json.dumps(run))
    return file


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="spool-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.text = self.folder / "text.txt"
        self.text.write_text(PROSE)
        self.out = self.folder / "run"

    def train(self, *words, data=None, out=None, steps=3, **more):
        fixed = ["--data", data or self.text, "--out", out or self.out, "--steps", steps]
        return spool("train", *SHAPE, *fixed, *words, **more)

    def log(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    def losses(self, path):
        return {e["step"]: (e["loss"], e["grad_norm"]) for e in self.log(path) if "loss" in e}

    def foretold(self, printed):
        return int(re.search(r"in bytes +(\d+)", printed)[1])

    def weights(self, run):
        return (run / "latest" / "model.safetensors").read_bytes()

    def killed_and_resumed(self, *words, steps):
        """A run that is killed at random steps and resumed has the losses and weights of a whole run."""
        whole, log = self.folder / "whole.jsonl", self.folder / "killed.jsonl"
        status, _, errors = self.train(*words, "--log", whole, out=self.folder / "whole", steps=steps)
        self.assertEqual(status, 0, errors)
        command = [PROGRAM, "train", "--out", self.out, "--log", log]
        begin = [*SHAPE, "--data", self.text, "--steps", steps, *words]
        device = words[words.index("--device") :][:2] if "--device" in words else []
        kills = 0
        while True:
            resumable = (self.out / "latest").exists()
            if not resumable:  # killed before its first checkpoint: it starts again
                log.unlink(missing_ok=True)
            run = subprocess.Popen(
                [str(w) for w in [*command, *(["--resume", *device] if resumable else begin)]],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                errors="replace",
            )
            done = last_step(log)
            until = random.randint(done + 1, (done + steps) // 2 + 1) if kills < 5 else steps + 1
            while run.poll() is None and last_step(log) < until:
                time.sleep(0.002)
            if run.poll() is None:
                run.send_signal(signal.SIGKILL)
            errors = run.communicate(timeout=300)[1]
            if run.returncode != -signal.SIGKILL:
                self.assertEqual(run.returncode, 0, errors)
                break
            kills += 1
        self.assertGreater(kills, 0)
        self.assertEqual(self.losses(log), self.losses(whole))
        self.assertEqual(sorted(self.losses(log)), list(range(1, steps + 1)))
        self.assertEqual(self.weights(self.out), self.weights(self.folder / "whole"))

    def said(self, errors):
        """The lines without progress, which a busy machine shows even for short work, and without the
        warning of a processor for which oneDNN has no products in bf16."""
        other = re.compile(r"^[a-z ]+ for \d+ s$|^[a-z ]+ \[#* *\] |^spool: plain loops replace oneDNN ")
        return [line for line in errors.splitlines() if not other.search(line)]

    def refused(self, result, code, *parts):
        """Expects the exit code and one line on standard error with each of these parts."""
        status, _, errors = result
        self.assertEqual(status, code, errors)
        # Tests may repeat flags of SHAPE.
        said = [line for line in self.said(errors) if "the last one counts" not in line]
        self.assertEqual(len(said), 1, errors)
        self.assertTrue(said[0].startswith("spool: "), errors)
        for part in parts:
            self.assertIn(part, errors)


# Each line joins two tokens; \u0120 spells a space.
MERGES = "#version: 0.2\nt h\nth e\n\u0120 t\ni n\n\u0120 a\n\u0120t h\ne x\nex t\n"
VOCABULARY = 256 + 8 + 1


def peak_memory(*words):
    """Runs the program; returns its peak memory in bytes."""
    process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL)
    _, process.returncode, usage = os.wait4(process.pid, 0)
    return usage.ru_maxrss << 10


class Files(Folder):
    def setUp(self):
        super().setUp()
        self.merges = self.folder / "merges.txt"
        self.merges.write_text(MERGES)

    def chat_tokenizer(self):
        """A tokenizer.json with the tokens of ChatML."""
        tokenizer = json.loads((TOKENIZERS / "smollm2.json").read_text())
        for token in tokenizer["added_tokens"]:  # the reference has one that no chat model has
            if token["content"] == "<|im_end|>\n":
                token["content"] = "<unused>"
        file = self.folder / "tokenizer.json"
        file.write_text(json.dumps(tokenizer))
        return file

    def done(self, *words, **more):
        status, printed, errors = spool(*words, **more)
        self.assertEqual(status, 0, errors)
        return printed

    def tokenize(self, *words):
        return self.done("tokenize", "--merges", self.merges, *words)

    def trained(self, *words, data=None, steps=3):
        """Trains a run with GPT-2's tokenizer; returns its checkpoint."""
        fixed = ["--merges", self.merges, "--data", data or self.text, "--out", self.out]
        self.done("train", *SHAPE, *fixed, "--steps", steps, *words)
        return self.out / "latest"


def main():
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
