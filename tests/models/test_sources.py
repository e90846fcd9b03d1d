from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.models import sources
from ace_ray.models.sources import (
    ModelRef,
    check_unchanged,
    materialize,
    release,
    resolve,
    tokenizer_folder,
)
from ace_ray.storage.object_store import S3Store

Make = Callable[..., Path]
GGUF = struct.pack("<4sIQQ", b"GGUF", 3, 0, 0)
"""A whole file without keys and tensors."""


def test_a_folder_is_pinned_by_its_content(model_folder: Make) -> None:
    folder = model_folder(weights=b"one", name="my-model")
    ref = resolve(str(folder), None)
    assert (ref.kind, ref.location, ref.name) == ("folder", str(folder), "my-model")
    assert ref.revision.startswith("sha256:")
    assert materialize(ref) == tokenizer_folder(ref) == folder
    twin = model_folder(weights=b"one", name="twin")
    assert resolve(str(twin), None).revision == ref.revision
    (folder / "notes.md").write_text("no part of the model")
    assert resolve(str(folder), None).revision == ref.revision


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_any_change_of_a_folder_changes_its_revision(model_folder: Make, name: str) -> None:
    folder = model_folder()
    before = resolve(str(folder), None).revision
    (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b" ")
    changed = resolve(str(folder), None).revision
    assert changed != before
    (folder / name).rename(folder / f"x{name}")
    if name != "config.json":
        assert resolve(str(folder), None).revision not in (before, changed)


def test_hashes_are_remembered(
    model_folder: Make, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder()
    before = resolve(str(folder), None).revision
    assert (cache / "file-hashes.json").is_file()

    def never(*_: Any) -> None:
        raise AssertionError("hashed again")

    monkeypatch.setattr("hashlib.file_digest", never)
    assert resolve(str(folder), None).revision == before


def test_a_cache_that_cannot_be_written_stops_nobody(
    model_folder: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder()
    before = resolve(str(folder), None).revision
    monkeypatch.setenv("ACE_RAY_CACHE", "/proc/nowhere")
    assert resolve(str(folder), None).revision == before


def test_a_gguf_file_is_known_by_its_magic(tmp_path: Path) -> None:
    file = tmp_path / "tiny-Q4.gguf"
    file.write_bytes(GGUF)
    ref = resolve(str(file), None)
    assert (ref.kind, ref.name) == ("gguf", "tiny-Q4")
    file.write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(UserError, match="not a GGUF file"):
        resolve(str(file), None)


def test_a_gguf_file_is_converted_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(GGUF)
    ref = resolve(str(file), None)
    calls = []

    def convert(gguf: Path, folder: Path) -> None:
        calls.append(gguf)
        folder.mkdir()

    monkeypatch.setattr(sources, "_convert", convert)
    assert materialize(ref) == materialize(ref) == tokenizer_folder(ref)
    assert materialize(ref).is_relative_to(cache)
    assert calls == [file]


def test_a_damaged_gguf_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(GGUF)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match=r"m\.gguf: cannot be converted"):
        materialize(resolve(str(file), None))


def test_a_cache_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(GGUF)
    ref = resolve(str(file), None)
    monkeypatch.setenv("ACE_RAY_CACHE", "/proc/nowhere")
    with pytest.raises(UserError, match="set ACE_RAY_CACHE"):
        materialize(ref)


def test_a_file_in_a_package(
    model_folder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "weights_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "m.gguf").write_bytes(GGUF)
    model_folder(name="weights_package/folder")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve("package:weights_package/m.gguf", None).location == str(package / "m.gguf")
    assert resolve("package:weights_package/folder", None).kind == "folder"


@pytest.mark.nightly
def test_an_s3_prefix(model_folder: Make, s3: Any, cache: Path) -> None:
    folder = model_folder()
    uri = f"s3://{s3.bucket}/models/tiny"
    for file in folder.iterdir():
        s3.client.upload_file(str(file), s3.bucket, f"models/tiny/{file.name}")
    s3.client.put_object(Bucket=s3.bucket, Key="models/tiny/x/../../evil.json", Body=b"{}")
    s3.client.put_object(Bucket=s3.bucket, Key="models/tinyish/config.json", Body=b"{}")
    ref = resolve(uri + "/", None, endpoint_url=s3.endpoint_url, region="us-east-1")
    assert (ref.kind, ref.location, ref.name) == ("s3", uri, "tiny")
    light = {p.name for p in tokenizer_folder(ref).iterdir()}
    assert light == {p.name for p in folder.iterdir()} - {"model.safetensors"}
    local = materialize(ref)
    assert tokenizer_folder(ref) == local
    assert local.is_relative_to(cache)
    assert {p.name: p.read_bytes() for p in local.iterdir()} == {
        p.name: p.read_bytes() for p in folder.iterdir()
    }
    assert materialize(ref) == local
    new = (folder / "model.safetensors").read_bytes()[:-1] + b"n"
    s3.client.put_object(Bucket=s3.bucket, Key="models/tiny/model.safetensors", Body=new)
    assert resolve(uri, None, endpoint_url=s3.endpoint_url).revision != ref.revision
    with pytest.raises(UserError, match="only to Hugging Face ids"):
        resolve(uri, "main", endpoint_url=s3.endpoint_url)


def put_model(s3: Any, folder: Path, prefix: str) -> ModelRef:
    for file in folder.iterdir():
        s3.client.upload_file(str(file), s3.bucket, f"{prefix}/{file.name}")
    return resolve(f"s3://{s3.bucket}/{prefix}", None, endpoint_url=s3.endpoint_url)


def test_a_prefix_that_was_rewritten_before_it_is_fetched(
    model_folder: Make, s3: Any, cache: Path
) -> None:
    ref = put_model(s3, model_folder(), "models/rewritten")
    s3.client.put_object(Bucket=s3.bucket, Key="models/rewritten/model.safetensors", Body=b"new")
    for fetch in (materialize, tokenizer_folder):
        with pytest.raises(UserError, match="has changed since it was planned"):
            fetch(ref)
    assert not [path for path in (cache / "models").iterdir() if path.is_dir()]


@pytest.mark.nightly
def test_a_prefix_that_is_rewritten_while_it_is_fetched(
    model_folder: Make, s3: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files would be the old ones, some the new."""
    ref = put_model(s3, model_folder(), "models/torn")
    download = S3Store.download

    def rewrites(self: Any, path: str, target: Path) -> None:
        download(self, path, target)
        s3.client.put_object(Bucket=s3.bucket, Key="models/torn/model.safetensors", Body=b"new")

    monkeypatch.setattr(S3Store, "download", rewrites)
    with pytest.raises(UserError, match="has changed since it was planned"):
        materialize(ref)
    assert not [path for path in (cache / "models").iterdir() if path.is_dir()]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_folder_is_what_was_planned_or_has_changed(model_folder: Make, name: str) -> None:
    folder = model_folder()
    ref = resolve(str(folder), None)
    check_unchanged(ref)
    (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b" ")
    with pytest.raises(UserError, match="has changed since it was planned"):
        check_unchanged(ref)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    with pytest.raises(UserError, match="does not exist"):
        check_unchanged(ref)


@pytest.mark.nightly
def test_what_was_fetched_is_held_until_it_is_released(
    model_folder: Make, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = put_model(s3, model_folder(weights=b"one", name="1"), "models/one")
    two = put_model(s3, model_folder(weights=b"two", name="2"), "models/two")
    first = materialize(one)
    full = SimpleNamespace(total=1 << 30, free=1 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda path: full)
    second = materialize(two)
    assert first.is_dir()
    for ref in (one, two):
        release(ref)
    three = put_model(s3, model_folder(weights=b"three", name="3"), "models/three")
    materialize(three)
    assert not first.exists()
    assert not second.exists()
    assert materialize(one) == first
    assert first.is_dir()


def test_a_folder_that_is_missing_on_this_node(model_folder: Make) -> None:
    folder = model_folder()
    ref = resolve(str(folder), None)
    folder.rename(folder.with_name("gone"))
    with pytest.raises(UserError, match="missing on this node"):
        materialize(ref)


def test_a_hub_id_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    commit = "0123456789abcdef0123456789abcdef01234567"
    hub = tmp_path / "hub"
    repo = hub / "models--org--tiny"
    (repo / "snapshots" / commit).mkdir(parents=True)
    (repo / "snapshots" / commit / "config.json").write_text("{}")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    (repo / "blobs").mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    import huggingface_hub

    monkeypatch.setattr(
        huggingface_hub, "scan_cache_dir", lambda: huggingface_hub.utils.scan_cache_dir(hub)
    )
    for revision in (None, "main", commit, commit[:12]):
        ref = resolve("org/tiny", revision)
        assert (ref.kind, ref.revision, ref.name) == ("hub", commit, "tiny")
    with pytest.raises(UserError, match="'v2' is not in the local Hugging Face cache"):
        resolve("org/tiny", "v2")
