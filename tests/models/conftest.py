"""A model that a real engine loads in no time, and what writes chats without an engine."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ace_ray.models.probe import TEXTS

HIDDEN, LAYERS, HEADS, WORDS = 64, 2, 2, 512
CHAT = (
    "{% for m in messages %}<|{{ m.role }}|> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

MakeRenderer = Callable[..., tuple[Any, Any]]


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


@pytest.fixture(scope="session")
def vllm_config(vllm: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """vLLM's configuration for a toy model, as an engine makes it."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    folder = tmp_path_factory.mktemp("toy")
    _save_tokenizer(folder, "{{ messages }}", ())
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 4096,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "intermediate_size": 64,
        "vocab_size": 64,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return AsyncEngineArgs(model=str(folder)).create_engine_config()


@pytest.fixture
def make_renderer(
    vllm_config: Any,
    tmp_path: Path,
) -> MakeRenderer:
    """Makes (model_config, renderer) of a toy tokenizer with a template and marks that are tokens
    of their own; ``model_type`` is what vLLM takes the model for."""

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
            _save_tokenizer(folder, template, marks)
            loaded = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
            tokenizer = get_cached_tokenizer(loaded)
        config = copy.copy(vllm_config)
        config.model_config = copy.copy(vllm_config.model_config)
        config.model_config.hf_config = SimpleNamespace(
            model_type=model_type, architectures=["LlamaForCausalLM"]
        )
        return config.model_config, (renderer or HfRenderer)(config, tokenizer)

    return make


def _save_tokenizer(folder: Path, template: str, marks: Sequence[str]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    # Bytes as characters: every text comes back from its tokens.
    letters: Mapping[str, int] = {
        letter: number
        for number, letter in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    }
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=dict(letters), merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(list(marks))
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
