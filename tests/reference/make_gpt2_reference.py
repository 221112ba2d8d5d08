"""A small GPT-2 in PyTorch, float64, and what it computes: the numbers that gpt2_test.cpp and
gpt2_steps_test.cpp compare with.

Run by hand, once, with Debian's python3 and python3-torch; see README.md.  The model is
written out in plain operations, and the script checks itself against PyTorch's own layers, loss and optimizer.
"""

import json
import math
import pathlib
import random
import struct

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
L, H, C, CONTEXT, V = 2, 3, 24, 16, 61
B, T = 2, 13
IGNORED = -100
STEPS, LR, BETAS, EPS, DECAY, CLIP = 10, 1e-2, (0.9, 0.95), 1e-8, 0.1, 1.0
CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"}


def save(path, tensors, metadata):
    """As safetensors: the header's length, the header, the bytes."""
    header, data = {"__metadata__": {k: str(v) for k, v in metadata.items()}}, b""
    for name, t in tensors.items():
        t = t.detach().contiguous()
        begin, data = len(data), data + t.numpy().tobytes()
        header[name] = {
            "dtype": DTYPES[t.dtype],
            "shape": list(t.shape),
            "data_offsets": [begin, len(data)],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def shapes():
    yield "wte.weight", (V, C)
    yield "wpe.weight", (CONTEXT, C)
    for i in range(L):
        for norm in "ln_1", "ln_2":
            yield f"h.{i}.{norm}.weight", (C,)
            yield f"h.{i}.{norm}.bias", (C,)
        sizes = ((C, 3 * C), (C, C), (C, 4 * C), (4 * C, C))  # (in, out)
        for name, size in zip(CONV1D, sizes):
            yield f"h.{i}.{name}", size
            yield f"h.{i}.{name[:-6]}bias", size[1:]
    yield "ln_f.weight", (C,)
    yield "ln_f.bias", (C,)


def initial_parameters(draw):
    """Larger than GPT-2's own, so that every term matters; multiples of 2^-20, which f32 holds."""
    parameters = {}
    for name, shape in shapes():
        numbers = [round(draw.gauss(0, 0.15) * 2**20) / 2**20 for _ in range(math.prod(shape))]
        t = torch.tensor(numbers, dtype=torch.float64).reshape(shape)
        parameters[name] = t + 1 if ".ln_" in f".{name}" and name.endswith("weight") else t
    return parameters


def layer_norm(x, p, name):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def linear(x, p, name):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(x, p, name):
    rows, length, _ = x.shape
    packed = linear(x, p, name + ".c_attn").reshape(rows, length, 3, H, C // H)
    q, k, v = packed.permute(2, 0, 3, 1, 4)  # (rows, H, length, D) each
    scores = q @ k.transpose(-1, -2) / math.sqrt(C // H)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return linear(mixed.transpose(1, 2).reshape(rows, length, C), p, name + ".c_proj")


def logits_of(p, tokens):
    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    for i in range(L):
        h = f"h.{i}"
        x = x + attention(layer_norm(x, p, f"{h}.ln_1"), p, f"{h}.attn")
        inner = gelu(linear(layer_norm(x, p, f"{h}.ln_2"), p, f"{h}.mlp.c_fc"))
        x = x + linear(inner, p, f"{h}.mlp.c_proj")
    return layer_norm(x, p, "ln_f") @ p["wte.weight"].T


def loss_of(logits, targets):
    """The mean over the targets that count."""
    counts = targets != IGNORED
    chosen = logits.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (logits.logsumexp(-1) - chosen)[counts].sum() / counts.sum()


def gradients_of(p, tokens, targets):
    p = {name: t.detach().requires_grad_() for name, t in p.items()}
    logits = logits_of(p, tokens)
    loss = loss_of(logits, targets)
    gradients = torch.autograd.grad(loss, list(p.values()))
    return logits.detach(), loss.detach(), dict(zip(p, gradients))


def train(p, tokens, targets):
    """The loss before each step and after the last, and the norm of each step's gradients."""
    p = dict(p)
    m = {name: torch.zeros_like(t) for name, t in p.items()}
    v = {name: torch.zeros_like(t) for name, t in p.items()}
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        _, loss, gradients = gradients_of(p, tokens, targets)
        norm = math.sqrt(sum((g**2).sum().item() for g in gradients.values()))
        losses.append(loss.item())
        norms.append(norm)
        for name, t in p.items():
            g = gradients[name] * min(1.0, CLIP / norm)
            m[name] = BETAS[0] * m[name] + (1 - BETAS[0]) * g
            v[name] = BETAS[1] * v[name] + (1 - BETAS[1]) * g**2
            direction = m[name] / (1 - BETAS[0] ** step)
            direction /= torch.sqrt(v[name] / (1 - BETAS[1] ** step)) + EPS
            decay = DECAY if t.dim() == 2 else 0.0
            p[name] = t - LR * (direction + decay * t)
    losses.append(loss_of(logits_of(p, tokens), targets).item())
    return losses, norms, p


def check_layers(p):
    x = torch.linspace(-3, 3, 2 * 5 * C, dtype=torch.float64).reshape(2, 5, C).sin()
    weight, bias = p["h.0.ln_1.weight"], p["h.0.ln_1.bias"]
    torch.testing.assert_close(layer_norm(x, p, "h.0.ln_1"), F.layer_norm(x, (C,), weight, bias))
    torch.testing.assert_close(gelu(x), F.gelu(x, approximate="tanh"))
    theirs = torch.nn.MultiheadAttention(C, H, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data = p["h.0.attn.c_attn.weight"].T
    theirs.in_proj_bias.data = p["h.0.attn.c_attn.bias"]
    theirs.out_proj.weight.data = p["h.0.attn.c_proj.weight"].T
    theirs.out_proj.bias.data = p["h.0.attn.c_proj.bias"]
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(x, x, x, attn_mask=future, need_weights=False)[0]
    torch.testing.assert_close(attention(x, p, "h.0.attn"), expected.detach())


def check_training(p, tokens, targets, losses):
    p = {name: t.clone().requires_grad_() for name, t in p.items()}
    groups = [
        {"params": [t for t in p.values() if t.dim() == 2], "weight_decay": DECAY},
        {"params": [t for t in p.values() if t.dim() != 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    theirs = []
    for _ in range(STEPS + 1):
        loss = F.cross_entropy(logits_of(p, tokens).reshape(-1, V), targets.reshape(-1))
        theirs.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        optimizer.step()
    # PyTorch adds 1e-6 to the norm it divides by.
    torch.testing.assert_close(torch.tensor(theirs), torch.tensor(losses), rtol=1e-5, atol=0)


def main():
    draw = random.Random(20240326)
    parameters = initial_parameters(draw)
    tokens = torch.tensor([[draw.randrange(V) for _ in range(T)] for _ in range(B)])
    targets = torch.tensor([[draw.randrange(V) for _ in range(T)] for _ in range(B)])
    targets[0, 4] = targets[1, 0] = targets[1, T - 1] = IGNORED

    logits, loss, gradients = gradients_of(parameters, tokens, targets)
    losses, norms, final = train(parameters, tokens, targets)
    check_layers(parameters)
    check_training(parameters, tokens, targets, losses)

    single = {name: t.float() for name, t in parameters.items()}
    assert all(torch.equal(single[name].double(), t) for name, t in parameters.items())
    in_single = train(single, tokens, targets)[0]
    print("losses:", *(f"{x:.6f}" for x in losses))
    print("gradient norms:", *(f"{x:.4f}" for x in norms))
    print("float32 differs by", max(abs(a - b) / b for a, b in zip(in_single, losses)))

    config = {"n_layer": L, "n_head": H, "n_embd": C, "n_positions": CONTEXT, "vocab_size": V}
    save(HERE / "gpt2.safetensors", single, config)
    expected = {"tokens": tokens.int(), "targets": targets.int(), "logits": logits, "loss": loss}
    expected |= {f"grad.{name}": g for name, g in gradients.items()}
    expected |= {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "gradient_norms": torch.tensor(norms, dtype=torch.float64),
        "final.wte.weight": final["wte.weight"],
        "final.h.1.mlp.c_proj.weight": final["h.1.mlp.c_proj.weight"],
        "final.ln_f.bias": final["ln_f.bias"],
    }
    settings = {"steps": STEPS, "lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS}
    settings |= {"weight_decay": DECAY, "clip": CLIP, "torch": torch.__version__}
    save(HERE / "gpt2_expected.safetensors", expected, settings)


if __name__ == "__main__":
    main()
