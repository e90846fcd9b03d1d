"""How large a model is, before its weights are on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ace_ray.models.checkpoints import INDEX, parameters, shards_of, weight_bytes, weight_names
from ace_ray.models.sources import ModelRef, file_sizes, tokenizer_folder

_WIDTH = {"float32": 4, "float": 4}
"""Bytes of a number in vLLM's types; in all others 2. ``auto`` loads 32 bits as 16."""

_WITHOUT_FILES = ("fake", "endpoint")


@dataclass(frozen=True)
class Size:
    bytes: int
    """Of the weights as they are stored."""
    parameters: int | None
    """Numbers in them; None where only the bytes are known."""
    quantized: bool = False

    def loaded_bytes(self, dtype: str) -> int:
        """Of the weights in an engine with vLLM's ``dtype``; quantized ones stay as stored."""
        if self.quantized or self.parameters is None:
            return self.bytes
        return self.parameters * _WIDTH.get(dtype, 2)


def size_of(ref: ModelRef) -> Size | None:
    """The size of a model's weights; None where it cannot be told before they are fetched. Raises
    `UserError`: a file, folder or prefix that cannot be read."""
    if (size := size_here(ref)) is not None or ref.kind in _WITHOUT_FILES:
        return size
    folder = tokenizer_folder(ref)
    sizes = file_sizes(ref)
    total = sum(sizes.get(name, 0) for name in _weights(folder, sizes))
    return Size(total, _counted(folder), _is_quantized(folder)) if total else None


def size_here(ref: ModelRef) -> Size | None:
    """As `size_of`, None where the weights are not on this machine."""
    if ref.kind in _WITHOUT_FILES:
        return None
    folder = tokenizer_folder(ref)
    if not all((folder / name).is_file() for name in shards_of(folder) or ["none"]):
        return None
    return Size(weight_bytes(folder), parameters(folder), _is_quantized(folder))


def _weights(folder: Path, sizes: Mapping[str, int]) -> list[str]:
    """Which of the files are loaded: a prefix may hold the weights in two formats."""
    shards = shards_of(folder)
    if shards:
        return shards
    names = weight_names(sizes)
    return [name for name in names if name.endswith(".safetensors")] or names


def _is_quantized(folder: Path) -> bool:
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return "quantization_config" in json.loads((folder / "config.json").read_text())
    return False


def _counted(folder: Path) -> int | None:
    """The number of parameters that the index states, if it does."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return int(json.loads((folder / INDEX).read_text())["metadata"]["total_parameters"])
    return None
