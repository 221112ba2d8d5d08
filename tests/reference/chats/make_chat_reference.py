"""Writes chats.json: random conversations in six formats, and what transformers makes of them.

make_chat_reference.py OUT

Needs transformers, tokenizers and jinja2.  Templates mark what the assistant says, with the token
that ends it, by {% generation %}, and apply_chat_template returns the ids and which of them are of it.

A content is a string of letters, of which each stands for a text of `texts`; a conversation is
messages by their role's first letter, [["u", "aF"], ["a", "q"]].  Of its ids and of the mask the file
has a hash; of the first few both in full.
"""

import dataclasses
import hashlib
import json
import pathlib
import random
import string
import sys
import tempfile
import unicodedata

from transformers import PreTrainedTokenizerFast

TOKENIZERS = pathlib.Path(__file__).parents[1] / "tokenizers"
LETTERS = string.ascii_letters + string.digits + "".join(map(chr, range(0xC0, 0x100)))
ROLES = {"s": "system", "u": "user", "a": "assistant"}
MARKED = "{% generation %}{{ CONTENT + END }}{% endgeneration %}"


def marked(content, end):
    return MARKED.replace("CONTENT", content).replace("END", repr(end))


def alike(before, after, content, end, rest):
    """A template whose messages differ in the name of their role alone."""
    whole = "{% for m in messages %}{{ BEFORE + m.role + AFTER }}{% if m.role == 'assistant' %}"
    whole += marked(content, end) + "{% else %}{{ CONTENT + END }}{% endif %}{{ REST }}{% endfor %}"
    for name, text in {"BEFORE": before, "AFTER": after, "END": end, "REST": rest}.items():
        whole = whole.replace(name, repr(text))
    return whole.replace("CONTENT", content)


GEMMA = (
    "{{ bos_token }}{% set ns = namespace(first='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.first = m.content + '\\n\\n' %}{% elif m.role == 'user' %}"
    "{{ '<start_of_turn>user\\n' + ns.first + m.content | trim + '<end_of_turn>\\n' }}{% set ns.first = '' %}"
    "{% else %}{{ '<start_of_turn>model\\n' }}" + marked("m.content | trim", "<end_of_turn>") + "{{ '\\n' }}"
    "{% endif %}{% endfor %}"
)

MISTRAL = (
    "{{ bos_token }}{% set ns = namespace(first='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.first = m.content + '\\n\\n' %}{% elif m.role == 'user' %}"
    "{{ '[INST] ' + ns.first + m.content + '[/INST]' }}{% set ns.first = '' %}"
    "{% else %}" + marked("' ' + m.content | trim", "</s>") + "{% endif %}{% endfor %}"
)


@dataclasses.dataclass
class Style:
    tokenizer: str  # of ../tokenizers
    template: str
    added: str  # more tokens, separated by blanks; those that end with * take white space after them
    begin: str = None  # the token that begins texts


STYLES = {
    "chatml": Style("qwen2", alike("<|im_start|>", "\n", "m.content", "<|im_end|>", "\n"), ""),
    "llama3": Style(
        "llama3",
        "{{ bos_token }}" + alike("<|start_header_id|>", "<|end_header_id|>\n\n", "m.content | trim", "<|eot_id|>", ""),
        "<|start_header_id|> <|end_header_id|> <|eot_id|>",
        "<|endoftext|>",
    ),
    "zephyr": Style("sentencepiece", alike("<|", "|>\n", "m.content", "</s>", "\n"), ""),
    "gemma": Style("metaspace_never", GEMMA, "<start_of_turn> <end_of_turn>", "<s>"),
    "phi3": Style(
        "sentencepiece", alike("<|", "|>\n", "m.content", "<|end|>", "\n"), "<|end|>* <|user|>* <|assistant|>* <|system|>*"),
    "mistral": Style("metaspace_first", MISTRAL, "[INST] [/INST]", "<s>"),
}

WORDS = ["Hello", " world", "the", " of", "A", "?", "!", "'s", "I'll", " 1234", "7", "...", "#", "été", "\u00fcber"]
WORDS += ["e\u0301", "a\u0308", "\u0301", "\u1e0b\u0323", "\u212b", "\ufb01", "日本", "語", "한국", "\u1112\u1161\u11ab", "العربية"]
WORDS += ["हिन्दी", "😀", "👩\u200d🚀", "🇫🇷", "❤️", "\u200d", "\ufeff", "<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>"]
WORDS += ["<|im_start|>", "<|user|>", "user", "assistant", "<", "|>", "\u2581", "_", "\\n", "\x00", "\x7f"]
BLANKS = [" ", "  ", "\n", "\n\n", "\r\n", "\r", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\x0b", "\x1f", "\x85"]


def random_texts(dice, count):
    """Characters that Unicode has had for long."""
    found, old = [], unicodedata.ucd_3_2_0
    while len(found) < count:
        c = chr(dice.choice([dice.randrange(0x20, 0x3000), dice.randrange(0x3000, 0xFFFF), dice.randrange(0x10000, 0x20000)]))
        if old.category(c)[0] in "LMNPSZ":
            found.append(c)
    return found


def content(dice, blanks, words):
    """Letters: blanks, words and blanks again; or nothing."""
    if dice.random() < 0.06:
        return ""
    some = [dice.choice(blanks) for _ in range(dice.choice([0, 0, 0, 1, 2]))]
    for _ in range(dice.choice([0, 1, 1, 2, 3, 5])):
        some.append(dice.choice(words))
        if dice.random() < 0.25:
            some.append(dice.choice(blanks))
    return "".join(some + [dice.choice(blanks) for _ in range(dice.choice([0, 0, 0, 1, 2]))])


def conversation(dice, blanks, words):
    turns = []
    if dice.random() < 0.3:
        turns.append(["s", content(dice, blanks, words)])
    for _ in range(dice.choice([1, 1, 2, 3])):
        turns += [["u", content(dice, blanks, words)], ["a", content(dice, blanks, words)]]
    return turns


def added_tokens(file, added):
    """The file's, of which one that begins with an end of a message gets another name, and these."""
    tokens = file["added_tokens"]
    for token in tokens:
        token["content"] = token["content"].replace("<|im_end|>\n", "<unused>")
    next_id = 1 + max(*(t["id"] for t in tokens), *file["model"]["vocab"].values())
    for i, name in enumerate(added.split()):
        flags = {"single_word": False, "lstrip": False, "rstrip": name.endswith("*"), "normalized": False}
        tokens.append({"id": next_id + i, "content": name.rstrip("*"), **flags, "special": True})
    return tokens


def read_tokenizer(style, added):
    file = json.loads((TOKENIZERS / f"{style.tokenizer}.json").read_text())
    file["added_tokens"] = added
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(file))
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token=style.begin)
    tokenizer.chat_template = style.template
    return tokenizer


def hash_of(ids, mask):
    text = " ".join(f"{i}:{m}" for i, m in zip(ids, mask, strict=True))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main(out):
    dice = random.Random(45)
    texts = BLANKS + WORDS
    texts += random_texts(dice, len(LETTERS) - len(texts))
    letters = dict(zip(LETTERS, texts, strict=True))
    blanks, words = LETTERS[: len(BLANKS)], LETTERS[len(BLANKS) :]
    begins_blank = "".join(x for x in LETTERS if letters[x][0].isspace())
    formats = []
    for name, style in STYLES.items():
        file = json.loads((TOKENIZERS / f"{style.tokenizer}.json").read_text())
        added = added_tokens(file, style.added)
        tokenizer = read_tokenizer(style, added)
        chats = []
        for i in range(400):
            turns = conversation(dice, blanks, words)
            if "*" in style.added:  # transformers finds such blanks in the token before them
                turns = [[r, c.lstrip(begins_blank) if r == "a" else c] for r, c in turns]
            messages = [{"role": ROLES[r], "content": "".join(letters[x] for x in c)} for r, c in turns]
            made = tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            ids, mask = made["input_ids"], made["assistant_masks"]
            chat = {"messages": turns, "hash": hash_of(ids, mask)}
            if i < 3:
                chat |= {"ids": ids, "learnt": mask}
            chats.append(chat)
        about = {"format": name, "tokenizer": f"{style.tokenizer}.json", "begin": style.begin, "added_tokens": added}
        formats.append(about | {"chats": chats})
    lines = ",\n".join(
        json.dumps({k: v for k, v in f.items() if k != "chats"}, ensure_ascii=False)[:-1]
        + ', "chats": [\n' + ",\n".join(json.dumps(c, ensure_ascii=False) for c in f["chats"]) + "]}"
        for f in formats)
    text = '{"texts": ' + json.dumps(letters) + ',\n"formats": [\n' + lines + "]}\n"
    json.loads(text)
    pathlib.Path(out).write_text(text)


main(sys.argv[1])
