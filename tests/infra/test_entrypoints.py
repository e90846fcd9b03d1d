"""Every command, flag and path that the infrastructure and its page name exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from ace_ray.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    file
    for folder in ("infra", "jobs", "docs")
    for file in sorted((ROOT / folder).rglob("*"))
    if file.is_file() and file.suffix in (".yaml", ".md", ".py", ".Dockerfile", ".json")
] + [ROOT / "README.md"]
NAMED = re.compile(r"(?:(?<=[\s`(])|^)((?:infra|jobs|configs|requirements)/[\w./-]*\w)")


def commands(text: str) -> list[list[str]]:
    """The calls of ``ace-ray`` in code, comments and manifests, as words."""
    joined = re.sub(r"\\\n\s*#?\s*", " ", text)
    found = re.findall(r"(?m)(?:^|[#$`:]|-- |\|\| )\s*(ace-ray [^\n`#;]*)", joined)
    return [shlex.split(re.sub("['\"]", "", call)) for call in found]


def jobs_called() -> list[tuple[str, list[str]]]:
    """(script, its arguments), wherever one is named as a command."""
    pattern = re.compile(r"python (?:/app/)?(jobs/\w+\.py)([^\n`\"]*)")
    found = [call for file in TEXTS for call in pattern.findall(file.read_text())]
    return [(script, shlex.split(rest)) for script, rest in found]


def test_named_paths_exist() -> None:
    for file in TEXTS:
        for name in NAMED.findall(file.read_text()):
            if "..." not in name:
                assert (ROOT / name).exists(), f"{file}: {name}"


def test_the_manifests_call_jobs_that_exist() -> None:
    called = {script for script, _ in jobs_called()}
    assert {f"jobs/{name}.py" for name in ("evaluate", "sweep", "score", "report")} <= called
    assert all((ROOT / script).is_file() for script in called)


@pytest.mark.nightly
@pytest.mark.parametrize("script", ["evaluate", "sweep", "score", "report"])
def test_a_job_says_what_it_takes(script: str) -> None:
    done = subprocess.run(
        [sys.executable, f"jobs/{script}.py", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sage:" in done.stdout


@pytest.mark.nightly
def test_flags_of_jobs_are_known() -> None:
    helps = {}
    for script, words in jobs_called():
        if script not in helps:
            helps[script] = subprocess.run(
                [sys.executable, script, "--help"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        for word in words:
            if word.startswith("--"):
                flag = word.partition("=")[0].rstrip(".,)")
                assert re.search(rf"{flag}\b", helps[script]), f"{script} {flag}"


def test_commands_and_flags_of_ace_ray_are_known() -> None:
    for file in TEXTS:
        for words in commands(file.read_text()):
            command: click.Command = cli
            rest = words[1:]
            while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z]+", rest[0]):
                if rest[0] not in command.commands:
                    break
                command = command.commands[rest.pop(0)]
            if command is cli:
                continue  # a sentence about ace-ray
            known = {o for p in command.params for o in [*p.opts, *p.secondary_opts]} | {"--help"}
            for word in rest:
                if word.startswith("--"):
                    assert word.partition("=")[0].rstrip(".,)") in known, (
                        f"{file}: {shlex.join(words)}"
                    )


def test_calls_are_found_at_all() -> None:
    found = [words for file in TEXTS for words in commands(file.read_text())]
    assert {"evaluate", "submit", "doctor", "report", "score"} <= {words[1] for words in found}
    assert len(jobs_called()) >= 6


def test_config_maps_hold_files_that_exist() -> None:
    for file in (ROOT / "infra" / "kuberay").glob("*/kustomization.yaml"):
        tree = yaml.safe_load(file.read_text())
        for made in tree.get("configMapGenerator", []):
            for name in made["files"]:
                assert (file.parent / name).is_file()
        for name in [*tree.get("resources", []), *tree.get("components", [])]:
            assert (file.parent / name).exists()


def test_the_readme_of_the_folder_names_every_file() -> None:
    text = (ROOT / "infra" / "README.md").read_text()
    for folder in (ROOT / "infra").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert f"`{folder.name}/" in text
            if folder.name == "kuberay":
                continue
            for file in folder.iterdir():
                assert f"`{folder.name}/{file.name}`" in text, file
