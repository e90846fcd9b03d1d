"""vLLM's renderers without an engine."""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.models.reparse_child import assume_device

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "max_position_embeddings": 4096,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "vocab_size": 64,
}


def save_letters(folder: Path, template: str, marks: Sequence[str]) -> None:
    """Save a tokenizer that has bytes and ``marks`` as tokens: every text comes back from them."""
    tokenizers = pytest.importorskip("tokenizers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    numbered = {letter: number for number, letter in enumerate(letters)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=numbered, merges=[]))
    options = {"add_prefix_space": False, "use_regex": False}
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(**options)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(list(marks))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps(LLAMA))


@pytest.fixture(scope="session")
def vllm_config(vllm: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return vLLM's configuration for a toy model, as an engine makes it."""
    assume_device()  # a build for GPUs may be tested here
    from vllm.engine.arg_utils import AsyncEngineArgs

    folder = tmp_path_factory.mktemp("toy")
    save_letters(folder, "{{ messages }}", ())
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
            save_letters(folder, template, marks)
            loaded = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
            tokenizer = get_cached_tokenizer(loaded)
        config = copy.copy(vllm_config)
        config.model_config = copy.copy(vllm_config.model_config)
        config.model_config.hf_config = SimpleNamespace(
            model_type=model_type, architectures=["LlamaForCausalLM"]
        )
        return config.model_config, (renderer or HfRenderer)(config, tokenizer)

    return make
