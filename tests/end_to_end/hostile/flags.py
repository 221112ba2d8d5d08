"""Command lines with one or two odd values, repeated flags, and unknown words."""

from commands import SHAPE
from hostile.given import LLAMA
from hostile.oracle import Case
from hostile.values import COMMANDS, ODD_PATHS, TEXT, WHOLE, flags_of, odd_path, odd_value

MODELS = ["model", "run", "run2", "model.bin", "model/model.safetensors", "llama"]
DATA = ["text.txt", "shard.bin", "folder/*.txt"]
NAMES = ["--batc", "--lr=", "-x", "-", "--", "--no-such", "--LR", "-h", "--help=1", "--resume=maybe", "---lr"]
NAMES += ["--version", "--json=", "x", "\u2013\u2013lr", "--lr\n", "--no\udcff", "--help"]
PLACES = ["", ".", "dangling", "loop", "text.txt", "/dev/null", "/dev/full", "/proc", "no\udcff", "n" * 300]


def valid(dice, command):
    """A short command line that succeeds."""
    model, data = dice.choice(MODELS), dice.choice(DATA)
    if command == "train":
        words = [*dice.choice([SHAPE, SHAPE, LLAMA]), "--data", data, "--out", "new", "--steps", "2"]
        if data == "shard.bin":
            words += ["--vocab", "256"]
        return words + (["--dry-run"] if dice.random() < 0.8 else [])
    if command == "eval":
        asked = dice.choice([["questions.bin"], ["questions.jsonl"], [data, "--limit", "8"]])
        return ["--model", model, "--data", *asked]
    shape = ["--op", "linear", "--shape", "4,4,16", "--out", "32"]
    return {
        "shard": [*shape, "--mesh", "2x2", *dice.choice([[], ["--machine", "h200", "--json", "new.json"]])],
        "plan": [*dice.choice([SHAPE, LLAMA])],
        "calibrate": [*SHAPE],
        "generate": ["--model", model, "--tokens", "5"],
        "tokenize": dice.choice([["text.txt", "--out", "new.bin"], ["shard.bin", "--decode"]]),
        "convert": [model, dice.choice(["new", "new.bin"])],
        "info": [dice.choice(MODELS + DATA)],
        "show-data": ["chats.jsonl", "--model", "llama", "--chat-format", dice.choice(["chatml", "format.json"])],
        "plot": [dice.choice(["log", "run.html"]), "--out", dice.choice(["new.html", "plan.html"])],
    }[command]


class Flags:
    def __init__(self, given):
        self.flags = {command: flags_of(command) for command in COMMANDS}
        more = ["run/latest", "model/config.json", "run/latest/optimizer.safetensors"]
        more += ["llama/config.json", "llama/model.safetensors.index.json", "tokenizer.json"]
        more += ["words/merges.txt", "words/vocab.json", "words/tokenizer.bin"]
        self.given = [*given, *MODELS, *more]

    def with_odd_value(self, dice, command, words):
        flag = dice.choice(self.flags[command])
        if not flag.kind and flag.name != "--help":
            words.append(flag.name)
            return
        value = odd_value(dice, flag, self.given)
        at = words.index(flag.name) if flag.name in words and dice.random() < 0.9 else len(words)
        words[at : at + 2] = [f"{flag.name}={value}"] if dice.random() < 0.2 else [flag.name, value]

    def damage(self, dice, command, words):
        """Makes one word odd."""
        chance = dice.random()
        places = [i for i, word in enumerate(words) if not word.startswith("--")]
        if chance < 0.8:
            self.with_odd_value(dice, command, words)
        elif chance < 0.86 and places:  # a value or a name of a file, whichever it is
            words[dice.choice(places)] = odd_path(dice, self.given)
        elif chance < 0.89 and words:
            del words[dice.randrange(len(words))]
        elif chance < 0.92 and words:
            words.insert(dice.randrange(len(words)), dice.choice(words))
        elif chance < 0.95:
            words.insert(dice.randint(0, len(words)), dice.choice(NAMES))
        elif chance < 0.97:
            words.insert(dice.randint(0, len(words)), dice.choice(TEXT + WHOLE + ODD_PATHS))
        else:
            dice.shuffle(words)

    def environment(self, dice):
        if dice.random() > 0.06:
            return {}
        key = dice.choice(["SPOOL_DEVICE", "XDG_CACHE_HOME", "HOME", "TMPDIR", "SPOOL_IO", "COLUMNS", "LC_ALL"])
        return {key: dice.choice(PLACES + ["cpu:9", "1", "x"])}

    def case(self, dice):
        command = dice.choices(COMMANDS, [8, 3, 3, 3, 3, 2, 1, 2, 2, 2, 3])[0]
        words = valid(dice, command)
        if command == "train" and dice.random() < 0.2:
            words = ["--resume", "--out", dice.choice(["run", "run2"])]
        for _ in range(dice.choice([1, 1, 1, 2, 2, 3])):
            self.damage(dice, command, words)
        word = command if dice.random() < 0.98 else dice.choice([*TEXT, command[:-1], command.upper()])
        return Case(
            [word, *words],
            more=self.environment(dice),
            stdin=dice.choice([b"", b"The \n\nmore\n", b"\xff\x00\n", b"x" * 100000]),
            stdout="/dev/full" if dice.random() < 0.03 else "",
            file_bytes=int(2 ** dice.uniform(0, 17)) if dice.random() < 0.05 else 0,
        )
