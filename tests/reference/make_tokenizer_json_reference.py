"""Small tokenizers as tokenizer.json, and what Hugging Face's library makes of texts with them.

make_tokenizer_json_reference.py FOLDER           (needs tokenizers)
make_tokenizer_json_reference.py --random N DIR   prints N random texts with their ids, for comparing by hand

Writes NAME.json, a tokenizer trained on the words below in the style of a family of models, and
NAME.texts.json, a list of [text, ids, decoded text].  Ids are without the begin of text.  The library
is the oracle: Spool does not make these numbers.
"""

import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
OF_WORDS = ["sentencepiece", "metaspace_always", "metaspace_first", "metaspace_never"]
LATER = ["nfkc", *OF_WORDS[1:]]
STYLES = ["gpt2", "llama3", "qwen2", "smollm2", *OF_WORDS[:1], *LATER]

TEXTS = [
    "",
    " ",
    "Hello, world! It's 2024; they'll've done 1234567 things, DON'T we'RE?",
    "  two  spaces   and\ttabs\t\tand \n newlines\n\n\n  !\n\nend \r\n crlf\r\n",
    "naïve café Ångström Straße ŒUVRE e\u0301 A\u030a \u1100\u1161\u11a8 o\u0302\u0301 q\u0307\u0323",
    "Привет, мир! Война и мир — 1869.",
    "Ἐν ἀρχῇ ἦν ὁ λόγος",
    "你好，世界。今天是2024年１２月。",
    "これはテストです。カタカナ、ひらがな、漢字。",
    "한국어 문장입니다. 띄어쓰기가 있어요.",
    "مرحبا بالعالم ١٢٣٤",
    "שלום עולם",
    "नमस्ते दुनिया १२३",
    "ภาษาไทยไม่มีช่องว่าง",
    "👍🏽👨‍👩‍👧‍👦🇩🇪 emoji 🙂",
    "½ ⅓ Ⅳ ① ² ٣ 1,000.50 0x1F 3.14e-10",
    "def f(x):\n    return x ** 2  # comment\n\n\nclass A:\n\tpass\n",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "<s>x</s>\n</s><unk> a </s> b<s><s>",
    "<|im_start|><|im_start|>|im_end|><|im_end|",
    "\u00a0nbsp\u2003em\u3000ideographic\u2028line\u2029par\u0085nel\u180emvs\u200bzw\ufeffbom",
    "'s 'S 'ſ 'T 'll 'LL 'ld' 'd",
    "\x00\x01\x1f\x7f control",
    "▁ ▁▁ a▁b ▁x",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "thethethethethethethethethethethethethethethethethethethethethethethethethethethethethethe",
    "http://example.com/a?b=c&d=%20#e user@example.org",
    "<tool_call>{\"a\": 1}</tool_call> <norm> x<norm>",
    "a <right>  b<right>\u3000\nc <left>d \t<left> <right> <left>  <right><left>e",
    "<word> a<word> <word>b c_<word>_ \u00e9<word> -<word>- <word>",
    "the  the </s>the </s> the<s>",
    "\uff28\uff45llo \ufb01ne \u2122 \u00bd \u3392 \u2460\u00a0\u3000x \u00b4 \u1e9b\u0323 \u0130 \u03a3 \ufdfa",
]
WORDS = (
    " the and ing tion er in on re he an hello world don't it's Hello World 12 123 2024 ! ? . , \n \n\n \t "
    "\r\n   ' ' 's 'LL 're — ß é e\u0301 ö Ω λόγος мир и 你好 世界 。 これ は 한국 어 عالم שלום नम स्ते ไทย 👍 🏽 ½ ² ١ "
    "\u00a0 \u3000 \u2028 ▁ <|im_start|> <|im_end|> <|endoftext|> <s> </s> <unk> < > | _ - -- == /* */ \x00 \ufffd \u0301"
).split(" ") + [" ", "  ", "    ", "\n ", " \n"]
# Of the styles that came later, so that the others' texts stay what they are.
MORE_WORDS = WORDS + "<right> <left> <word> ﬁ ™ ① ㎒ Ｈ ｶ\uff9e İ Σ ´ a\u0323 \u1e9b\u0323 \u1100\u1161".split(" ")


def random_text(rng, words=WORDS):
    if rng.random() < 0.7:
        return "".join(rng.choice(words) for _ in range(rng.randrange(1, 14)))
    ranges = [(32, 127), (0, 0x250), (0x300, 0x600), (0x900, 0xA00), (0x1E00, 0x2100), (0x3000, 0x3100),
              (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0x1F300, 0x1F700)]
    low, high = rng.choice(ranges)
    return "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 20)))


def byte_level(vocabulary, pre_tokenizer, normalizer=None, ignore_merges=False, alphabet=True):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer = pre_tokenizer
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    initial = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    return t, trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=initial, show_progress=False)


def split(expression):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(expression), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def untrained(style):
    if style == "gpt2":
        return byte_level(600, pre_tokenizers.ByteLevel(add_prefix_space=False))
    if style == "llama3":
        return byte_level(700, split(LLAMA3), ignore_merges=True)
    if style == "qwen2":
        return byte_level(700, split(QWEN), normalizer=normalizers.NFC())
    if style == "smollm2":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return byte_level(600, pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    if style == "nfkc":
        normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        return byte_level(600, pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizer)
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    if style == "sentencepiece":
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif style == "metaspace_always":  # as Llama 2 has it
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    elif style == "metaspace_first":
        t.normalizer = normalizers.NFKC()
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
        t.decoder = decoders.Sequence(
            [decoders.Metaspace(prepend_scheme="first"), decoders.ByteFallback(), decoders.Fuse()])
    else:
        t.normalizer = normalizers.NFD()
        t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="_", prepend_scheme="never", split=False)
        t.decoder = decoders.Sequence(
            [decoders.Metaspace(replacement="_", prepend_scheme="never"), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    return t, trainers.BpeTrainer(vocab_size=900, limit_alphabet=250, special_tokens=special, show_progress=False, max_token_length=12)


def corpus(style):
    rng = random.Random(7)
    lines = TEXTS[:-4] * 3 + [random_text(rng) for _ in range(400)]
    if style not in OF_WORDS:
        return lines
    # Without a pre-tokenizer a word is a line; the normalizer puts its blank before it.
    words = [word for line in lines for word in line.split() if "▁" not in word and "<" not in word]
    return [f" {word}" for word in words if "_" not in word] if style == "metaspace_never" else words


def scrambled(whole, rng):
    """The vocabulary with ids at random, so that parts are younger than what they become; and merges in which
    two make one token, where the vocabulary has the parts."""
    model = whole["model"]
    tokens = [t for t in model["vocab"]]
    fixed = [t for t in tokens if model["vocab"][t] < 3]
    others = [t for t in tokens if t not in fixed]
    rng.shuffle(others)
    model["vocab"] = {t: i for i, t in enumerate(fixed + others)}
    known = {tuple(m) for m in model["merges"]}
    for token in others:
        for cut in range(1, len(token)):
            pair = (token[:cut], token[cut:])
            if pair not in known and pair[0] in model["vocab"] and pair[1] in model["vocab"] and rng.random() < 0.3:
                model["merges"].insert(rng.randrange(len(model["merges"])), list(pair))
                known.add(pair)


def make(style):
    t, trainer = untrained(style)
    t.train_from_iterator(corpus(style), trainer)
    whole = json.loads(t.to_str())
    whole["added_tokens"] = []
    scrambled(whole, random.Random(5))
    if style == "gpt2":  # as older files have them
        whole["model"]["merges"] = [" ".join(m) for m in whole["model"]["merges"]]
        del whole["model"]["type"]
    t = Tokenizer.from_str(json.dumps(whole))
    if style in OF_WORDS:
        t.add_special_tokens(["<unk>", "<s>", "</s>"])
        begin = "<s>"
    else:
        t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>\n"])
        t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<norm>", normalized=True)])
        begin = "<|im_start|>"
    if style in LATER:
        t.add_tokens([AddedToken("<right>", rstrip=True, normalized=False), AddedToken("<left>", lstrip=True, normalized=True)])
        t.add_tokens([AddedToken("<word>", single_word=True, normalized=False)])
        end = "</s>" if style in OF_WORDS else "<|im_end|>"
        t.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A {end}", special_tokens=[(b, t.token_to_id(b)) for b in (begin, end)])
    if style in ["llama3", "sentencepiece"]:
        template = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, t.token_to_id(begin))])
        t.post_processor = (
            processors.Sequence([processors.ByteLevel(trim_offsets=False), template]) if style == "llama3" else template)
    return Tokenizer.from_str(t.to_str())


def words_of(style):
    return MORE_WORDS if style in LATER else WORDS


def expected(t, text):
    ids = t.encode(text, add_special_tokens=False).ids
    return [text, ids, t.decode(ids, skip_special_tokens=False)]


if sys.argv[1] == "--random":
    count, folder = int(sys.argv[2]), pathlib.Path(sys.argv[3])
    for style in STYLES:
        t, rng = Tokenizer.from_file(str(folder / f"{style}.json")), random.Random(99)
        with open(folder / f"{style}.random.json", "w") as out:
            json.dump([expected(t, random_text(rng, words_of(style))) for _ in range(count)], out)
else:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for style in STYLES:
        t, rng = make(style), random.Random(11)
        (folder / f"{style}.json").write_text(json.dumps(json.loads(t.to_str()), ensure_ascii=False) + "\n")
        texts = TEXTS[: None if style in LATER else -4] + [random_text(rng, words_of(style)) for _ in range(400)]
        lines = [json.dumps(expected(t, text), separators=(",", ":")) for text in texts]
        (folder / f"{style}.texts.json").write_text("[" + ",\n".join(lines) + "]\n")
