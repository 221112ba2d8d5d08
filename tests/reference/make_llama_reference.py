"""Tiny models of the Llama family as transformers saves them, and what they compute: tests/reference/llama.

make_llama_reference.py FOLDER    (needs torch and transformers; made with 2.15 and 5.23)

Llama with scaled rotations whose wavelengths are in all three ranges and a head of its own; Qwen2, with
biases; Qwen3, with norms of queries and keys.

transformers computes norms, rotations and softmax in f32 whatever the type. So the logits, loss and gradients that are written are
those of a plain model in f64 (`forward` here), which are first held to 1e-5 of transformers' in f32.
"""

import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

SHAPE = dict(
    num_hidden_layers=2,
    hidden_size=24,
    intermediate_size=40,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    vocab_size=50,
    rms_norm_eps=1e-5,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,  # that row of the embedding would get no gradient
    attn_implementation="eager",
)
SCALED = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=512,
)
WIDE = {**SHAPE, "head_dim": 16}
KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**WIDE, tie_word_embeddings=False, rope_parameters=SCALED)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE, tie_word_embeddings=True)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, tie_word_embeddings=True)),
}
ROWS, TOKENS, PROMPT, WRITTEN = 2, 20, 6, 24
STEPS, RATE, BETAS, EPS, DECAY, CLIP = 5, 0.01, (0.9, 0.95), 1e-8, 0.1, 1.0


def inverse_frequencies(config):
    """As everybody computes them: every step rounded to f32."""
    f32, rope = np.float32, config.rope_parameters
    exponents = np.arange(0, config.head_dim, 2).astype(f32) / f32(config.head_dim)
    all = f32(1) / (np.float64(rope["rope_theta"]) ** exponents.astype(np.float64)).astype(f32)
    if rope["rope_type"] == "default":
        return all
    old, low, high = (f32(rope[k]) for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    wavelengths, scaled = f32(2 * np.pi) / all, all / f32(rope["factor"])
    m = (old / wavelengths - low) / (high - low)
    between = (f32(1) - m) * all / f32(rope["factor"]) + m * all
    return np.where(wavelengths < old / high, all, np.where(wavelengths > old / low, scaled, between))


def norm(x, weight, eps):
    return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def turn(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def forward(p, config, tokens):
    """Logits of parameters p by transformers' names; in f64, if they are."""
    c, eps, D = config, config.rms_norm_eps, config.head_dim
    B, T = tokens.shape
    angles = np.outer(np.arange(T, dtype=np.float32), inverse_frequencies(c)).astype(np.float64)  # the product in f32
    cos, sin = torch.from_numpy(np.cos(angles)), torch.from_numpy(np.sin(angles))
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    x = p["model.embed_tokens.weight"][tokens]
    for layer in range(c.num_hidden_layers):

        def part(name):
            return p[f"model.layers.{layer}.{name}.weight"]

        def heads(h, name):
            h = h @ part(f"self_attn.{name}_proj").T
            h = h + p.get(f"model.layers.{layer}.self_attn.{name}_proj.bias", 0)
            h = h.view(B, T, -1, D).transpose(1, 2)
            named = f"model.layers.{layer}.self_attn.{name}_norm.weight"
            h = norm(h, p[named], eps) if named in p else h
            h = h if name == "v" else turn(h, cos, sin)
            return h if name == "q" else h.repeat_interleave(c.num_attention_heads // c.num_key_value_heads, dim=1)

        h = norm(x, part("input_layernorm"), eps)
        q, k, v = (heads(h, name) for name in "qkv")
        scores = (q @ k.transpose(2, 3) / D**0.5).masked_fill(later, -torch.inf)
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1) @ part("self_attn.o_proj").T
        h = norm(x, part("post_attention_layernorm"), eps)
        gate, up = h @ part("mlp.gate_proj").T, h @ part("mlp.up_proj").T
        x = x + (gate * torch.sigmoid(gate) * up) @ part("mlp.down_proj").T
    return norm(x, p["model.norm.weight"], eps) @ p.get("lm_head.weight", p["model.embed_tokens.weight"]).T


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def in_f64(model):
    return {name: p.detach().double().requires_grad_() for name, p in model.named_parameters()}


def expect_close(name, ours, theirs, bound=1e-5):
    off = ((ours - theirs.double()).abs().max() / ours.abs().max()).item()
    assert off <= bound, f"{name} is off by {off:.1e} of the largest"


def in_both(model, config, tokens, targets):
    """Logits, loss and gradients in f64, held to transformers'."""
    p = in_f64(model)
    logits, theirs = forward(p, config, tokens), model(tokens).logits
    loss, their_loss = cross_entropy(logits, targets), cross_entropy(theirs, targets)
    loss.backward()
    their_loss.backward()
    expect_close("logits", logits, theirs)
    expect_close("loss", loss, their_loss)
    for name, parameter in model.named_parameters():
        expect_close(name, p[name].grad, parameter.grad)
    return {"logits": logits, "loss": loss, **{"grad." + name: q.grad for name, q in p.items()}}


def written(model, tokens):
    """The likeliest tokens after a prompt; none won narrowly."""
    prompt = tokens[:1, :PROMPT]
    text = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=WRITTEN)
    best = model(text[:, :-1]).logits[0, PROMPT - 1 :].topk(2).values
    assert (best[:, 0] - best[:, 1]).min() > 1e-3
    return text.int()


def off_in_bf16(folder, cls, config, tokens):
    """How far transformers in bf16 is from f64 with the same weights, which are bf16's; and those logits."""
    model = cls.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
    logits = forward(in_f64(model), config, tokens)
    off = (model(tokens).logits.double() - logits).abs()
    return {"bf16.logits": logits, "bf16.largest_error": off.max(), "bf16.mean_square_error": off.square().mean()}


def losses_of_training(model, tokens, targets):
    """The loss before each step on the same batch, and after the last; changes the model."""
    matrices, others = ([p for p in model.parameters() if (p.dim() > 1) == wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPS)
    losses = []
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens).logits, targets)
        losses.append(loss.item())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64)


def make(folder, cls, config):
    torch.manual_seed(1)
    model = cls(config).eval()
    with torch.no_grad():
        for p in model.parameters():  # far from the usual start, so that every part matters
            p.add_(torch.randn_like(p) * 0.2)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens, targets = (torch.randint(0, SHAPE["vocab_size"], (ROWS, TOKENS)) for _ in range(2))
    expected = {"tokens": tokens.int(), "targets": targets.int(), **in_both(model, config, tokens, targets)}
    expected["text"] = written(model, tokens)
    expected.update(off_in_bf16(folder, cls, config, tokens))
    expected["losses"] = losses_of_training(model, tokens, targets)
    expected = {k: v.detach().reshape(v.shape or (1,)).contiguous() for k, v in expected.items()}
    save_file(expected, folder / "expected.safetensors")


if __name__ == "__main__":
    for name, (cls, config) in KINDS.items():
        make(pathlib.Path(sys.argv[1]) / name, cls, config)
