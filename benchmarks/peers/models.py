"""The sizes of GPT-2 in Spool's presets (models/families/gpt2.h).  Needs no PyTorch."""

from dataclasses import dataclass


@dataclass
class Config:
    layers: int
    heads: int
    channels: int
    context: int = 1024
    vocabulary: int = 50304

    def parameters(self):
        """Number of parameters; the head is the embedding."""
        C = self.channels
        return (self.vocabulary + self.context + 2) * C + self.layers * (12 * C * C + 13 * C)


MODELS = {
    "gpt2-tiny": Config(4, 4, 192, 128, 256),
    "gpt2-124m": Config(12, 12, 768),
    "gpt2-355m": Config(24, 16, 1024),
    "gpt2-774m": Config(36, 20, 1280),
    "gpt2-1558m": Config(48, 25, 1600),
}


def step_flops(config, B, T):
    """Flops of a step's products; attention's are counted without the mask."""
    L, C, V = config.layers, config.channels, config.vocabulary
    return B * T * (6 * (12 * L * C * C + V * C) + 12 * L * C * T)
