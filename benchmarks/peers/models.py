"""The sizes of models in Spool's presets (models/families/gpt2.h, llama_config.cpp).  Needs no PyTorch.

Both kinds have as the head the embedding of the tokens."""

from dataclasses import dataclass


@dataclass
class Gpt2Config:
    layers: int
    heads: int
    channels: int
    context: int = 1024
    vocabulary: int = 50304

    @property
    def attended(self):
        """Channels of all heads of queries."""
        return self.channels

    def matrix_weights(self):
        """Number of weights that a token is multiplied with."""
        C = self.channels
        return self.vocabulary * C + self.layers * 12 * C * C

    def parameters(self):
        """Number of parameters; the head is the embedding."""
        return self.matrix_weights() + (self.context + 2 + self.layers * 13) * self.channels


@dataclass
class LlamaConfig:
    layers: int
    heads: int
    key_heads: int
    head: int
    channels: int
    hidden: int
    context: int
    vocabulary: int
    theta: float

    @property
    def attended(self):
        return self.heads * self.head

    def matrix_weights(self):
        projected = 2 * (self.heads + self.key_heads) * self.head
        return self.channels * (self.vocabulary + self.layers * (projected + 3 * self.hidden))

    def parameters(self):
        return self.matrix_weights() + (2 * self.layers + 1) * self.channels


MODELS = {
    "gpt2-tiny": Gpt2Config(4, 4, 192, 128, 256),
    "gpt2-124m": Gpt2Config(12, 12, 768),
    "gpt2-355m": Gpt2Config(24, 16, 1024),
    "gpt2-774m": Gpt2Config(36, 20, 1280),
    "gpt2-1558m": Gpt2Config(48, 25, 1600),
    "smollm2-135m": LlamaConfig(30, 9, 3, 64, 576, 1536, 8192, 49152, 1e5),
    "llama-3.2-1b": LlamaConfig(16, 32, 8, 64, 2048, 8192, 131072, 128256, 5e5),
}


def step_flops(config, B, T):
    """Flops of a step's products; attention's are counted without the mask."""
    return B * T * (6 * config.matrix_weights() + 12 * config.layers * config.attended * T)
