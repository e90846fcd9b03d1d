"""Safetensors as they are, torn, poisoned and made up."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ace_ray.errors import UserError
from ace_ray.models import checkpoints
from ace_ray.models.checkpoints import (
    INDEX,
    check_whole,
    parameters,
    same_layout,
    shards_of,
    tensors_of,
    weight_bytes,
)
from ace_ray.storage.object_store import S3Store

save_file = pytest.importorskip("safetensors.numpy").save_file


def write(path: Path, header: Any, data: bytes = b"", *, length: int | None = None) -> Path:
    """A safetensors file by hand; ``header`` is a tree or its bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)
    return path


def one(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict:
    return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}}


def index(folder: Path, places: Any, **more: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places, **more}))


def arrays(**tensors: Sequence[float]) -> Mapping[str, np.ndarray]:
    return {name: np.array(values, np.float32) for name, values in tensors.items()}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Tensors a, b in the first of two shards, c in the second."""
    save_file(arrays(a=[1, 2], b=[3]), tmp_path / "model-00001-of-00002.safetensors")
    save_file(arrays(c=[4, 5, 6]), tmp_path / "model-00002-of-00002.safetensors")
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    index(tmp_path, {"a": first, "b": first, "c": second})
    return tmp_path


def refused(folder: Path, match: str) -> str:
    with pytest.raises(UserError, match=match) as error:
        check_whole(folder)
    assert str(folder) in error.value.where
    assert error.value.fix
    return str(error.value)


class TestWhole:
    def test_one_file(self, tmp_path: Path) -> None:
        save_file(arrays(a=[1, 2], b=[3]), tmp_path / "model.safetensors", {"format": "pt"})
        check_whole(tmp_path)
        assert shards_of(tmp_path) == ["model.safetensors"]
        found = tensors_of(tmp_path)
        assert {name: (t.dtype, t.shape) for name, t in found.items()} == {
            "a": ("F32", (2,)),
            "b": ("F32", (1,)),
        }
        raw = (tmp_path / "model.safetensors").read_bytes()
        assert np.frombuffer(raw[found["a"].start : found["a"].end], "<f4").tolist() == [1, 2]

    def test_shards_of_an_index(self, sharded: Path) -> None:
        check_whole(sharded)
        assert len(shards_of(sharded)) == 2
        assert set(tensors_of(sharded)) == {"a", "b", "c"}
        sizes = [path.stat().st_size for path in sharded.glob("*.safetensors")]
        assert weight_bytes(sharded) == sum(sizes)

    def test_files_that_the_index_does_not_name_are_no_part(self, sharded: Path) -> None:
        (sharded / "adapter.safetensors").write_bytes(b"anything")
        check_whole(sharded)
        assert len(shards_of(sharded)) == 2

    def test_formats_that_cannot_be_read_here_pass_unseen(self, tmp_path: Path) -> None:
        (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
        check_whole(tmp_path)
        assert tensors_of(tmp_path) == {}
        assert parameters(tmp_path) is None
        assert weight_bytes(tmp_path) == 0
        for content in (b"", b"PK\3\4x", b"<html>"):
            (tmp_path / "pytorch_model.bin").write_bytes(content)
            refused(tmp_path, r"pytorch_model\.bin")

    @pytest.mark.nightly
    @pytest.mark.parametrize(
        "others",
        [
            [],
            ["config.json"],
            ["training_args.bin"],
            ["optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth"],
            ["optimizer.bin", "scheduler.bin"],
        ],
    )
    def test_nothing_but_what_a_trainer_keeps_besides(
        self, tmp_path: Path, others: list[str]
    ) -> None:
        for name in others:
            (tmp_path / name).write_bytes(b"x")
        refused(tmp_path, "contains no weights")

    def test_a_missing_shard(self, sharded: Path) -> None:
        (sharded / "model-00002-of-00002.safetensors").unlink()
        assert "model-00002-of-00002.safetensors: is missing" in refused(sharded, "is missing")

    @pytest.mark.parametrize("gone", [1, 2])
    def test_a_missing_shard_before_the_index_is_written(self, sharded: Path, gone: int) -> None:
        """Trainers write the index last: the names of the shards tell how many there will be."""
        (sharded / INDEX).unlink()
        (sharded / f"model-0000{gone}-of-00002.safetensors").unlink()
        refused(sharded, f"model-0000{gone}-of-00002.safetensors")

    def test_all_shards_without_an_index(self, sharded: Path) -> None:
        (sharded / INDEX).unlink()
        check_whole(sharded)

    def test_a_shard_that_is_a_folder(self, sharded: Path) -> None:
        shard = sharded / "model-00002-of-00002.safetensors"
        shard.unlink()
        shard.mkdir()
        refused(sharded, "is a pipe, a socket, a device or a folder")

    def test_a_tensor_that_no_shard_holds(self, sharded: Path) -> None:
        first = "model-00001-of-00002.safetensors"
        index(sharded, {"a": first, "d": first})
        refused(sharded, f"places d in {first}, which does not contain it")

    def test_a_tensor_in_another_shard(self, sharded: Path) -> None:
        first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
        index(sharded, {"a": second, "b": first, "c": second})
        refused(sharded, f"places a in {second}, which does not contain it")

    def test_a_tensor_that_two_shards_hold(self, sharded: Path) -> None:
        """Some savers write tied tensors twice; the index says which one is meant."""
        second = sharded / "model-00002-of-00002.safetensors"
        save_file(arrays(a=[1, 2], c=[4, 5, 6]), second)
        check_whole(sharded)
        assert tensors_of(sharded)["a"].file == "model-00001-of-00002.safetensors"

    @pytest.mark.parametrize(
        "name", ["../w.safetensors", "sub/w.safetensors", "/etc/passwd", "", ".", ".."]
    )
    def test_an_index_names_no_way_out(self, sharded: Path, name: str) -> None:
        index(sharded, {"a": name})
        refused(sharded, re.escape(f"names the file {name!r}"))

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"{",
            b"[]",
            b'{"weight_map": {}}',
            b'{"weight_map": ["a"]}',
            b"\xff\xfe",
            b"[" * 100_000,
        ],
    )
    def test_an_index_that_is_none(self, sharded: Path, content: bytes) -> None:
        (sharded / INDEX).write_bytes(content)
        refused(sharded, "is not an index of weights")

    def test_names_that_no_file_can_have(self, sharded: Path) -> None:
        index(sharded, {"a": "w\0.safetensors"})
        refused(sharded, "is missing")
        index(sharded, {"a": "w" * 5000})
        refused(sharded, "more characters")  # of a name that no message repeats whole

    def test_every_cut_is_seen(self, tmp_path: Path) -> None:
        path = tmp_path / "model.safetensors"
        save_file(arrays(a=[1, 2], b=[3]), path)
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            refused(tmp_path, "cannot be read as weights")
        path.write_bytes(whole)
        check_whole(tmp_path)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 16060556376\n"


class TestFilesThatAreNoModel:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        save_file(arrays(a=[1, 2], b=[3]), tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "tokenizer.json").write_text("{}")
        return tmp_path

    @pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", INDEX])
    def test_a_pointer_of_git_lfs(self, folder: Path, name: str) -> None:
        (folder / name).write_bytes(POINTER)
        assert "is a git-lfs pointer" in refused(folder, re.escape(name))

    def test_a_pointer_of_a_format_that_is_not_loaded_passes(self, folder: Path) -> None:
        (folder / "pytorch_model.bin").write_bytes(POINTER)
        (folder / "optimizer.pt").write_bytes(POINTER)
        check_whole(folder)
        (folder / "model.safetensors").unlink()
        refused(folder, "pytorch_model.bin: is a git-lfs pointer")

    @pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
    def test_a_link_that_leads_nowhere(self, folder: Path, name: str) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to("/nowhere/blob")
        refused(folder, f"{name}: is a link to /nowhere/blob, which does not exist")
        (folder / name).unlink()
        (folder / name).symlink_to(name)
        refused(folder, "symbolic links")

    @pytest.mark.parametrize("name", ["model.safetensors", "chat_template.jinja", INDEX])
    def test_a_pipe_is_not_waited_for(self, folder: Path, name: str) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        refused(folder, f"{name}: is a pipe")

    def test_an_adapter_is_no_model(self, folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
        refused(folder, "contains no weights")

    def test_a_file_that_is_longer_than_its_header_says(self, folder: Path) -> None:
        with (folder / "model.safetensors").open("ab") as file:
            file.write(b"more")
        refused(folder, "4 bytes longer than its header says")

    def test_weights_without_a_tensor(self, folder: Path) -> None:
        save_file({}, folder / "model.safetensors")
        refused(folder, "the weights contain no tensors")

    def test_headers_that_would_take_much_memory_or_time(self, folder: Path) -> None:
        path = folder / "model.safetensors"
        write(path, b'{"w": [' + b"[]," * 1_000_000 + b"[]]}")
        refused(folder, "has more than 1000000 values")

    def test_under_a_prefix_of_s3(self, s3: Any, folder: Path) -> None:
        store = S3Store(f"s3://{s3.bucket}/{folder.name}")
        content = {path.name: path.read_bytes() for path in folder.iterdir()}
        for name, broken, why in (
            ("tokenizer.json", POINTER, "git-lfs pointer"),
            (
                "model.safetensors",
                content["model.safetensors"][:-1],
                "ends beyond the end of the file",
            ),
            ("model.safetensors", b"", "it is empty"),
            (INDEX, b'{"weight_map": {"a": "x.safetensors"}}', "x.safetensors: is missing"),
            (INDEX, b"{", "is not an index of weights"),
        ):
            for whole, data in content.items():
                store.put(whole, data)
            check_whole(store)
            store.put(name, broken)
            with pytest.raises(UserError, match=why):
                check_whole(store)
            store.delete(name)
        store.delete("model.safetensors")
        store.put("pytorch_model.bin", b"PK\3\4x")
        with pytest.raises(UserError, match="is truncated"):
            check_whole(store)


class TestHeaders:
    """What a header says is checked, whatever it says."""

    @pytest.mark.parametrize("length", [0, 1, 3, 101, 2**63, 2**64 - 1])
    def test_lengths_that_lie(self, tmp_path: Path, length: int) -> None:
        write(tmp_path / "m.safetensors", one(), b"\0" * 8, length=length)
        refused(tmp_path, "cannot be read as weights")

    def test_a_header_longer_than_the_format_allows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkpoints, "_HEADER_BYTES", 64)
        write(tmp_path / "m.safetensors", one(name="x" * 64), b"\0" * 8)
        refused(tmp_path, "is larger than")

    @pytest.mark.parametrize(
        "header",
        [
            b"[]",
            b"{}}",
            b"\xff\xff\xff",
            b"[" * 200_000,
            b'{"w": ' + b"9" * 10_000 + b"}",
            json.dumps({"w": None}).encode(),
            json.dumps({"w": {"dtype": "F32", "shape": [2]}}).encode(),
        ],
    )
    def test_headers_that_are_none(self, tmp_path: Path, header: bytes) -> None:
        write(tmp_path / "m.safetensors", header, b"\0" * 8)
        refused(tmp_path, "cannot be read as weights")

    @pytest.mark.parametrize(
        "offsets",
        [
            (0, 12),
            (-8, 0),
            (8, 0),
            (0, 2**70),
            (0, 4, 8),
            None,
            (0.0, 8.0),
            (False, 8),
        ],
    )
    def test_places_outside_the_file_or_none_at_all(self, tmp_path: Path, offsets: Any) -> None:
        write(tmp_path / "m.safetensors", one(offsets=offsets), b"\0" * 8)
        refused(tmp_path, "cannot be read as weights")

    @pytest.mark.parametrize(
        "shape",
        [
            (2.0,),
            (True, 2),
            2,
            None,
        ],
    )
    def test_shapes_that_are_none(self, tmp_path: Path, shape: Any) -> None:
        write(tmp_path / "m.safetensors", one(shape=shape), b"\0" * 8)
        refused(tmp_path, "cannot be read as weights")

    @pytest.mark.parametrize("dtype", [None, 3, ["F32"], {"F32": 1}, True])
    def test_types_that_are_none(self, tmp_path: Path, dtype: Any) -> None:
        write(tmp_path / "m.safetensors", one(dtype=dtype), b"\0" * 8)
        refused(tmp_path, "cannot be read as weights")

    def test_a_type_of_tomorrow_passes(self, tmp_path: Path) -> None:
        write(tmp_path / "m.safetensors", one("F5_NEW", (3,)), b"\xff" * 8)
        check_whole(tmp_path)
        assert parameters(tmp_path) is None


class TestLayout:
    @pytest.fixture
    def pair(self, tmp_path: Path) -> tuple[Path, Path]:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            save_file(arrays(a=[1, 2], b=[3]), tmp_path / name / "model.safetensors")
        return tmp_path / "one", tmp_path / "other"

    def test_values_do_not_matter(self, pair: tuple[Path, Path]) -> None:
        one, other = pair
        save_file(arrays(a=[7, 8], b=[9]), other / "model.safetensors")
        assert same_layout(one, other) == ""

    def test_nor_how_they_are_cut_into_files(self, pair: tuple[Path, Path]) -> None:
        one, other = pair
        (other / "model.safetensors").unlink()
        save_file(arrays(b=[3]), other / "x.safetensors")
        save_file(arrays(a=[1, 2]), other / "y.safetensors")
        index(other, {"a": "y.safetensors", "b": "x.safetensors"})
        assert same_layout(one, other) == same_layout(other, one) == ""

    def test_names(self, pair: tuple[Path, Path]) -> None:
        one, other = pair
        save_file(arrays(a=[1, 2], c=[3]), other / "model.safetensors")
        assert same_layout(one, other) == "2 tensors occur in only one model, e.g. b"
        save_file(arrays(a=[1, 2]), other / "model.safetensors")
        assert same_layout(one, other) == "1 tensors occur in only one model, e.g. b"
        assert same_layout(other, one) == "1 tensors occur in only one model, e.g. b"

    def test_shapes(self, pair: tuple[Path, Path]) -> None:
        one, other = pair
        for name, shape in (("one", (2, 3)), ("other", (3, 2))):
            array = np.ones(shape, np.float32)
            save_file({"a": array}, pair[0].parent / name / "model.safetensors")
        assert same_layout(one, other) == "a is F32 3x2, not F32 2x3"

    def test_types(self, pair: tuple[Path, Path]) -> None:
        one, other = pair
        save_file({"a": np.ones(2, np.float16)}, other / "model.safetensors")
        save_file({"a": np.ones(2, np.float32)}, one / "model.safetensors")
        assert same_layout(one, other) == "a is F16 2, not F32 2"

    def test_other_formats_never_fit(self, pair: tuple[Path, Path]) -> None:
        one, other = pair
        (other / "model.safetensors").rename(other / "model.bin")
        assert (
            same_layout(one, other)
            == same_layout(other, one)
            == "weights can be swapped only from safetensors files"
        )

    def test_what_is_torn_is_said(self, pair: tuple[Path, Path]) -> None:
        (pair[1] / "model.safetensors").write_bytes(b"torn")
        with pytest.raises(UserError, match="is truncated"):
            same_layout(*pair)


def test_parameters_are_numbers_not_bytes(tmp_path: Path) -> None:
    tensors = {
        "a": np.ones((3, 4), np.float32),
        "b": np.ones(5, np.float16),
        "scalar": np.ones((), np.float64),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    assert parameters(tmp_path) == 18


def test_packed_weights_have_no_count(tmp_path: Path) -> None:
    tensors = {"a": np.ones(4, np.float32), "q": np.ones(4, np.int8)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert parameters(tmp_path) is None
