"""Determine the size of a model, even before its weights are on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ace_ray.models.checkpoints import INDEX, parameters, shards_of, weight_bytes, weight_names
from ace_ray.models.sources import ModelRef, file_sizes, tokenizer_folder

_WITHOUT_FILES = ("fake", "endpoint")


@dataclass(frozen=True)
class Size:
    bytes: int
    """Total bytes of the stored weights."""
    parameters: int | None
    """Number of parameters; None if only the bytes are known."""


def size_of(ref: ModelRef) -> Size | None:
    """Return the size of a model's weights; None if the size is unknown before the download. Raises
    `UserError`: a file, folder or prefix cannot be read."""
    if (size := size_here(ref)) is not None or ref.kind in _WITHOUT_FILES:
        return size
    folder = tokenizer_folder(ref)
    sizes = file_sizes(ref)
    total = sum(sizes.get(name, 0) for name in _weights(folder, sizes))
    return Size(total, _counted(folder)) if total else None


def size_here(ref: ModelRef) -> Size | None:
    """Return the size of a model's weights; None if they are not on this machine."""
    if ref.kind in _WITHOUT_FILES:
        return None
    folder = tokenizer_folder(ref)
    if not all((folder / name).is_file() for name in shards_of(folder) or ["none"]):
        return None
    return Size(weight_bytes(folder), parameters(folder))


def _weights(folder: Path, sizes: Mapping[str, int]) -> list[str]:
    """Return the weight files that vLLM loads. A model may have its weights in two formats."""
    shards = shards_of(folder)
    if shards:
        return shards
    names = weight_names(sizes)
    return [name for name in names if name.endswith(".safetensors")] or names


def _counted(folder: Path) -> int | None:
    """Return the number of parameters in the index of the weight files; None if it has none."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return int(json.loads((folder / INDEX).read_text())["metadata"]["total_parameters"])
    return None
