"""Checkpoints that are complete, damaged or hostile, and layouts of weights."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ace_ray.errors import UserError
from ace_ray.models.checkpoints import (
    INDEX,
    check_whole,
    layout_diff,
    parameters,
    shards_of,
    suggest_fix,
    tensors_of,
    weight_bytes,
)
from ace_ray.storage.object_store import S3Store

save_file = pytest.importorskip("safetensors.numpy").save_file
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 16060556376\n"


def write(path: Path, header: Any, data: bytes = b"", *, length: int | None = None) -> Path:
    """Write a safetensors file by hand; ``header`` is a tree or its bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)
    return path


def header_of(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def index(folder: Path, files: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}))


def arrays(**tensors: Sequence[float]) -> Mapping[str, np.ndarray]:
    return {name: np.array(values, np.float32) for name, values in tensors.items()}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Tensors a, b in the first of two shards, c in the second."""
    save_file(arrays(a=[1, 2], b=[3]), tmp_path / FIRST)
    save_file(arrays(c=[4, 5, 6]), tmp_path / SECOND)
    index(tmp_path, {"a": FIRST, "b": FIRST, "c": SECOND})
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(arrays(a=[1, 2], b=[3]), tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def refused(folder: Path, match: str) -> str:
    with pytest.raises(UserError, match=match) as error:
        check_whole(folder)
    assert str(folder) in error.value.where
    assert error.value.fix
    return str(error.value)


def test_one_file_is_complete_only_at_its_full_length(folder: Path) -> None:
    check_whole(folder)
    assert shards_of(folder) == ["model.safetensors"]
    shapes = {name: (t.dtype, t.shape) for name, t in tensors_of(folder).items()}
    assert shapes == {"a": ("F32", (2,)), "b": ("F32", (1,))}
    path = folder / "model.safetensors"
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        refused(folder, "cannot be read as weights")
    path.write_bytes(content + b"more")
    refused(folder, "4 bytes longer than its header says")
    save_file({}, path)
    refused(folder, "the weights contain no tensors")
    path.write_bytes(content)
    path.rename(folder / "adapter_model.safetensors")
    refused(folder, "contains no weights")


def test_an_index_names_the_shards(sharded: Path) -> None:
    (sharded / "adapter.safetensors").write_bytes(b"anything")
    check_whole(sharded)
    assert shards_of(sharded) == [FIRST, SECOND]
    assert set(tensors_of(sharded)) == {"a", "b", "c"}
    sizes = [(sharded / name).stat().st_size for name in (FIRST, SECOND)]
    assert weight_bytes(sharded) == sum(sizes)
    # Some savers write tied tensors twice; the index says which one counts.
    save_file(arrays(a=[1], c=[4, 5, 6]), sharded / SECOND)
    check_whole(sharded)
    assert tensors_of(sharded)["a"].shape == (2,)
    (sharded / "adapter.safetensors").unlink()
    (sharded / INDEX).unlink()
    check_whole(sharded)


@pytest.mark.parametrize("gone", [FIRST, SECOND])
def test_a_missing_shard_is_named(sharded: Path, gone: str) -> None:
    (sharded / gone).unlink()
    refused(sharded, f"{gone}: is missing")
    # Trainers write the index last: the names of the shards give their number.
    (sharded / INDEX).unlink()
    refused(sharded, f"{gone} is missing")


def test_a_wrong_index_is_named(sharded: Path) -> None:
    for weight_map in ({"a": FIRST, "d": FIRST}, {"d": SECOND, "b": FIRST}):
        index(sharded, weight_map)
        refused(sharded, f"places tensor d in {weight_map['d']}, which does not contain it")
    for name in ("../w.safetensors", "/etc/passwd", "", ".", ".."):
        index(sharded, {"a": name})
        refused(sharded, re.escape(f"names the file {name!r}"))
    index(sharded, {"a": "w\0.safetensors"})
    refused(sharded, "is missing")
    index(sharded, {"a": "w" * 5000})
    refused(sharded, "more characters")  # of a name that no message repeats whole
    maps = (b'{"weight_map": {}}', b'{"weight_map": ["a"]}')
    for content in (b"", b"[]", b"\xff\xfe", b"[" * 100_000, *maps):
        (sharded / INDEX).write_bytes(content)
        refused(sharded, "is not an index of weights")
    (sharded / INDEX).write_bytes(b"[" + b"[]," * 1_000_000 + b"[]]")
    refused(sharded, "has more than 1000000 values")
    os.truncate(sharded / INDEX, (64 << 20) + 1)
    refused(sharded, "is larger than")


def test_weights_of_torch_are_checked_at_their_ends(tmp_path: Path) -> None:
    weights = tmp_path / "pytorch_model.bin"
    for name in ("config.json", "training_args.bin", "optimizer.pt", "rng_state.pth"):
        (tmp_path / name).write_bytes(b"x")
    refused(tmp_path, "contains no weights")
    weights.write_bytes(b"\x80\x02")
    check_whole(tmp_path)
    assert tensors_of(tmp_path) == {}
    assert parameters(tmp_path) is None
    assert weight_bytes(tmp_path) == 0
    weights.write_bytes(b"PK\3\4" + b"x" * 100 + b"PK\5\6" + b"\0" * 18)
    check_whole(tmp_path)
    for content, why in ((b"", "is empty"), (b"PK\3\4x", "truncated"), (b"<html>", "not a file")):
        weights.write_bytes(content)
        refused(tmp_path, rf"pytorch_model\.bin: .*{why}")
    # Beside safetensors they are not loaded.
    save_file(arrays(a=[1]), tmp_path / "model.safetensors")
    for name in (weights.name, "optimizer.pt"):
        (tmp_path / name).write_bytes(POINTER)
    check_whole(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    refused(tmp_path, r"pytorch_model\.bin: is a git-lfs pointer")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("model_world_size_8_rank_0.pt", "verl.model_merger merge --backend fsdp --local_dir {} "),
        ("actor/dist_ckpt/__0_0.distcp", "--backend megatron --local_dir {}/actor --target_dir"),
        ("pytorch_model_fsdp_0/__0_0.distcp", "accelerate merge-weights {}/pytorch_model_fsdp_0 "),
        ("__0_0.distcp", "torch.distributed.checkpoint.format_utils dcp_to_torch {} "),
        ("mp_rank_00_model_states.pt", "zero_to_fp32.py, which DeepSpeed saves above {}"),
        ("iter_5/mp_rank_00/model_optim_rng.pt", "shards in {}/iter_5 with Megatron Bridge"),
        ("sub/model.safetensors", ""),
    ],
    ids=["verl", "verl Megatron", "accelerate", "DCP", "DeepSpeed", "Megatron", "a model below"],
)
def test_weights_in_a_trainers_format_are_named_with_their_converter(tmp_path, path, words) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"PK")
    (tmp_path / path).with_name("config.json").touch()
    words = words.replace("{}", str(tmp_path)) or "name the model in its subfolder sub "
    assert words in suggest_fix(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert words in refused(tmp_path, "contains no weights")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", INDEX])
def test_a_file_that_is_not_there_is_named(folder: Path, name: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_bytes(POINTER)
    assert "is a git-lfs pointer" in refused(folder, re.escape(name))
    path.unlink()
    os.mkfifo(path)
    refused(folder, f"{name}: is a pipe, a socket or a device")
    links = {"/nowhere": "is a link to /nowhere, which does not", name: "symbolic l"}
    for target, why in links.items():
        path.unlink()
        path.symlink_to(target)
        assert why in refused(folder, re.escape(name))


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("model.safetensors", b"half", "lies outside the file"),
        ("model.safetensors", b"", "it is empty"),
        ("tokenizer.json", POINTER, "git-lfs pointer"),
        (INDEX, b'{"weight_map": {"a": "x.safetensors"}}', "x.safetensors: is missing"),
    ],
    ids=["truncated", "empty", "pointer", "index"],
)
def test_a_prefix_of_s3_is_checked_as_a_folder_is(s3, folder, name, content, why) -> None:
    store = S3Store(f"s3://{s3.bucket}/{folder.name}")
    weights = (folder / "model.safetensors").read_bytes()
    store.put("model.safetensors", weights)
    check_whole(store)
    store.put(name, weights[:-1] if content == b"half" else content)
    with pytest.raises(UserError, match=why):
        check_whole(store)


HEADERS: list[Any] = [
    *(b"[]", b"{}}", b"\xff\xff\xff", b"[" * 200_000, b'{"w": ' + b"9" * 10_000 + b"}"),
    *({"w": None}, {"w": {"dtype": "F32", "shape": [2]}}, header_of(dtype=["F32"])),
    *(header_of(offsets=offsets) for offsets in ((0, 12), (-8, 0), (8, 0), (0, 4, 8), (0.0, 8.0))),
    *(header_of(shape=shape) for shape in ((2.0,), (True, 2), None)),
]


def test_a_header_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for header in HEADERS:
        write(path, header, b"\0" * 8)
        refused(tmp_path, "cannot be read as weights")
    for length in (1, 101, 2**64 - 1):
        write(path, header_of(), b"\0" * 8, length=length)
        refused(tmp_path, "cannot be read as weights")
    write(path, b'{"w": [' + b"[]," * 1_000_000 + b"[]]}")
    refused(tmp_path, "has more than 1000000 values")
    write(path, b"{" + b" " * (16 << 20) + b"}")
    refused(tmp_path, "is larger than")
    write(path, header_of("F5_NEW", (3,)), b"\xff" * 8)
    check_whole(tmp_path)
    assert parameters(tmp_path) is None, "a type of tomorrow may be packed"


def test_layouts_are_the_same_by_name_type_and_shape(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "other"
    for folder in (first, second):
        folder.mkdir()
    save_file(arrays(a=[1, 2], b=[3]), first / "model.safetensors")
    save_file(arrays(b=[9]), second / "x.safetensors")
    save_file(arrays(a=[7, 8]), second / "y.safetensors")
    index(second, {"a": "y.safetensors", "b": "x.safetensors"})
    assert layout_diff(first, second) == layout_diff(second, first) == ""
    for path in second.iterdir():
        path.unlink()
    weights = second / "model.safetensors"
    b = np.ones(1, np.float32)
    for tensors, why in (
        (arrays(a=[1, 2], c=[3]), "2 tensors occur in only one model, e.g. b"),
        ({"a": np.ones((2, 3), np.float32), "b": b}, "a is F32 2x3, not F32 2"),
        ({"a": np.ones(2, np.float16), "b": b}, "a is F16 2, not F32 2"),
    ):
        save_file(tensors, weights)
        assert layout_diff(first, second) == why
    weights.write_bytes(b"torn")
    with pytest.raises(UserError, match="is truncated"):
        layout_diff(first, second)
    weights.rename(second / "model.bin")
    why = "weights can be swapped only from safetensors files"
    assert layout_diff(first, second) == layout_diff(second, first) == why


def test_parameters_are_numbers_not_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {"a": np.ones((3, 4), np.float32), "b": np.ones((), np.float16)}
    save_file(tensors, path)
    assert parameters(tmp_path) == 13
    save_file({**tensors, "packed": np.ones(4, np.int8)}, path)
    assert parameters(tmp_path) is None
