"""A folder with a valid file of every kind that is read."""

import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess

from commands import CACHE, MERGES, PROGRAM, PROSE, SHAPE


LLAMA = "--model llama-tiny --layers 2 --heads 6 --channels 48 --context 32 --seq 16 --batch 2".split()
TOKENIZER = pathlib.Path(__file__).parents[2] / "reference" / "tokenizers" / "llama3.json"
FORMAT = {
    "begin_token": False,
    "begin": "",
    "system": {"join": "\n\n"},
    "user": {"before": "Q: ", "trim": True, "end": "", "after": "\n"},
    "assistant": {"before": "A:", "lead": " ", "trim": True, "end": "<|im_end|>", "after": "\n"},
}
SAID = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
LINES = [
    {"messages": [*SAID, {"role": "assistant", "content": "Hello"}]},
    {"conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]},
    {"instruction": "Add.", "input": "1 2", "output": "3"},
    {"prompt": "a", "completion": "b"},
    {"text": "c"},
]
GENERATION = '{"eos_token_id": [0, 255], "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.1}'


def questions(path):
    """Questions that ask how a line of the prose continues."""
    context, right, words = b"Line 7 of a text ", b"that says", []
    for i in range(4):
        choices = [right if i == c else b"zzzzzzzzz" for c in range(4)]
        all_words = [65535, 0, i, i, 4, len(context), *context]
        for choice in choices:
            all_words += [len(choice), *choice]
        all_words[1] = 2 * len(all_words)
        words += all_words
    header = struct.pack("<256i", 20240522, 1, 4, len(words) // 2, *[0] * 252)
    path.write_bytes(header + struct.pack(f"<{len(words)}H", *words))


def llmc_tokenizer(path):
    tokens = [bytes([i]) for i in range(256)] + [b"th", b"<|endoftext|>"]
    header = struct.pack("<256i", 20240328, 2, len(tokens), len(tokens) - 1, *[0] * 252)
    path.write_bytes(header + b"".join(bytes([len(t)]) + t for t in tokens))


def make_given(folder):
    """Fills the folder; returns the names in it."""

    def done(*words):
        command = [PROGRAM, *map(str, words)]
        made = subprocess.run(command, cwd=folder, capture_output=True, errors="replace", timeout=300)
        assert made.returncode == 0, (words, made.stderr)

    folder.mkdir()
    (folder / "text.txt").write_text(PROSE)
    (folder / "words").mkdir()  # beside a model it would be the model's
    (folder / "words" / "merges.txt").write_text(MERGES)
    run = ["train", *SHAPE, "--data", "text.txt", "--checkpoint-every", 1]
    done(*run, "--steps", 2, "--out", "run", "--log", "log", "--trace", "trace.json", "--report", "run.html")
    done(*run, "--steps", 2, "--out", "run2", "--merges", "words/merges.txt", "--dtype", "bf16")
    done(*run, "--steps", 2, "--out", "x", "--save-plan", "plan.json", "--recompute", "norms", "--dry-run")
    shutil.copytree(folder / "run" / "latest", folder / "model")
    done("convert", "model", "model.bin")
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    llama = ["train", *LLAMA, "--data", "text.txt", "--tokenizer", "tokenizer.json", "--vocab", 706]
    done(*llama, "--steps", 1, "--out", "run3")
    done("convert", "run3", "llama", "--shard-bytes", "20kB")
    (folder / "llama" / "generation_config.json").write_text(GENERATION)
    done("tokenize", "text.txt", "--out", "shard.bin")
    done("plan", *SHAPE, "--json", "report.json", "--report", "plan.html")
    questions(folder / "questions.bin")
    line = {"ctx": "Line 7 of a text", "endings": ["that says little", "zzz"], "label": 0}
    (folder / "questions.jsonl").write_text(4 * (json.dumps(line) + "\n"))
    (folder / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    (folder / "format.json").write_text(json.dumps(FORMAT))
    shutil.copy(folder / "run2/latest/vocab.json", folder / "words")
    llmc_tokenizer(folder / "words" / "tokenizer.bin")
    shutil.copytree(CACHE, folder / "cache")
    (folder / "folder").mkdir()
    (folder / "folder" / "more.txt").write_text("More. " * 300)
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as endpoint:
        before = os.getcwd()
        os.chdir(folder)  # the name of a socket is short
        endpoint.bind("socket")
        os.chdir(before)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    return sorted(os.listdir(folder))


def copy_given(source, folder):
    """Makes the folder equal to the first one."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-a", source, folder], check=True)
