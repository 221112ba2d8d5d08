"""A GPT-2 as transformers saves it, and its logits: tests/reference/transformers.

make_transformers_reference.py FOLDER    (needs torch and transformers; made with 1.13 and 4.30.2)

Two models: one of the published form, with the masks that some published files carry; and one with
the settings a config.json may change: the exact GELU, another epsilon, names with a prefix, F16 weights.
"""

import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

SHAPE = dict(n_layer=2, n_head=2, n_embd=16, n_positions=16, vocab_size=50)
QUIET = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def make(folder, change, seed, **more):
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(**SHAPE, **QUIET, **more)).eval()
    with torch.no_grad():
        for p in model.parameters():  # far from the usual start, so that every part matters
            p.add_(torch.randn_like(p) * 0.3)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, safe_serialization=True)
    weights = folder / "model.safetensors"
    tensors = change(load_file(weights))
    save_file(tensors, weights, metadata={"format": "pt"})
    model.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
    tokens = torch.randint(0, SHAPE["vocab_size"], (2, SHAPE["n_positions"]))
    logits = model(tokens).logits.detach()
    save_file({"tokens": tokens.int(), "logits": logits}, folder / "expected.safetensors")


def published(tensors):
    """Without a prefix or a head, and with masks."""
    short = {k.removeprefix("transformer."): v for k, v in tensors.items() if k != "lm_head.weight"}
    n = SHAPE["n_positions"]
    masks = {f"h.{i}.attn.bias": torch.tril(torch.ones(1, 1, n, n, dtype=torch.uint8)) for i in range(2)}
    return {**short, **masks}


def changed(tensors):
    """Halves, under their full names, with a head that is the embedding."""
    full = {k: v.half() for k, v in tensors.items() if not k.endswith((".attn.bias", ".masked_bias"))}
    return {**full, "lm_head.weight": full["transformer.wte.weight"].clone()}


root = pathlib.Path(sys.argv[1])
make(root / "published", published, 1)
make(root / "changed", changed, 2, activation_function="gelu", layer_norm_epsilon=0.01)
