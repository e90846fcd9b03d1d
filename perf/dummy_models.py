"""Models without a download: made of a shape, or of another model; random weights, adapters."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = 16_384
"""Size of the tokenizer. Models have a larger `Layout.vocabulary`, as Qwen's do."""
SHARD_BYTES = 2 << 30
SPREAD = 0.02
"""Standard deviation of the weights, as training begins."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a Qwen2 model; weights are bfloat16."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int = 152_064
    context: int = 32_768

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of all of them, as checkpoints name them."""
        kv = self.kv_heads * self.head
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden)
        }
        for layer in range(self.layers):
            at = f"model.layers.{layer}"
            for name, size in (("q", self.hidden), ("k", kv), ("v", kv)):
                shapes[f"{at}.self_attn.{name}_proj.weight"] = (size, self.hidden)
                shapes[f"{at}.self_attn.{name}_proj.bias"] = (size,)
            shapes[f"{at}.self_attn.o_proj.weight"] = (self.hidden, self.hidden)
            for name in ("gate", "up"):
                shapes[f"{at}.mlp.{name}_proj.weight"] = (self.intermediate, self.hidden)
            shapes[f"{at}.mlp.down_proj.weight"] = (self.hidden, self.intermediate)
            for name in ("input", "post_attention"):
                shapes[f"{at}.{name}_layernorm.weight"] = (self.hidden,)
        shapes["model.norm.weight"] = (self.hidden,)
        shapes["lm_head.weight"] = (self.vocabulary, self.hidden)
        return shapes

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.tensors().values())

    @property
    def bytes(self) -> int:
        return 2 * self.parameters


SHAPES = {
    "7b": Shape(3584, 28, 28, 4, 18944),  # Qwen2.5-7B's
    "tiny": Shape(64, 4, 2, 2, 128),
}


def make_model(folder: Path, shape: Shape) -> Path:
    """A folder with configuration and tokenizer, without weights: ``load_format: dummy``."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    _make_tokenizer(folder, shape.context)
    return folder


def _make_tokenizer(folder: Path, context: int) -> None:
    """A byte-level BPE of this checkout's pages and sources: the flavour for GPUs brings none."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), *ROOT.glob("ace_ray/**/*.py")]
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train(sorted(map(str, texts)), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": context,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_weights(folder: Path, shape: Shape, seed: int, shard_bytes: int = SHARD_BYTES) -> None:
    """Random weights of ``shape`` into ``folder``, in shards of ``shard_bytes`` or one tensor. All
    tensors are cut from one pool of random numbers, which saves time."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(seed)
    pool = (torch.randn(1 << 24, generator=generator) * SPREAD).to(torch.bfloat16)
    shards = list(_shards(shape, shard_bytes))
    placed: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {}
        for name, sizes in names.items():
            if "norm" in name:
                tensors[name] = torch.ones(sizes, dtype=torch.bfloat16)
                continue
            begin = int(torch.randint(len(pool), (1,), generator=generator))
            rolled, count = torch.roll(pool, -begin), math.prod(sizes)
            repeated = rolled.repeat(math.ceil(count / len(pool)))
            tensors[name] = repeated[:count].reshape(sizes).clone()
        save_file(tensors, folder / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": shape.bytes}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _shards(shape: Shape, limit_bytes: int) -> Iterator[dict[str, tuple[int, ...]]]:
    shard: dict[str, tuple[int, ...]] = {}
    shard_bytes = 0
    for name, sizes in shape.tensors().items():
        size = 2 * math.prod(sizes)
        if shard and shard_bytes + size > limit_bytes:
            yield shard
            shard, shard_bytes = {}, 0
        shard[name] = sizes
        shard_bytes += size
    yield shard


def make_adapter(folder: Path, base: Path, shape: Shape, seed: int, rank: int = 16) -> Path:
    """A LoRA adapter with random weights on all linear layers of ``base``."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    tensors = {}
    for name, sizes in shape.tensors().items():
        if not name.endswith("_proj.weight"):
            continue
        outer, inner = sizes
        for part, size in (("A", (rank, inner)), ("B", (outer, rank))):
            key = f"base_model.model.{name.removesuffix('.weight')}.lora_{part}.weight"
            drawn = torch.randn(size, generator=generator) * 2 * SPREAD
            tensors[key] = drawn.to(torch.bfloat16)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": targets,
        "bias": "none",
        "base_model_name_or_path": str(base),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def tiny_llama(real: Path, folder: Path, layers: int = 2) -> Path:
    """A 64-wide Llama with the tokenizer of ``real``, without weights: ``load_format: dummy``."""
    folder.mkdir()
    for file in real.iterdir():
        if file.suffix in (".json", ".jinja") and not file.name.startswith("model"):
            shutil.copy(file, folder)
    config = json.loads((real / "config.json").read_text())
    config.update(hidden_size=64, intermediate_size=128, num_hidden_layers=layers)
    config.update(num_attention_heads=2, num_key_value_heads=2, head_dim=32)
    (folder / "config.json").write_text(json.dumps(config))
    return folder
