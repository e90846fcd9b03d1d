"""A tiny model that a real engine loads, and vLLM renderers without an engine."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ace_ray.models.probe import TEXTS

HIDDEN, INNER, WORDS = 64, 128, 512
CHAT = (
    "{% for m in messages %}<|{{ m.role }}|> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": WORDS,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
    "tie_word_embeddings": False,
}


def _save(folder: Path, tokenizer: Any, **settings: Any) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps(LLAMA))


@pytest.fixture(scope="session")
def tiny_llama() -> Callable[..., Path]:
    """Make a Llama of two layers with random weights and a tokenizer of words."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    tokenizers = pytest.importorskip("tokenizers")

    def make(folder: Path) -> Path:
        folder.mkdir(parents=True)
        random = np.random.default_rng(0)
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (WORDS, HIDDEN),
            "lm_head.weight": (WORDS, HIDDEN),
            "model.norm.weight": (HIDDEN,),
        }
        for at in ("model.layers.0", "model.layers.1"):
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                shapes[f"{at}.self_attn.{name}.weight"] = (HIDDEN, HIDDEN)
            for name in ("gate_proj", "up_proj"):
                shapes[f"{at}.mlp.{name}.weight"] = (INNER, HIDDEN)
            shapes[f"{at}.mlp.down_proj.weight"] = (HIDDEN, INNER)
            for name in ("input_layernorm", "post_attention_layernorm"):
                shapes[f"{at}.{name}.weight"] = (HIDDEN,)
        weights = {
            name: np.ones(shape) if len(shape) == 1 else random.normal(0, 0.3, shape)
            for name, shape in shapes.items()
        }
        weights = {name: array.astype(np.float32) for name, array in weights.items()}
        numpy_files.save_file(weights, folder / "model.safetensors", {"format": "pt"})
        known = ["[UNK]", "<s>", "</s>", *dict.fromkeys(" ".join(TEXTS).split())]
        known += [f"w{number}" for number in range(len(known), WORDS)]
        words = {word: number for number, word in enumerate(known)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        tokens = {"unk_token": "[UNK]", "bos_token": "<s>", "eos_token": "</s>"}
        _save(folder, tokenizer, chat_template=CHAT, **tokens)
        return folder

    return make


def _save_letters(folder: Path, template: str, marks: Sequence[str]) -> None:
    """Save a tokenizer that has bytes and ``marks`` as tokens: every text comes back from them."""
    tokenizers = pytest.importorskip("tokenizers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    numbered = {letter: number for number, letter in enumerate(letters)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=numbered, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(list(marks))
    _save(folder, made, chat_template=template)


@pytest.fixture(scope="session")
def vllm_config(vllm: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return vLLM's configuration for a toy model, as an engine makes it."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    folder = tmp_path_factory.mktemp("toy")
    _save_letters(folder, "{{ messages }}", ())
    return AsyncEngineArgs(model=str(folder)).create_engine_config()


@pytest.fixture
def make_renderer(vllm_config: Any, tmp_path: Path) -> Callable[..., tuple[Any, Any]]:
    """Make (model_config, renderer) of a toy tokenizer with a template, and with marks that are
    single tokens. vLLM takes the model for a ``model_type``."""

    def make(
        template: str,
        marks: Sequence[str] = (),
        *,
        model_type: str = "llama",
        tokenizer: Any = None,
        renderer: Any = None,
    ) -> tuple[Any, Any]:
        from vllm.renderers.hf import HfRenderer
        from vllm.tokenizers.hf import get_cached_tokenizer

        if tokenizer is None:
            transformers = pytest.importorskip("transformers")
            folder = tmp_path / f"tokenizer{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            _save_letters(folder, template, marks)
            loaded = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
            tokenizer = get_cached_tokenizer(loaded)
        config = copy.copy(vllm_config)
        config.model_config = copy.copy(vllm_config.model_config)
        config.model_config.hf_config = SimpleNamespace(
            model_type=model_type, architectures=["LlamaForCausalLM"]
        )
        return config.model_config, (renderer or HfRenderer)(config, tokenizer)

    return make
