"""Check whether a checkpoint is complete, and whether two checkpoints have the same layout.

A safetensors file begins with the length of its header (8 bytes). The header is a JSON object with
dtype, shape and position of each tensor; the data follows
(https://github.com/huggingface/safetensors, "Format")."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from ace_ray.errors import UserError, first_line
from ace_ray.storage.object_store import LocalStore, S3Store, Store, UnreachableStore
from ace_ray.storage.object_store.local import open_regular_file
from ace_ray.util.grouping import grouped
from ace_ray.util.safe_loading import parse_limited_json

INDEX = "model.safetensors.index.json"
_PICKLE_INDEX = "pytorch_model.bin.index.json"
ADAPTER_CONFIG = "adapter_config.json"

# Maximum bytes of a header, enough for about 120,000 tensors. The format allows 100 MB.
_HEADER_BYTES = 16 << 20
_INDEX_BYTES = 64 << 20
# Maximum JSON values in a header or an index; each takes 70 bytes of memory.
_MOST_VALUES = 1_000_000

_POINTER = b"version https://git-lfs.github.com/spec/"
_IS_POINTER = "is a git-lfs pointer, not the file itself"
_PULL = "run git lfs pull in the repository"
# Maximum bytes of a git-lfs pointer, from its specification.
_POINTER_BYTES = 1024

# Maximum bytes of a zip archive's end record, with the longest comment.
_ZIP_END_BYTES = 22 + (1 << 16)

_WEIGHTS = (".safetensors", ".bin", ".pt")
# Extensions of a model's files besides its weights.
_TEXTS = (".json", ".jinja", ".model", ".txt", ".tiktoken")
_AGAIN = "save or copy the checkpoint again"

# Prefixes of a trainer's other files, which have the same extensions as weights.
_BESIDES = (
    "optimizer", "scheduler", "scaler", "rng_state", "training_args", "model_world_size",
    "optim_world_size", "extra_state_world_size", "mp_rank_", "zero_pp_rank_", "bf16_zero_pp_rank_",
)  # fmt: skip

# Weights in a trainer's own format: expression of a shard, owner, and the program that converts
# them. {} is the folder of the shards, which the first group of the expression ends.
_CONVERTERS = (
    (r")model_world_size_\d+_rank_\d+\.pt", "verl's FSDP shards",
     "python -m verl.model_merger merge --backend fsdp --local_dir {} --target_dir NEW_FOLDER"),
    (r")dist_ckpt/[^/]+\.distcp", "verl's Megatron shards",
     "python -m verl.model_merger merge --backend megatron --local_dir {} --target_dir NEW_FOLDER"),
    (r"pytorch_model_fsdp_\d+)/[^/]+\.distcp", "accelerate's FSDP shards",
     "accelerate merge-weights {} NEW_FOLDER"),
    (r")[^/]+\.distcp", "this torch distributed checkpoint (DCP)",
     "the trainer's exporter, or with python -m torch.distributed.checkpoint.format_utils "
     "dcp_to_torch {} NEW_FILE and then save_pretrained"),
    (r")(zero_pp_rank_\d+_)?mp_rank_\d+_model_states\.pt", "DeepSpeed's shards",
     "zero_to_fp32.py, which DeepSpeed saves above {}"),
    (r")mp_rank_\d+(_\d+)*/model_optim_rng\.pt", "Megatron-LM's shards in {}",
     "Megatron Bridge or with Megatron-LM's tools/checkpoint/convert.py"),
)  # fmt: skip

_PART = re.compile(r"(.+-)(\d+)(-of-(\d+)\.(?:safetensors|bin))")

_FLOATS = ("F8_E4M3", "F8_E5M2", "BF16", "F16", "F32", "F64")


@dataclass(frozen=True, slots=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.shape))}"


class _Files:
    """The files of a checkpoint, in a local folder or under an S3 prefix."""

    def __init__(self, source: Path | S3Store) -> None:
        self.source = source
        self.store: Store = source if isinstance(source, S3Store) else LocalStore(str(source))
        items = [item for item in self.store.list() if "/" not in item.path]
        self.sizes = {item.path: item.size for item in items if not item.broken}
        # File name -> why the file cannot be read.
        self.broken = {item.path: item.broken for item in items if item.broken}

    @property
    def names(self) -> set[str]:
        return {*self.sizes, *self.broken}

    def location_of(self, name: str) -> str:
        """Return the path or URL of the file ``name``, for messages."""
        return f"{self.store.root}/{name}"

    def error(self, name: str, problem: str, fix: str = _AGAIN) -> UserError:
        return UserError(problem, where=self.location_of(name), fix=fix)


def check_whole(source: Path | S3Store) -> None:
    """Raise `UserError` unless the model or adapter at ``source`` is complete.

    Git-lfs pointers and broken links are errors. All weight files must exist, with the length that
    their headers give. Only the beginning and the end of a file are read. Trainer states, and
    weights in a second format that vLLM does not load, are ignored."""
    files = _Files(source)
    index = _index(files, INDEX)
    weights = _weights(files, index)
    texts = [name for name in files.names if name.endswith(_TEXTS)]
    expected_tensors = grouped((shard, tensor) for tensor, shard in index.items())
    for name in (*weights, *sorted(texts)):
        if name in files.broken:
            fix = "replace it with the file itself, or remove it"
            raise files.error(name, files.broken[name], fix)
        if name not in files.sizes:
            raise files.error(name, "is missing")
        if files.sizes[name] <= _POINTER_BYTES:
            with _wrap_errors(files, name, "cannot be read"), files.store.open(name) as file:
                _refuse_pointer(file, files.location_of(name))
    empty = bool(weights)
    for name in weights:
        if name.endswith(".safetensors"):
            tensors = {tensor for tensor, _ in _header(files, name)}
            empty = empty and not tensors
            if lost := {*expected_tensors.get(name, ())} - tensors:
                why = f"the index places tensor {min(lost)} in {name}, which does not contain it"
                raise files.error(INDEX, why)
            continue
        with _wrap_errors(files, name, "cannot be read"):
            why = _pickle_problem(files, name)
        if why:
            raise files.error(name, why)
        empty = False
    if empty:
        raise files.error(weights[0], "the weights contain no tensors")


def check_gguf(path: Path) -> None:
    """Raise `UserError` unless ``path`` is a GGUF file, `OSError` unless it is a regular file."""
    with open_regular_file(path) as file:
        _refuse_pointer(file, str(path))
        file.seek(0)
        magic = file.read(4)
    if magic != b"GGUF":
        raise UserError("is not a GGUF file (bad magic)", where=str(path), fix="download it again")


def _refuse_pointer(file: BinaryIO, location: str) -> None:
    if file.read(len(_POINTER)) == _POINTER:
        upload = ", then upload the fetched files" * location.startswith("s3://")
        raise UserError(_IS_POINTER, where=location, fix=_PULL + upload)


def _weights(files: _Files, index: Mapping[str, str]) -> list[str]:
    """Return the weight files that vLLM loads. Raises `UserError` if one of them is missing."""
    if index:
        return sorted(set(index.values()))
    if ADAPTER_CONFIG in files.names and "config.json" not in files.names:
        shards = [name for name in weight_names(files.names) if name.startswith("adapter_model.")]
        return _safetensors(shards) or shards
    if parts := _index(files, _PICKLE_INDEX) if not _safetensors(files.names) else {}:
        return sorted(set(parts.values()))
    # vLLM does not load an adapter in the folder of a model.
    names = [name for name in weight_names(files.names) if not name.startswith("adapter_model.")]
    names = _safetensors(names) or names
    if lacks := missing_weights(names):
        fix = suggest_fix(files.source) or "name a complete checkpoint"
        raise UserError(lacks, where=files.store.root, fix=fix)
    return names


def suggest_fix(source: Path | Store) -> str:
    """Return what to use in place of the folder ``source``, which contains no model: a subfolder
    with a model, or a program that converts weights in a trainer's own format; "" for neither."""
    # verl saves config and tokenizer in a subfolder of the folder with the weights.
    root = (str(source) if isinstance(source, Path) else source.root).removesuffix("/huggingface")
    if isinstance(source, S3Store):
        paths = [file.path for file in replace(source, root=root).list()]
    else:
        levels = chain.from_iterable(Path(root).glob("*/" * n + "*") for n in range(4))
        paths = [os.path.relpath(path, root) for path in islice(levels, 10_000)]
    folders = {path.rpartition("/")[0] for path in paths if path.endswith(".safetensors")}
    if models := sorted(folder for folder in folders if f"{folder}/config.json" in paths):
        return f"name the model in its subfolder {models[0]} (in a sweep: pattern '*/{models[0]}')"
    for shard, owner, program in _CONVERTERS:
        matches = [re.fullmatch(f"((.*/)?{shard}", path) for path in sorted(paths)]
        if match := next(filter(None, matches), None):
            folder = f"{root}/{match[1]}".rstrip("/")
            return f"convert {owner} with {program}".replace("{}", folder)
    return ""


def _safetensors(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.endswith(".safetensors"))


def _pickle_problem(files: _Files, name: str) -> str:
    """Return why ``name`` is not a complete torch file; "" if it is complete. A bare pickle, the
    format of older versions, is only checked at its beginning."""
    with files.store.open(name) as file:
        begins: bytes = file.read(4)
        if not begins:
            return "is empty"
        if begins[:2] == b"PK":
            file.seek(max(0, files.sizes[name] - _ZIP_END_BYTES))
            return "" if b"PK\5\6" in file.read() else "is truncated"
    return "" if begins[:1] == b"\x80" else "is not a file saved by torch"


def missing_weights(names: Collection[str]) -> str:
    """Return a message about a missing weight file of a checkpoint without an index, or "".

    Trainers write the index last. Until then, names like ``model-00001-of-00003.bin`` count."""
    weights = weight_names(names)
    if not weights:
        return "the folder contains no weights (*.safetensors)"
    for part in filter(None, map(_PART.fullmatch, weights)):
        head, number, tail, total = part.groups()
        for n in range(1, int(total) + 1):
            if (name := f"{head}{n:0{len(number)}}{tail}") not in names:
                return f"{name} is missing"
    return ""


def weight_names(names: Collection[str]) -> list[str]:
    """Return the weight files among ``names``, sorted."""
    weights = [name for name in names if name.endswith(_WEIGHTS)]
    return sorted(name for name in weights if not name.startswith(_BESIDES))


def layout_diff(folder: Path, new_folder: Path) -> str:
    """Return why weights in ``new_folder`` cannot replace those in ``folder``; "" if they can."""
    a, b = tensors_of(folder), tensors_of(new_folder)
    if not a or not b:
        return "weights can be swapped only from safetensors files"
    if odd := sorted(a.keys() ^ b.keys()):
        return f"{len(odd)} tensors occur in only one model, e.g. {odd[0]}"
    for name, tensor in a.items():
        if tensor != b[name]:
            return f"{name} is {b[name]}, not {tensor}"
    return ""


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a checkpoint by name; {} for a checkpoint without safetensors files.
    Raises `UserError` if a shard is missing, truncated, or not a safetensors file."""
    tensors: dict[str, Tensor] = {}
    files = _Files(folder)
    index = _index(files, INDEX)
    for shard in shards_of(folder):
        # Tied tensors may be stored in two shards. The index decides which one counts.
        header = _header(files, shard)
        tensors |= {name: tensor for name, tensor in header if index.get(name, shard) == shard}
    return tensors


def shards_of(folder: Path) -> list[str]:
    """Return the weight files that the index names; without an index, all ``*.safetensors``."""
    files = _Files(folder)
    index = _index(files, INDEX)
    return sorted(set(index.values())) if index else _safetensors(files.names)


def parameters(folder: Path) -> int | None:
    """Return the number of weights; None if the weights are packed or not in safetensors."""
    tensors = tensors_of(folder).values()
    if not tensors or any(tensor.dtype not in _FLOATS for tensor in tensors):
        return None
    return sum(math.prod(tensor.shape) for tensor in tensors)


def weight_bytes(folder: Path) -> int:
    return sum((folder / shard).stat().st_size for shard in shards_of(folder))


def content_sha256(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the contents of files."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def index_of(raw: bytes) -> dict[str, str]:
    """Return the file name of each tensor in an index. Raises `ValueError` if it is malformed."""
    try:
        weight_map = parse_limited_json(raw, _INDEX_BYTES, _MOST_VALUES)["weight_map"]
        index: dict[str, str] = dict(weight_map.items())
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"weight_map is missing ({error})") from error
    if not index or not all(isinstance(file, str) for file in index.values()):
        raise ValueError("it names no file for a tensor" if index else "it lists no tensors")
    # A file name must not refer to a path outside of the folder.
    if odd := [file for file in index.values() if "/" in file or file in ("", ".", "..")]:
        raise ValueError(f"it names the file {odd[0]!r}, which is not a plain file name")
    return index


def _index(files: _Files, name: str) -> dict[str, str]:
    """Read the index ``name``; {} if it does not exist. Raises `UserError` if it is damaged."""
    if name not in files.sizes:
        return {}
    with _wrap_errors(files, name, "is not an index of weights"), files.store.open(name) as file:
        _refuse_pointer(file, files.location_of(name))
        file.seek(0)
        return index_of(file.read(_INDEX_BYTES + 1))


@contextmanager
def _wrap_errors(files: _Files, name: str, wrong: str) -> Iterator[None]:
    """Context that converts errors in reading the file ``name`` to a `UserError`, which begins with
    ``wrong``; to `UnreachableStore` if S3 has listed the file but does not return it now."""
    try:
        yield
    except FileNotFoundError as error:
        raise files.error(name, "is missing") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, OSError) and isinstance(files.store, S3Store):
            problem = f"cannot be read now: {first_line(error)}"
            raise UnreachableStore(problem, where=files.store.root, fix="try again") from error
        fix = "check its permissions" if isinstance(error, PermissionError) else _AGAIN
        raise files.error(name, f"{wrong}: {error}", fix) from error


def _header(files: _Files, shard: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in a safetensors header. Raises `UserError` for a bad or missing file."""
    with _wrap_errors(files, shard, "cannot be read as weights"), files.store.open(shard) as file:
        length = int.from_bytes(file.read(8), "little")
        size = files.sizes.get(shard, 0)
        if size == 0:
            raise ValueError("it is empty")
        if not 2 <= length <= size - 8:
            raise ValueError("it is truncated or not a safetensors file")
        header = file.read(min(length, _HEADER_BYTES + 1))
        end = 8 + length
        for name, entry in parse_limited_json(header, _HEADER_BYTES, _MOST_VALUES).items():
            if name == "__metadata__":
                continue
            (first, last), shape, dtype = entry["data_offsets"], entry["shape"], entry["dtype"]
            if not isinstance(dtype, str) or {type(n) for n in (first, last, *shape)} != {int}:
                raise ValueError(f"{name} has no valid type, shape or position")
            if not 0 <= first <= last <= size - 8 - length:
                raise ValueError(f"the data of {name} lies outside the file")
            end = max(end, 8 + length + last)
            yield name, Tensor(sys.intern(dtype), tuple(shape))
        if end != size:
            raise ValueError(f"it is {size - end} bytes longer than its header says")
