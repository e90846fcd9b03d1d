"""Checkpoints on disk: whole or not, finite or not, and whether one fits where another is loaded.

Reads safetensors itself, headers first: 8 bytes of length, a JSON object of tensors with dtype,
shape and place, then the data (https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ace_ray.errors import UserError

INDEX = "model.safetensors.index.json"
_HEADER_BYTES = 100 << 20
"""Most bytes of a header; the format's own limit."""

_CHUNK_BYTES = 64 << 20

_BESIDES = ("optimizer", "scheduler", "scaler", "rng_state", "training_args")
"""How the files begin that trainers keep beside the weights, under the same endings."""

_PART = re.compile(r"(.+-)(\d+)(-of-(\d+)\.(?:safetensors|bin))")

_BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6} | {
    f"{kind}{bits}": bits for kind in "UIF" for bits in (8, 16, 32, 64)
}
_BITS |= {"BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "C64": 64}

# dtype -> (unsigned type of its width, mask of all but the sign, the largest finite pattern)
_FLOATS: dict[str, tuple[Any, int, int]] = {
    "F8_E4M3": (np.uint8, 0x7F, 0x7E),
    "F8_E5M2": (np.uint8, 0x7F, 0x7B),
    "BF16": (np.uint16, 0x7FFF, 0x7F7F),
    "F16": (np.uint16, 0x7FFF, 0x7BFF),
    "F32": (np.uint32, 0x7FFFFFFF, 0x7F7FFFFF),
    "F64": (np.uint64, 0x7FFFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    """Of its data in the file, in bytes."""
    end: int


def check_whole(folder: Path) -> None:
    """Raise `UserError` unless all shards are there, as long as their headers say, and hold the
    tensors that the index names. Formats other than safetensors pass unseen."""
    index = _index(folder)
    if not index and (lacks := lacking({path.name for path in folder.iterdir()})):
        raise UserError(lacks, where=str(folder), fix="name a complete checkpoint")
    files = {name: tensor.file for name, tensor in tensors_of(folder).items()}
    for name, shard in index.items():
        if files.get(name) != shard:
            raise UserError(
                f"the index places {name} in {shard}, which does not hold it",
                where=str(folder / INDEX),
                fix="save the checkpoint again",
            )


def lacking(names: Collection[str]) -> str:
    """What is missing of the weights of a checkpoint without an index, by its files' names; "" for
    nothing. Trainers write the index last: until then the parts tell how many there will be."""
    weights = weight_names(names)
    if not weights:
        return "the folder holds no weights (*.safetensors)"
    for part in filter(None, map(_PART.fullmatch, weights)):
        head, number, tail, total = part.groups()
        for other in range(1, int(total) + 1):
            if (name := f"{head}{other:0{len(number)}}{tail}") not in names:
                return f"{name} is missing"
    return ""


def weight_names(names: Collection[str]) -> list[str]:
    """Those of ``names`` that files of weights have."""
    weights = [name for name in names if name.endswith((".safetensors", ".bin", ".pt"))]
    return sorted(name for name in weights if not name.startswith(_BESIDES))


def check_finite(folder: Path) -> None:
    """Raise `UserError` when a weight is NaN or infinite. Reads everything once; other formats than
    safetensors, and packed types, pass unseen."""
    for name, tensor in tensors_of(folder).items():
        if tensor.dtype not in _FLOATS:
            continue
        kind, mask, most = _FLOATS[tensor.dtype]
        step = _CHUNK_BYTES // np.dtype(kind).itemsize
        values = (
            np.memmap(
                folder / tensor.file,
                dtype=np.dtype(kind).newbyteorder("<"),
                mode="r",
                offset=tensor.start,
                shape=((tensor.end - tensor.start) // np.dtype(kind).itemsize,),
            )
            if tensor.end > tensor.start
            else np.zeros(0, kind)
        )
        for start in range(0, len(values), step):
            if ((values[start : start + step] & kind(mask)) > kind(most)).any():
                raise UserError(
                    f"{name} holds NaN or infinite values",
                    where=str(folder / tensor.file),
                    fix="leave this checkpoint out: a training run that diverged",
                )


def same_layout(one: Path, other: Path) -> str:
    """Why the weights in ``other`` cannot take the place of those in ``one``, "" if they can."""
    a, b = tensors_of(one), tensors_of(other)
    if not a or not b:
        return "only safetensors can be swapped"
    if odd := sorted(a.keys() ^ b.keys()):
        return f"{len(odd)} tensors are in one only, e.g. {odd[0]}"
    for name, tensor in a.items():
        mine, theirs = (tensor.dtype, tensor.shape), (b[name].dtype, b[name].shape)
        if mine != theirs:
            return f"{name} is {_shown(theirs)}, not {_shown(mine)}"
    return ""


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name; none where it is not in safetensors.

    Raises `UserError`: a shard is missing, torn, or no safetensors file.
    """
    tensors: dict[str, Tensor] = {}
    index = _index(folder)
    for shard in shards_of(folder):
        # Tied tensors may lie in two shards: the index says which one counts.
        header = _header(folder, shard)
        tensors |= {name: tensor for name, tensor in header if index.get(name, shard) == shard}
    return tensors


def shards_of(folder: Path) -> list[str]:
    """The names of the weight files: those of the index, else all ``*.safetensors``."""
    index = _index(folder)
    if index:
        return sorted(set(index.values()))
    return sorted(path.name for path in folder.glob("*.safetensors"))


def parameters(folder: Path) -> int | None:
    """How many numbers the weights are; None where they are packed or not in safetensors."""
    tensors = tensors_of(folder).values()
    if not tensors or any(tensor.dtype not in _FLOATS for tensor in tensors):
        return None
    return sum(math.prod(tensor.shape) for tensor in tensors)


def weight_bytes(folder: Path) -> int:
    return sum((folder / shard).stat().st_size for shard in shards_of(folder))


def _index(folder: Path) -> dict[str, str]:
    """Tensor -> file name, {} where there is no index."""
    path = folder / INDEX
    if not path.is_file():
        return {}
    try:
        places = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        index = {str(name): str(file) for name, file in places.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"is no index of weights: {error}", where=str(path), fix="save the checkpoint again"
        ) from error
    # A name is never a way out of the folder.
    if odd := [file for file in index.values() if "/" in file or file in ("", ".", "..")]:
        raise UserError(
            f"names the file {odd[0]!r}", where=str(path), fix="use names without folders"
        )
    return index


def _header(folder: Path, shard: str) -> Iterator[tuple[str, Tensor]]:
    path = folder / shard
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if not 2 <= length <= min(_HEADER_BYTES, size - 8):
                raise ValueError("it is cut off or no safetensors file")
            tree = json.loads(file.read(length))
        for name, entry in tree.items():
            if name == "__metadata__":
                continue
            (start, end), shape, dtype = entry["data_offsets"], entry["shape"], entry["dtype"]
            if not isinstance(dtype, str) or {type(n) for n in (start, end, *shape)} != {int}:
                raise ValueError(f"{name} has no type, or no whole numbers for shape and place")
            if min(shape, default=0) < 0:
                raise ValueError(f"{name} has a negative size")
            tensor = Tensor(dtype, tuple(shape), shard, 8 + length + start, 8 + length + end)
            bits = _BITS.get(dtype)
            if bits is not None and (end - start) * 8 != bits * math.prod(shape):
                raise ValueError(f"{name} is not as long as its shape")
            if not 0 <= start <= end or tensor.end > size:
                raise ValueError(f"{name} ends after the file does")
            yield name, tensor
    except FileNotFoundError as error:
        raise UserError("is missing", where=str(path), fix="save the checkpoint again") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"cannot be read as weights: {error}", where=str(path), fix="save the checkpoint again"
        ) from error


def _shown(kind: tuple[str, tuple[int, ...]]) -> str:
    return f"{kind[0]} {'x'.join(map(str, kind[1]))}"
