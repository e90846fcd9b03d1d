"""Sources of weights: pinned by content, fetched once, and their sizes."""

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.models import sources
from ace_ray.models.sizes import Size, size_of
from ace_ray.models.sources import ModelRef, check_unchanged, materialize, resolve, tokenizer_folder
from ace_ray.storage.object_store import S3Store

Make = Callable[..., Path]
GGUF = struct.pack("<4sIQQ", b"GGUF", 3, 0, 0)
"""A whole file without keys and tensors."""


def upload(s3: Any, folder: Path, prefix: str) -> ModelRef:
    for file in folder.iterdir():
        s3.client.upload_file(str(file), s3.bucket, f"{prefix}/{file.name}")
    return resolve(f"s3://{s3.bucket}/{prefix}", None, endpoint_url=s3.endpoint_url)


def folders(cache: Path) -> list[Path]:
    return [path for path in (cache / "models").iterdir() if path.is_dir()]


def test_a_folder_is_pinned_by_its_content(model_folder, cache, monkeypatch) -> None:
    folder = model_folder(weights=b"one", name="my-model")
    ref = resolve(str(folder), None)
    assert (ref.kind, ref.location, ref.name) == ("folder", str(folder), "my-model")
    assert ref.revision.startswith("sha256:")
    assert materialize(ref) == tokenizer_folder(ref) == folder
    twin = model_folder(weights=b"one", name="twin")
    assert resolve(str(twin), None).revision == ref.revision
    (folder / "notes.md").write_text("no part of the model")
    assert (cache / "file-hashes.json").is_file()
    with monkeypatch.context() as patch:  # hashes are remembered
        patch.setattr("hashlib.file_digest", pytest.fail)
        assert resolve(str(folder), None).revision == ref.revision
    monkeypatch.setenv("ACE_RAY_CACHE", "/proc/nowhere")
    assert resolve(str(folder), None).revision == ref.revision
    folder.rename(folder.with_name("gone"))
    with pytest.raises(UserError, match="missing on this node"):
        materialize(ref)
    with pytest.raises(UserError, match="does not exist"):
        check_unchanged(ref)


def test_any_change_of_a_folder_changes_its_revision(model_folder: Make) -> None:
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        folder = model_folder(name=f"m-{name}")
        ref = resolve(str(folder), None)
        check_unchanged(ref)
        (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b" ")
        with pytest.raises(UserError, match="has changed since the run was planned"):
            check_unchanged(ref)
        changed = resolve(str(folder), None).revision
        if name != "config.json":
            (folder / name).rename(folder / f"x{name}")
            assert resolve(str(folder), None).revision not in (ref.revision, changed)


def test_a_gguf_file_is_known_by_its_magic_and_converted_once(
    tmp_path: Path, make_checkpoint: Make, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny-Q4.gguf"
    file.write_bytes(GGUF)
    ref = resolve(str(file), None)
    assert (ref.kind, ref.name) == ("gguf", "tiny-Q4")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(UserError, match=r"tiny-Q4\.gguf: cannot be converted"):
            materialize(ref)
        patch.setenv("ACE_RAY_CACHE", "/proc/nowhere")
        with pytest.raises(UserError, match="set ACE_RAY_CACHE"):
            materialize(ref)
    calls = []

    def convert(gguf: Path, folder: Path) -> None:
        calls.append(gguf)
        make_checkpoint(folder, 1.0, 2.0, 3.0)

    monkeypatch.setattr(sources, "_convert", convert)
    assert materialize(ref) == materialize(ref) == tokenizer_folder(ref)
    assert materialize(ref).is_relative_to(cache)
    assert calls == [file]
    size = size_of(ref)
    assert size is not None
    assert size.parameters == 3
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n"
    for content, why in ((b"<!DOCTYPE html>", "not a GGUF file"), (pointer, "a git-lfs pointer")):
        file.write_bytes(content)
        with pytest.raises(UserError, match=why):
            resolve(str(file), None)


@pytest.mark.nightly
def test_an_s3_prefix_is_fetched_once_and_has_a_size(tmp_path, make_checkpoint, s3, cache) -> None:
    folder = make_checkpoint(tmp_path / "m", 1.0, 2.0, 3.0)
    weights = folder / "model.safetensors"
    size, content = weights.stat().st_size, {p.name: p.read_bytes() for p in folder.iterdir()}
    assert size_of(resolve(str(folder), None)) == Size(size, 3)
    s3.client.put_object(Bucket=s3.bucket, Key="models/tiny/x/../../evil.json", Body=b"{}")
    s3.client.put_object(Bucket=s3.bucket, Key="models/tinyish/config.json", Body=b"{}")
    upload(s3, folder, "models/tiny")
    uri = f"s3://{s3.bucket}/models/tiny"
    ref = resolve(uri + "/", None, endpoint_url=s3.endpoint_url, region="us-east-1")
    assert (ref.kind, ref.location, ref.name) == ("s3", uri, "tiny")
    assert {p.name for p in tokenizer_folder(ref).iterdir()} == content.keys() - {weights.name}
    assert size_of(ref) == Size(size, None)
    local = materialize(ref)
    assert tokenizer_folder(ref) == materialize(ref) == local
    assert local.is_relative_to(cache)
    assert {p.name: p.read_bytes() for p in local.iterdir()} == content
    assert size_of(ref) == Size(size, 3)
    with pytest.raises(UserError, match="only to Hugging Face ids"):
        resolve(uri, "main", endpoint_url=s3.endpoint_url)
    assert size_of(ModelRef("x", "fake", "x", "r")) is None


def test_a_prefix_that_is_rewritten_is_not_mixed(model_folder, s3, cache, monkeypatch) -> None:
    ref = upload(s3, model_folder(), "models/torn")
    download = S3Store.download

    def rewrite() -> None:
        s3.client.put_object(Bucket=s3.bucket, Key="models/torn/model.safetensors", Body=b"new")

    def rewrites(self: Any, path: str, target: Path) -> None:
        download(self, path, target)
        rewrite()

    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "download", rewrites)
        with pytest.raises(UserError, match="has changed since the run was planned"):
            materialize(ref)
    for fetch in (materialize, tokenizer_folder):
        with pytest.raises(UserError, match="has changed since the run was planned"):
            fetch(ref)
    assert not folders(cache)


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
