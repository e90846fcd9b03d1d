"""A model that a real engine loads in no time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ace_ray.models.probe import TEXTS

HIDDEN, LAYERS, HEADS, WORDS = 64, 2, 2, 512
CHAT = (
    "{% for m in messages %}<|{{ m.role }}|> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_llama() -> Callable[..., Path]:
    """Makes a Llama of two layers with random weights and a tokenizer of words."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    tokenizers = pytest.importorskip("tokenizers")

    def make(folder: Path, seed: int = 0) -> Path:
        folder.mkdir(parents=True)
        random = np.random.default_rng(seed)
        inner = 2 * HIDDEN
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (WORDS, HIDDEN),
            "lm_head.weight": (WORDS, HIDDEN),
            "model.norm.weight": (HIDDEN,),
        }
        for layer in range(LAYERS):
            at = f"model.layers.{layer}"
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                shapes[f"{at}.self_attn.{name}.weight"] = (HIDDEN, HIDDEN)
            for name in ("gate_proj", "up_proj"):
                shapes[f"{at}.mlp.{name}.weight"] = (inner, HIDDEN)
            shapes[f"{at}.mlp.down_proj.weight"] = (HIDDEN, inner)
            for name in ("input_layernorm", "post_attention_layernorm"):
                shapes[f"{at}.{name}.weight"] = (HIDDEN,)
        weights = {
            name: (np.ones(shape) if len(shape) == 1 else random.normal(0, 0.3, shape)).astype(
                np.float32
            )
            for name, shape in shapes.items()
        }
        numpy_files.save_file(weights, folder / "model.safetensors", {"format": "pt"})
        config: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": inner,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "vocab_size": WORDS,
            "max_position_embeddings": 4096,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "dtype": "float32",
            "tie_word_embeddings": False,
        }
        (folder / "config.json").write_text(json.dumps(config))
        known = ["[UNK]", "<s>", "</s>", *dict.fromkeys(" ".join(TEXTS).split())]
        known += [f"w{number}" for number in range(len(known), WORDS)]
        words = {word: number for number, word in enumerate(known)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        tokenizer.save(str(folder / "tokenizer.json"))
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "[UNK]",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": CHAT,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return folder

    return make
