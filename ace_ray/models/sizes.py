"""Determine the size of a model, even before its weights are on this machine."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

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
    if (size := local_size(ref)) is not None or ref.kind in _WITHOUT_FILES:
        return size
    folder, sizes, count = tokenizer_folder(ref), file_sizes(ref), None
    # A model may have its weights in two formats.
    names = [name for name in weight_names(sizes) if name.endswith(".safetensors")]
    total = sum(sizes.get(name, 0) for name in shards_of(folder) or names or weight_names(sizes))
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        count = int(json.loads((folder / INDEX).read_text())["metadata"]["total_parameters"])
    return Size(total, count) if total else None


def local_size(ref: ModelRef) -> Size | None:
    """Return the size of a model's weights; None if they are not on this machine."""
    if ref.kind in _WITHOUT_FILES:
        return None
    folder = tokenizer_folder(ref)
    if not all((folder / name).is_file() for name in shards_of(folder) or ["none"]):
        return None
    return Size(weight_bytes(folder), parameters(folder))
