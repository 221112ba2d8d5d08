"""The tokens that the published GPT-2 tokenizer gives the texts of tokenizer_test.cpp.

make_tokenizer_reference.py MERGES TEXT    (needs tiktoken, tokenizers)

Two implementations by others, tiktoken (OpenAI's own) and tokenizers (Hugging Face), are given the
merges as published; where they agree, the ids and a hash of the first 10,000 of TEXT are printed.
"""

import sys

import tiktoken
import tokenizers

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SAMPLE = "It's  中文。\n\n 'll 12½\u00a0x"


def alphabet():
    """The character that stands for each byte, in the order of ids 0 to 255."""
    visible = [b for b in range(256) if 33 <= b <= 126 or b >= 161 and b != 173]
    hidden = [b for b in range(256) if b not in visible]
    return {**{b: chr(b) for b in visible}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


def fnv1a(ids):
    value = 14695981039346656037
    for token in ids:
        for byte in token.to_bytes(2, "little"):
            value = (value ^ byte) * 1099511628211 % 2**64
    return value


merges, text = sys.argv[1], open(sys.argv[2], encoding="utf8", newline="").read()
spelling = alphabet()
pairs = [tuple(line.split()) for line in open(merges, encoding="utf8").read().split("\n")[1:] if line]
vocabulary = {t: i for i, t in enumerate([*spelling.values(), *map("".join, pairs)])}
byte_of = {c: b for b, c in spelling.items()}
ranks = {bytes(byte_of[c] for c in t): i for t, i in vocabulary.items()}
first = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
second = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, pairs))
second.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
for sample in ["Hello world", SAMPLE, text]:
    ids = first.encode_ordinary(sample)
    assert ids == second.encode(sample).ids
    print(len(ids), ids[:20], hex(fnv1a(ids[:10000])))
