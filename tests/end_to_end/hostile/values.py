"""The flags of each command, from its help, and odd values for each type."""

import dataclasses
import re

from commands import spool

COMMANDS = "train plan eval generate tokenize convert calibrate info plot shard show-data".split()
LINE = re.compile(r"  (?:-\w,)?(--[a-z0-9-]+)(?:\{false\})?( TEXT| U?INT| FLOAT)?(:\{[^}]*\}|:BYTES)?")
PATHS = set("--model --data --val-data --merges --prompts --plan --save-plan --out --log --trace --json --report".split())

WHOLE = ["", "0", "-1", "-0", "+1", "1", "2", "3", "007", "010", "1e3", "0x10", "1.5", " 1", "1 ", "1,000"]
WHOLE += [str(2**n + d) for n in (15, 16, 24, 31, 32, 53, 63, 64) for d in (-1, 0, 1)]
WHOLE += ["-" + str(2**63), "9" * 20, "9" * 400, "nan", "inf", "one", "\u0661\u0662", "1\n", "--seq", "-"]
REAL = ["0", "-0.0", "-1", "1", "10", "0.5", "1e-320", "1e-45", "1e308", "-1e308", "1e309", "3.4e38", "1e30"]
REAL += ["nan", "-nan", "inf", "-inf", "infinity", "", "1e", ".", "1,5", "0x1p3", "1_0", "9" * 400, " 1"]
BYTES = ["0", "1", "1B", "1kB", "300kB", "1MiB", "64MiB", "1e3MiB", "1 GiB", "16EiB", "99999999TiB", "-1MiB"]
BYTES += ["2GiBs", "GiB", "", "inf", "nan", "0x10", "1.5MiB", ".5GiB", "18446744073709551616", "9" * 400]
TEXT = ["", " ", "x", "a" * 300, "\u00e9\u4f60\U0001f600", "no\udcff\udcfeutf8", "two\nlines", "\x1b[31mred"]
TEXT += ["[1]", "[a,b]", "{}", "%s%n", "-", "--", "none", "all", "null", "'", '"', "\\", ",", ",,", "none,none"]
ODD_PATHS = [".", "..", "/", "./", "//", "/dev/null", "/dev/full", "/dev/zero", "/dev/stdin", "fifo", "socket"]
ODD_PATHS += ["dangling", "loop", "loop/below", "text.txt/below", "n" * 300, "p/" * 2500, "/proc/self/mem"]
ODD_PATHS += ["/proc/1/x", "/sys/x", "*", "**", "[", "*.txt", "folder/*", "~", "-", "no\udcffutf8.txt", "no\udcff"]
ODD_PATHS += ["new\nline", "", " ", "/dev/stdout", "./text.txt", "folder/", "a:b", "new", "new.bin", "new/b/c"]
WORDS = {
    "--recompute": ["none", "norms", "gelu", "attention", "block", "norms,gelu", "block,norms", "Block", "norms,"],
    "--offload-to": ["host", "disk:", "disk:.", "disk:/dev/null", "disk:loop", "disk:text.txt", "disk:new", "tape"],
    "--device": ["cpu", "CPU", "cuda", "cuda:0", "cuda:-1", "cuda:99999999999999999999", "cpu:1", "meta", "gpu"],
    "--final-eval": ["all", "none", "1", "0", "-1", "9" * 30, "ALL", "1e3"],
    "--tokenizer": ["bytes", "gpt2", "gpt4", "tokenizer.json", "llama"],
    "--chat-format": ["chatml", "chatml+bos", "llama3", "phi3+bos", "zephyr", "+bos", "ChatML", "chatml+", "format.json"],
    "--learn": ["assistant", "all", "All", "none", "user"],
    "--model": ["gpt2-tiny", "gpt2-124m", "gpt2", "GPT2-TINY", "llama-tiny", "llama"],
}


@dataclasses.dataclass(frozen=True)
class Flag:
    name: str
    kind: str  # INT, UINT, FLOAT, TEXT, BYTES, a list of words in braces, or empty: without a value


def flags_of(command):
    printed = spool(command, "--help")[1]
    found = []
    for line in printed.splitlines():
        if match := LINE.match(line):
            name, kind, more = (text.strip() if text else "" for text in match.groups())
            found.append(Flag(name, more[1:] if more else kind))
    assert len(found) > 0, printed
    return found


def odd_path(dice, given):
    return dice.choice(dice.choice([ODD_PATHS, ODD_PATHS, given]))


def odd_value(dice, flag, given):
    """A value for a flag; `given`: the names of the files in the folder."""
    if dice.random() < 0.08:  # of any type
        return dice.choice(dice.choice([WHOLE, REAL, BYTES, TEXT, ODD_PATHS, given]))
    if flag.name in WORDS and dice.random() < 0.7:
        return dice.choice(WORDS[flag.name])
    if flag.name in PATHS:
        return odd_path(dice, given)
    if flag.kind.startswith("{"):
        return dice.choice([*flag.kind[1:-1].split(","), *TEXT])
    return dice.choice({"FLOAT": REAL, "BYTES": BYTES, "TEXT": TEXT}.get(flag.kind, WHOLE))
