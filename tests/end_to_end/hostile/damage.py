"""Files that are damaged at random, and the commands that read them."""

import json
import os
import pathlib
import struct

from commands import SHAPE
from hostile.oracle import Case
from report_pages import BEGIN

NUMBERS = [0, 1, -1, 2, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64]
NUMBERS += [10**30, -(2**63), 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), 3, 7, 17, 10**4, 10**9]
STRINGS = ["", "x", "a" * 100000, "\u0000", "\ud800", "../../etc/passwd", "/dev/zero", "two\nlines", "\x1b[31m"]
STRINGS += ["bf16", "f32", "F32", "gpt2", "loop", "*", "\u4f60", "1", "nan", "run", "disk"]

# Beginnings of files that replace other files.
KINDS = [
    b"version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 1\n" % 0,
    b"\x1f\x8b\x08" + bytes(500),
    b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n",
    "A text of another width.\n".encode("utf-16"),
    b"PK\x03\x04" + bytes(22) + b"\x08\0\0\0data.pkl",
    b"GGUF\x03\0\0\0" + bytes(100),
]

EVAL = ["eval", "--data", "text.txt", "--limit", "8", "--model"]
GENERATE = ["generate", "--tokens", "5", "--model"]
SHOW = ["show-data", "chats.jsonl", "--model", "llama", "--chat-format"]
TRAIN = ["train", *SHAPE, "--steps", "2", "--out", "new", "--data"]
TUNE = ["train", "--steps", "1", "--batch", "1", "--data", "text.txt", "--out", "new", "--model"]
RESUME = ["train", "--resume", "--out"]
MERGES = ["tokenize", "text.txt", "--out", "new.bin", "--merges"]
WITH = [*MERGES[:-1], "--tokenizer"]
TABLE = ["train", *SHAPE, "--steps", "2", "--out", "new", "--dry-run", "--data", "text.txt"]


def model(name):
    words = [[*EVAL, name], [*GENERATE, name], [*TUNE, name], ["convert", name, "new"], ["info", name]]
    return words + [["plan", "--model", name, "--batch", "1"], ["convert", name, "new.bin"]]


def run_of(name):
    return [[*RESUME, name], [*RESUME, name, "--dry-run"], [*EVAL, name], [*GENERATE, name], ["info", name]]


# The commands that read each file.
READERS = {
    "model/model.safetensors": model("model"),
    "model/config.json": model("model"),
    "llama/model.safetensors.index.json": model("llama"),
    "llama/config.json": model("llama"),
    "llama/generation_config.json": model("llama"),
    "llama/tokenizer.json": model("llama"),
    "tokenizer.json": [[*WITH, "tokenizer.json"], ["info", "tokenizer.json"]],
    "run3/latest/run.json": run_of("run3"),
    "model.bin": [[*EVAL, "model.bin"], [*GENERATE, "model.bin"], [*TUNE, "model.bin"]]
    + [["convert", "model.bin", "new"], ["info", "model.bin"]],
    "run/latest/run.json": run_of("run"),
    "run/latest/model.safetensors": run_of("run"),
    "run/latest/optimizer.safetensors": run_of("run"),
    "run/latest/config.json": run_of("run"),
    "run2/latest/run.json": run_of("run2"),
    "run2/latest/merges.txt": run_of("run2"),
    "run2/latest/optimizer.safetensors": run_of("run2"),
    "shard.bin": [[*TRAIN, "shard.bin"], ["eval", "--model", "model", "--data", "shard.bin"]]
    + [["tokenize", "--decode", "shard.bin"], ["info", "shard.bin"]]
    + [["tokenize", "text.txt", "--out", "shard.bin"]],
    "questions.bin": [["eval", "--model", "model", "--data", "questions.bin"], ["info", "questions.bin"]],
    "questions.jsonl": [["eval", "--model", "model", "--data", "questions.jsonl"]],
    "chats.jsonl": [[*SHOW, "chatml"], [*SHOW, "format.json"]],
    "format.json": [[*SHOW, "format.json"], [*GENERATE, "llama", "--chat", "--prompt", "x", "--chat-format", "format.json"]],
    "words/merges.txt": [[*MERGES, "words/merges.txt"], ["info", "words/merges.txt"]]
    + [[*TRAIN, "text.txt", "--merges", "words/merges.txt", "--vocab", "300"]],
    "words/tokenizer.bin": [[*MERGES, "words/tokenizer.bin"], ["info", "words/tokenizer.bin"]],
    "words/vocab.json": [[*MERGES, "words/merges.txt"], ["info", "words/vocab.json"]],
    "plan.json": [[*TRAIN, "text.txt", "--plan", "plan.json"], ["plan", *SHAPE, "--plan", "plan.json"]]
    + [["info", "plan.json"], [*TRAIN, "text.txt", "--save-plan", "plan.json", "--dry-run"]],
    "log": [[*RESUME, "run", "--log", "log"], [*TRAIN, "text.txt", "--log", "log"], ["info", "log"]]
    + [["plot", "log", "--out", "new.html"]],
    "trace.json": [[*TRAIN, "text.txt", "--trace", "trace.json"], ["info", "trace.json"]],
    "report.json": [["plan", *SHAPE, "--json", "report.json"], ["info", "report.json"]],
    "run.html": [["plot", "run.html", "--out", "new.html"], [*RESUME, "run", "--report", "run.html"]],
    "text.txt": [[*TRAIN, "text.txt"], [*EVAL, "model"], ["tokenize", "text.txt", "--out", "new.bin"]],
    "cache": [TABLE, ["plan", *SHAPE], ["calibrate", *SHAPE], [*TABLE, "--memory", "480kB"]],
}


def odd_json(dice):
    return dice.choice([None, True, [], {}, [[]], {"a": 1}, dice.choice(NUMBERS), dice.choice(STRINGS)])


def nodes(value):
    """Every list and object, outermost first."""
    if isinstance(value, (list, dict)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from nodes(inner)


def damage_json(dice, value):
    """Changes one member or item; returns the text."""
    places = [node for node in nodes(value) if node]
    if not places or dice.random() < 0.04:
        deep = dice.choice(["[" * 5000, '{"a":' * 5000])
        return dice.choice(["", "{}", "[]", "null", "1", '"x"', deep, "{,}", "nul", "\ufeff{}"])
    node = dice.choice(places)
    keys = list(node) if isinstance(node, dict) else range(len(node))
    key, chance = dice.choice(list(keys)), dice.random()
    if chance < 0.55:
        node[key] = odd_json(dice)
    elif chance < 0.65:
        del node[key]
    elif chance < 0.75 and isinstance(node, dict):
        node[dice.choice(["", "x", "a\nb", "\u4f60" * 50, *keys])] = node.pop(key)
    elif chance < 0.8:
        for _ in range(dice.choice([3, 10, 20, 500])):
            node[key] = [node[key]] if dice.random() < 0.5 else {"a": node[key]}
    elif chance < 0.9 and isinstance(node, list):
        node[:] = node * dice.choice([2, 3, 100])
    elif isinstance(node, dict):
        text = json.dumps(value)
        once = f'"{key}": '
        return text.replace(once, once + '0, "' + str(key) + '": ', 1)
    return json.dumps(value)


def damage_bytes(dice, data):
    data = bytearray(data)
    size, at = len(data), dice.randrange(len(data) + 1)
    if dice.random() < 0.5:  # where headers are
        at = dice.randrange(min(1024, size) + 1)
    some = bytes(dice.randrange(256) for _ in range(dice.choice([1, 2, 4, 8, 100])))
    chance = dice.random()
    if chance < 0.2:
        del data[at:]
    elif chance < 0.35:
        for _ in range(dice.choice([1, 1, 2, 10])):
            if data:
                data[dice.randrange(size)] ^= 1 << dice.randrange(8)
    elif chance < 0.45:
        data[at : at + len(some)] = some
    elif chance < 0.65:  # a number of a header
        form = dice.choice(["<i", "<q", "<H", "<f"])
        at -= at % 4
        number = dice.choice(NUMBERS)
        if form == "<f":
            number = dice.choice([float("nan"), float("inf"), -1.0, 3e38, 1e-40])
        else:
            number = int(number) if number == number and abs(number) < 2**70 else -1
            bits = 8 * struct.calcsize(form)
            number %= 1 << bits
            form = form.upper()
        data[at : at + struct.calcsize(form)] = struct.pack(form, number)
    elif chance < 0.75:
        data[at:at] = some
    elif chance < 0.85:
        del data[at : at + dice.choice([1, 2, 4, 100])]
    elif chance < 0.9:
        data += some
    elif chance < 0.95:
        data[at : at + 4000] = bytes([dice.choice([0, 255, 10, 32])]) * len(data[at : at + 4000])
    else:
        data = bytearray() if dice.random() < 0.3 else data + data
    return bytes(data)


def damage_header(dice, data):
    """Changes the JSON at the beginning of a safetensors file, and perhaps its length."""
    length = struct.unpack("<Q", data[:8])[0]
    header = damage_json(dice, json.loads(data[8 : 8 + length])).encode(errors="surrogatepass")
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def damage_lines(dice, text):
    lines = text.splitlines()
    i = dice.randrange(len(lines))
    chance = dice.random()
    if chance < 0.7:
        lines[i] = damage_json(dice, json.loads(lines[i]))
    elif chance < 0.8:
        del lines[i]
    elif chance < 0.9:
        lines.insert(i, dice.choice(lines))
    else:
        dice.shuffle(lines)
    return "\n".join(lines) + dice.choice(["", "\n", "\n\n"])


def damage_page(dice, text):
    """Changes the JSON in a report's page."""
    begin = text.index(BEGIN) + len(BEGIN)
    end = text.index("</script>", begin)
    return text[:begin] + damage_json(dice, json.loads(text[begin:end])) + text[end:]


def damaged(dice, name, data):
    if dice.random() < 0.6:
        if name.endswith(".json"):
            return damage_json(dice, json.loads(data)).encode(errors="surrogatepass")
        if name.endswith(".safetensors"):
            return damage_header(dice, data)
        if name.endswith(".html"):
            return damage_page(dice, data.decode()).encode(errors="surrogatepass")
        if name == "log" or name.endswith(".jsonl"):
            return damage_lines(dice, data.decode()).encode(errors="surrogatepass")
    return damage_bytes(dice, data)


def replace(dice, folder, path):
    """Puts something else in a file's place."""
    names = [p for p in sorted(folder.iterdir()) if p.is_file() and p.name != "fifo"]
    other, chance = dice.choice(names).read_bytes(), dice.random()
    if chance < 0.3:
        other = dice.choice(KINDS)
    path.unlink()
    if chance < 0.6:
        path.write_bytes(other)
    elif chance < 0.7:
        path.mkdir()
    elif chance < 0.9:
        path.symlink_to(dice.choice([path.name, "nowhere", "/dev/zero", "/dev/null"]))
    elif chance < 0.95:
        os.mkfifo(path)


class Files:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def case(self, dice):
        """Damages a file of the folder; returns a command that reads it."""
        name = dice.choice(sorted(READERS))
        words, more = list(dice.choice(READERS[name])), {}
        if name == "cache":
            table = sorted(self.folder.glob("cache/spool/*.json"))[0]
            name = str(table.relative_to(self.folder))
            more = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        path = self.folder / name
        for _ in range(dice.choice([1, 1, 1, 2, 5])):
            data = path.read_bytes()
            try:
                path.write_bytes(damaged(dice, name, data))
            except (ValueError, RecursionError, struct.error):  # no JSON any more
                path.write_bytes(damage_bytes(dice, data))
        if dice.random() < 0.06:
            replace(dice, self.folder, path)
        if dice.random() < 0.2 and words[0] in ("eval", "generate"):
            words += dice.choice([["--threads", "1"], ["--dtype", "bf16"]])
        return Case(words, more=more)
