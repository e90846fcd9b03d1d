"""The images and locks: packages are pinned by hash, and nothing runs as root."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAVOURS = ["cpu", "gpu"]


def instructions(flavour: str) -> list[tuple[str, str]]:
    """Return the words and the arguments of a Dockerfile's instructions."""
    text = (ROOT / "infra" / "docker" / f"{flavour}.Dockerfile").read_text()
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text))
    split = [line.strip().split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(word, rest) for word, rest in split]


def locked(lock: str) -> dict[str, list[str]]:
    """Return name==version -> hashes."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {requirement: options for requirement, *options in lines}


@pytest.mark.parametrize("lock", [*FLAVOURS, "torch-cuda", "uv"])
def test_every_package_of_a_lock_has_hashes(lock: str) -> None:
    for requirement, options in locked(lock).items():
        assert options, requirement
        for option in options:
            assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option), (requirement, option)


def test_only_torch_is_installed_without_a_hash() -> None:
    assert [name.partition("==")[0] for name in locked("torch")] == ["torch"]
    recipes = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-r req" in line]
    for flavour in FLAVOURS:
        steps = [rest for word, rest in instructions(flavour) if word == "RUN"]
        recipes += [part for step in steps for part in step.split("&&") if "-r req" in part]
    assert len(recipes) == 4 + 3 + 1
    for recipe in recipes:
        assert ("--require-hashes" in recipe) != ("requirements/torch.txt" in recipe), recipe
        assert "--no-deps" in recipe
        assert "--only-binary=:all:" in recipe or "$(PIP)" in recipe


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_image_has_a_pinned_base_and_runs_as_a_user(flavour: str) -> None:
    steps = instructions(flavour)
    (base,) = [rest.partition("=")[2] for word, rest in steps if word == "ARG" and "IMAGE=" in rest]
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert [rest for word, rest in steps if word == "USER"] == ["1000"]
    words = [word for word, _ in steps]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word in ("RUN", "COPY"))
