"""Trackio for real: what its database holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integrations.made import complete_run, sweep_of, whole

pytest.importorskip("trackio")

HEADLINE = "acebench/official/headline"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of this test alone; the module has read the environment by the first one."""
    from trackio import utils
    from trackio.sqlite_storage import SQLiteStorage

    folder = tmp_path / "trackio"
    monkeypatch.setenv("TRACKIO_DIR", str(folder))
    for module in (utils, __import__("sys").modules[SQLiteStorage.__module__]):
        if hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", folder)
    return folder


def publish(here: Any, run: Path, *more: object) -> str:
    ended = here("publish", run, "--to", "trackio", "--option", "project=toys", *more)
    assert ended.code == 0, ended.stderr
    return str(ended.stdout)


def points() -> dict[str, list[tuple[int, float]]]:
    """Run -> (step, headline) of every entry, those that are there twice included."""
    from trackio.sqlite_storage import SQLiteStorage

    return {
        name: sorted(
            (int(entry["step"]), entry[HEADLINE])
            for entry in SQLiteStorage.get_logs("toys", name)
            if HEADLINE in entry
        )
        for name in SQLiteStorage.get_runs("toys")
    }


@pytest.mark.nightly
def test_each_point_is_sent_once(here: Any, tmp_path: Path, database: Path) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    assert "train: published to trackio: trackio: project toys" in publish(here, sweep)
    sweep_of(sweep, {50: whole(1), 100: whole(2), 200: whole(5)})
    publish(here, sweep)
    publish(here, sweep)
    ((name, curve),) = points().items()
    assert name.startswith("train-1a2b-train-")
    assert [step for step, _ in curve] == [50, 100, 200]
    assert curve[2][1] == 100.0
    config = SQLiteStorage.get_run_config("toys", name)
    assert config is not None
    assert config["backend"] == "vllm"
    assert "workbook" in config[f"{HEADLINE}_is"]


def test_a_run_without_a_step(here: Any, tmp_path: Path, database: Path) -> None:
    run = complete_run(tmp_path / "run")
    publish(here, run)
    ((name, curve),) = points().items()
    assert name.startswith("run-")
    assert curve == [(0, 100.0)]
    assert database.is_dir()
