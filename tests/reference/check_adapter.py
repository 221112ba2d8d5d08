"""Holds an adapter that Spool wrote to PEFT: PEFT reads it, and its logits are those that are expected.

check_adapter.py BASE ADAPTER --tokens 5,9,2 --merged FOLDER    (needs torch, transformers and peft)

BASE and FOLDER are models as transformers saves them; FOLDER is what `spool convert` made of ADAPTER. Everything is computed in f32,
whatever the types of the files. Exits with 1 if PEFT misses or ignores a tensor of the adapter, or logits are further off than the bound.
"""

import argparse
import pathlib
import sys

import torch
from peft import PeftModel
from peft.utils import get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("adapter", type=pathlib.Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--tokens", help="ids of one row, with commas between")
    what.add_argument("--text", help="encoded by the base's tokenizer, without tokens around it")
    what.add_argument("--chat", help="a message of a user, in the base's template of chats")
    what.add_argument("--expected", type=pathlib.Path, help="a file of safetensors with tokens and their logits")
    parser.add_argument("--merged", type=pathlib.Path, help="the folder of the merged model")
    parser.add_argument("--bound", type=float, default=1e-4, help="of the largest logit; default 1e-4")
    parser.add_argument("--write", type=int, default=0, help="how many of the likeliest tokens to append")
    return parser.parse_args()


def opened(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def tokens_of(given):
    if given.tokens:
        return torch.tensor([[int(id) for id in given.tokens.split(",")]])
    if given.expected:
        return load_file(given.expected)["tokens"].long()
    tokenizer = AutoTokenizer.from_pretrained(given.base)
    if given.text:
        return tokenizer(given.text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    messages = [{"role": "user", "content": given.chat}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)["input_ids"]


def tensors_are_read(model, folder):
    """Whether those of the file are those of the model, bit by bit; PEFT only warns."""
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        there = {name: file.get_tensor(name) for name in file.keys()}
    read = get_peft_model_state_dict(model)
    for name in sorted(there.keys() ^ read.keys()):
        print(f"{name} is only in {'the file' if name in there else 'PEFT'}")
    others = [name for name in there.keys() & read.keys() if not torch.equal(there[name].float(), read[name].float())]
    for name in others:
        print(f"{name} has other numbers in PEFT")
    print(f"{len(there)} tensors in {folder}")
    return there.keys() == read.keys() and not others


def compare(what, logits, others):
    largest = logits.abs().max().item()
    off = (logits.double() - others.double()).abs().max().item()
    same = (logits.argmax(-1) == others.argmax(-1)).double().mean().item()
    print(f"{what}: off by at most {off:.3g}, {off / largest:.2g} of the largest logit; {same:.1%} of the likeliest tokens are the same")
    return off / largest


def write(model, given, tokens):
    text = model.generate(input_ids=tokens[:1], do_sample=False, max_new_tokens=given.write)[0, tokens.shape[1] :]
    print("appended:", text.tolist())
    if (given.base / "tokenizer.json").exists():
        print(AutoTokenizer.from_pretrained(given.base).decode(text))


@torch.no_grad()
def main():
    given = arguments()
    tokens, base = tokens_of(given), opened(given.base)
    without = base(tokens).logits
    model = PeftModel.from_pretrained(base, given.adapter).eval()
    fine = tensors_are_read(model, given.adapter)
    logits = model(tokens).logits
    compare("base, to see what the adapter does", logits, without)
    if given.expected:
        fine &= compare("expected", logits, load_file(given.expected)["logits"]) <= given.bound
    if given.merged:
        fine &= compare("merged", logits, opened(given.merged)(tokens).logits) <= given.bound
    if given.write:
        write(model, given, tokens)
    print("as expected" if fine else "NOT as expected")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
