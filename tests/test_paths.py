"""What is named as a folder and can be none ends in one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.errors import UserError
from ace_ray.models.sources import resolve
from ace_ray.storage.object_store import is_relative, open_store
from ace_ray.util.local_files import path_of

NO_PATHS = ["~nosuchuser", "~nosuchuser/x", "a" * 5000, "b/" * 3000, "a\0b", "~\0"]
KEYS = ["data", "upstream", "reference", "cache_folder", "tool_folder"]
STABLE = {"data": "mini", "judge": "same", "apis": ["cache"]}
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("acebench", "data", {}),
    ("bfcl", "data", {}),
    ("stabletoolbench_judge", "labels", {}),
    *(("stabletoolbench", key, STABLE) for key in KEYS),
]


@pytest.mark.nightly
@pytest.mark.parametrize("text", NO_PATHS, ids=range(len(NO_PATHS)))
@pytest.mark.parametrize(("name", "key", "more"), ASKED)
def test_of_a_benchmark(name: str, key: str, more: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError) as caught:  # noqa: PT012 - each is read where it is first needed
        benchmark = make_benchmark(name, {**more, key: text})
        benchmark.resolved()
        benchmark.entries()
    assert key in str(caught.value)


@pytest.mark.parametrize("text", NO_PATHS, ids=range(len(NO_PATHS)))
def test_of_a_run_or_a_model(text: str) -> None:
    with pytest.raises(UserError, match="is not a valid path"):
        open_store(text)
    with pytest.raises(UserError):
        resolve(text, None)
    is_relative(text)


@pytest.mark.parametrize("uri", ["~nosuchuser/x", "s3://[/x", "s3://[x]/", "a" * 5000])
@pytest.mark.parametrize("command", ["report", "score", "compact"])
def test_of_a_command(command: str, uri: str, here: Callable[..., Any]) -> None:
    ended = here(command, uri)
    assert ended.code == 2
    assert ended.stderr.startswith("ace-ray: ")


def test_a_folder_that_is_a_link_to_itself_or_shut(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="levels of symbolic links"):
        path_of(str(tmp_path / "loop"), "data")
    shut = tmp_path / "shut"
    shut.mkdir()
    shut.chmod(0)
    try:
        if os.access(shut, os.R_OK):
            pytest.skip("this user reads everything")
        for path in (shut, shut / "inner"):
            with pytest.raises(UserError, match="may not be read"):
                path_of(path, "data")
    finally:
        shut.chmod(0o700)


def test_what_is_not_there_is_a_path(tmp_path: Path) -> None:
    assert path_of(tmp_path / "no" / "such", "data") == tmp_path / "no" / "such"
    assert path_of("~/x", "data") == Path.home() / "x"
