"""Sizes of models before their weights are here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.models import sizes, sources
from ace_ray.models.checkpoints import INDEX
from ace_ray.models.sizes import Size, size_of
from ace_ray.models.sources import ModelRef, materialize, resolve

Make = Callable[..., Path]


def upload(s3: Any, folder: Path, prefix: str) -> ModelRef:
    for file in folder.iterdir():
        s3.client.upload_file(str(file), s3.bucket, f"{prefix}/{file.name}")
    return resolve(f"s3://{s3.bucket}/{prefix}", None, endpoint_url=s3.endpoint_url)


def test_a_folder(tmp_path: Path, make_checkpoint: Make) -> None:
    folder = make_checkpoint(tmp_path / "m", 1.0, 2.0, 3.0)
    ref = resolve(str(folder), None)
    assert size_of(ref) == Size((folder / "model.safetensors").stat().st_size, 3)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    (folder / "optimizer.bin").write_bytes(b"x" * 1000)
    size = size_of(ref)
    assert size == Size((folder / "pytorch_model.bin").stat().st_size, None)


@pytest.mark.nightly
def test_a_prefix_before_and_after_it_is_fetched(
    tmp_path: Path, make_checkpoint: Make, s3: Any
) -> None:
    folder = make_checkpoint(tmp_path / "m", 1.0, 2.0, 3.0)
    (folder / "pytorch_model.bin").write_bytes(b"the same in another format")
    size = (folder / "model.safetensors").stat().st_size
    ref = upload(s3, folder, "sizes/one")
    assert size_of(ref) == Size(size, None)
    materialize(ref)
    assert size_of(ref) == Size(size, 3)


@pytest.mark.nightly
def test_an_index_says_which_files_count(tmp_path: Path, make_checkpoint: Make, s3: Any) -> None:
    folder = make_checkpoint(tmp_path / "m", 1.0)
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    (folder / "consolidated.safetensors").write_bytes(b"x" * 1000)
    tree = {"metadata": {"total_parameters": 7}, "weight_map": {"w": "a.safetensors"}}
    (folder / INDEX).write_text(json.dumps(tree))
    size = (folder / "a.safetensors").stat().st_size
    assert size_of(upload(s3, folder, "sizes/indexed")) == Size(size, 7)


@pytest.mark.parametrize("told", [{}, {"model.safetensors": 123, "README.md": 5}])
def test_a_hub_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, int]) -> None:
    monkeypatch.setattr(sizes, "tokenizer_folder", lambda ref: tmp_path)
    monkeypatch.setattr(sizes, "file_sizes", lambda ref: told)
    ref = ModelRef("org/m", "hub", "org/m", "0" * 40)
    assert size_of(ref) == (Size(123, None) if told else None)


def test_a_gguf_file_has_the_size_of_what_it_is_converted_to(
    tmp_path: Path, make_checkpoint: Make, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m-0.5B.gguf"
    file.write_bytes(b"GGUF")

    def convert(gguf: Path, folder: Path) -> None:
        make_checkpoint(folder, 1.0, 2.0, 3.0)

    monkeypatch.setattr(sources, "_convert", convert)
    size = size_of(resolve(str(file), None))
    assert size is not None
    assert size.parameters == 3


def test_what_nobody_knows() -> None:
    assert size_of(ModelRef("x", "fake", "x", "r")) is None
