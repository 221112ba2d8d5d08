"""The models of Spool's benchmark `step` in PyTorch, as Spool computes them.

Gpt2 is that of models/families/gpt2.h: layer norms before attention and MLP, learned positions, tanh
GELU, the embedding as the head.  Llama is that of models/families/llama.h: RMS norms, rotary positions,
groups of queries that share keys and values, a SiLU gate, the embedding as the head; its rotations are
those of one theta, as what scales them for long texts costs no time.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from models import LlamaConfig


def call(block, x):
    return block(x)


def set_initial_values(model, layers):
    """Normal with deviation 0.02 for matrices, less for those that add to the residual stream."""
    for name, p in model.named_parameters():
        if p.dim() > 1:
            joins = name.endswith("projection.weight")
            nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if joins else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


class Gpt2Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        C = config.channels
        self.heads = config.heads
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.attention, self.projection = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc, self.fc_projection = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.attention(self.ln_1(x)).view(B, T, 3, self.heads, C // self.heads).unbind(2)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + self.projection(y.transpose(1, 2).reshape(B, T, C))
        return x + self.fc_projection(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """run_block runs a block on its input, for example by torch.utils.checkpoint."""

    def __init__(self, config, run_block=call):
        super().__init__()
        C = config.channels
        self.run_block = run_block
        self.wte, self.wpe = nn.Embedding(config.vocabulary, C), nn.Embedding(config.context, C)
        self.blocks = nn.ModuleList(Gpt2Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(C)
        set_initial_values(self, config.layers)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = self.run_block(block, x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rotated(x, rotations):
    """x (B, H, T, head) with the two halves of each head turned by its position."""
    cosines, sines = rotations
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        C, queries, keys = config.channels, config.heads * config.head, config.key_heads * config.head
        self.sizes, self.head = (queries, keys, keys), config.head
        self.norm_1, self.norm_2 = nn.RMSNorm(C, eps=1e-5), nn.RMSNorm(C, eps=1e-5)
        self.attention = nn.Linear(C, sum(self.sizes), bias=False)
        self.projection = nn.Linear(queries, C, bias=False)
        self.gate_up = nn.Linear(C, 2 * config.hidden, bias=False)
        self.down_projection = nn.Linear(config.hidden, C, bias=False)

    def forward(self, state):
        x, rotations = state
        B, T, _ = x.shape
        parts = self.attention(self.norm_1(x)).split(self.sizes, dim=-1)
        q, k, v = (part.view(B, T, -1, self.head).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(
            rotated(q, rotations), rotated(k, rotations), v, is_causal=True, enable_gqa=True
        )
        x = x + self.projection(y.transpose(1, 2).reshape(B, T, -1))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down_projection(F.silu(gate) * up), rotations


class Llama(nn.Module):
    """run_block runs a block on its input, for example by torch.utils.checkpoint."""

    def __init__(self, config, run_block=call):
        super().__init__()
        C = config.channels
        self.run_block, self.head, self.theta = run_block, config.head, config.theta
        self.embedding = nn.Embedding(config.vocabulary, C)
        self.blocks = nn.ModuleList(LlamaBlock(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(C, eps=1e-5)
        set_initial_values(self, config.layers)

    def rotations(self, x):
        T, half = x.shape[1], self.head // 2
        frequencies = self.theta ** (-torch.arange(half, device=x.device).float() / half)
        angles = torch.outer(torch.arange(T, device=x.device).float(), frequencies)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        rotations = self.rotations(x)
        for block in self.blocks:
            x, rotations = self.run_block(block, (x, rotations))
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_model(config, run_block=call):
    return (Llama if isinstance(config, LlamaConfig) else Gpt2)(config, run_block)
