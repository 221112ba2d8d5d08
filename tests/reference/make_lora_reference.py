"""Adapters as PEFT saves them, on tiny models, and what these compute with them: tests/reference/lora.

make_lora_reference.py    (needs torch, transformers and peft; made with 2.15, 5.24 and 0.21.2)

Runs from the root of the repository, whose folders the adapters name as their bases. What is written is of a plain model in
f64 (`forward` of make_llama_reference.py, `logits_of` of make_gpt2_reference.py) whose weights are W + scale B A, differentiated
through A and B. PEFT's model in f32, which adds the two products, and its merged model are first held to it.
"""

import json
import math
import pathlib

import make_gpt2_reference as gpt2
import make_llama_reference as llama
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path("tests/reference")
ROWS, TOKENS, IGNORED = 2, 10, -100
STEPS, RATE, BETAS, EPS = 5, 1e-3, (0.9, 0.95), 1e-8

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
OTHERS = ["k_proj", "o_proj", "up_proj"]
USUAL = dict(r=4, lora_alpha=8, target_modules=SEVEN)
THREE = dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
ADAPTERS = {  # name: (folder of the base, settings)
    "llama": ("llama/llama", USUAL),
    "smollm2": ("lora/bases/smollm2", USUAL),
    "tinyllama": ("lora/bases/tinyllama", USUAL),
    "qwen2": ("llama/qwen2", USUAL),
    "qwen3": ("llama/qwen3", USUAL),
    "gpt2": ("transformers/published", THREE),
    "rank_stabilised": ("lora/bases/tinyllama", dict(r=3, lora_alpha=5, target_modules=OTHERS, use_rslora=True)),
    "few_targets": ("llama/qwen2", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "all_linear": ("lora/bases/tinyllama", dict(r=1, lora_alpha=8, target_modules="all-linear")),
}

COMMON = {k: llama.SHAPE[k] for k in ("vocab_size", "num_hidden_layers", "rms_norm_eps", "max_position_embeddings")}
BASES = {
    "smollm2": LlamaConfig(
        **COMMON,
        hidden_size=24,
        intermediate_size=28,
        num_attention_heads=3,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=100000.0),
    ),
    "tinyllama": LlamaConfig(
        **COMMON,
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0),
    ),
}


def make_base(folder, config):
    torch.manual_seed(3)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for p in model.parameters():  # far from the usual start, so that every part matters
            p.add_(torch.randn_like(p) * 0.2)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def write_as_published(path):
    """As transformers 4 wrote it, and the hub has TinyLlama's."""
    config = json.loads(path.read_text())
    del config["head_dim"]
    config["rope_theta"], config["rope_scaling"] = config.pop("rope_parameters")["rope_theta"], None
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.35.0"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def opened(base):
    return AutoModelForCausalLM.from_pretrained(ROOT / base, attn_implementation="eager")


def adapted(base, settings):
    """PEFT's model, whose B are not zero."""
    model = get_peft_model(opened(base), LoraConfig(task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.copy_(torch.randn_like(p) * 0.2)
    return model


def save_adapter(model, base, folder):
    model.peft_config["default"].base_model_name_or_path = str(ROOT / base)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"].sort()  # a set, which is saved in any order
    path.write_text(json.dumps(config, indent=2))


def loaded(base, folder):
    return PeftModel.from_pretrained(opened(base), folder, is_trainable=True).eval()


class Plain:
    """The model in f64: frozen weights by transformers' names, and A and B by those of the adapter's file."""

    def __init__(self, model):
        self.config, settings = model.config, model.peft_config["default"]
        self.scale = settings.lora_alpha / (math.sqrt(settings.r) if settings.use_rslora else settings.r)
        self.of_gpt2 = self.config.model_type == "gpt2"
        self.frozen, self.trained = {}, {}
        for name, p in model.named_parameters():
            p = p.detach().double()
            if is_adapter(name):
                self.trained[in_file(name)] = p.requires_grad_()
            else:
                self.frozen[name.removeprefix("base_model.model.").replace(".base_layer", "")] = p

    def weights(self):
        p = dict(self.frozen)
        for name, a in self.trained.items():
            if name.endswith(".lora_A.weight"):
                change = self.scale * (self.trained[name.replace("lora_A", "lora_B")] @ a)
                target = name.removeprefix("base_model.model.").replace(".lora_A", "")
                p[target] = p[target] + (change.T if self.of_gpt2 else change)  # GPT-2's are (in, out)
        return p

    def logits(self, tokens):
        if not self.of_gpt2:
            return llama.forward(self.weights(), self.config, tokens)
        gpt2.L, gpt2.H, gpt2.C = self.config.n_layer, self.config.n_head, self.config.n_embd
        return gpt2.logits_of({k.removeprefix("transformer."): v for k, v in self.weights().items()}, tokens)


def is_adapter(name):
    return ".lora_A." in name or ".lora_B." in name


def in_file(name):
    return name.replace(".default", "")


def draw(vocabulary):
    """A prompt that is not learnt, and single targets that are not."""
    tokens, targets = (torch.randint(0, vocabulary, (ROWS, TOKENS)) for _ in range(2))
    targets[0, :4] = targets[1, 6] = targets[1, TOKENS - 1] = IGNORED
    return tokens, targets


def losses_of_training(parameters, loss):
    """The loss before each step and after the last, the first step's gradients, and the parameters after it."""
    optimizer = torch.optim.AdamW(parameters.values(), lr=RATE, betas=BETAS, eps=EPS, weight_decay=0.0)
    losses = []
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        value = loss()
        losses.append(value.item())
        value.backward()
        if step == 0:
            gradients = {name: p.grad.clone() for name, p in parameters.items()}
        optimizer.step()
        if step == 0:
            after = {name: p.detach().clone() for name, p in parameters.items()}
    return torch.tensor(losses, dtype=torch.float64), gradients, after


def computed(model, tokens, targets):
    """What the plain model computes; PEFT's is held to it. Changes both."""
    plain = Plain(model)
    theirs = {in_file(name): p for name, p in model.named_parameters() if is_adapter(name)}
    logits = plain.logits(tokens)
    llama.expect_close("logits", logits, model(tokens).logits)
    losses, gradients, after = losses_of_training(plain.trained, lambda: llama.cross_entropy(plain.logits(tokens), targets))
    their_losses, their_gradients, their_after = losses_of_training(
        theirs, lambda: llama.cross_entropy(model(tokens).logits, targets)
    )
    llama.expect_close("losses", losses, their_losses)
    for name in plain.trained:
        llama.expect_close("gradient of " + name, gradients[name], their_gradients[name])
        llama.expect_close(name + " after a step", after[name], their_after[name])
    result = {"logits": logits, "loss": losses[0].clone(), "losses": losses}
    result.update({"grad." + name: g for name, g in gradients.items()})
    last = list(after)[-2:]  # A and B of one target
    return {**result, **{"after." + name: after[name] for name in last}}


def make(folder, base, settings):
    torch.manual_seed(4)
    save_adapter(adapted(base, settings), base, folder)
    model = loaded(base, folder)
    tokens, targets = draw(model.config.vocab_size)
    expected = {"tokens": tokens.int(), "targets": targets.int(), **computed(model, tokens, targets)}
    expected["merged.logits"] = loaded(base, folder).merge_and_unload()(tokens).logits
    llama.expect_close("logits of the merged model", expected["logits"], expected["merged.logits"])
    expected = {k: v.detach().reshape(v.shape or (1,)).contiguous() for k, v in expected.items()}
    save_file(expected, folder / "expected.safetensors")


def main():
    for name, config in BASES.items():
        make_base(ROOT / "lora/bases" / name, config)
    write_as_published(ROOT / "lora/bases/tinyllama/config.json")
    for name, (base, settings) in ADAPTERS.items():
        make(ROOT / "lora" / name, base, settings)


if __name__ == "__main__":
    main()
