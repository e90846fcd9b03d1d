"""A run and a sweep that publish themselves, with the fake engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.track.third_party import install

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(install(tmp_path / "site")), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.mark.usefixtures("toy")
def test_a_run_publishes_itself_once_it_is_complete(
    cli: Cli, config_file: Any, tmp_path: Path
) -> None:
    sent = tmp_path / "sent"
    targets = [
        {"to": "toy", "file": str(tmp_path / "away"), "fails": "raises"},
        {"to": "toy", "file": str(sent)},
    ]
    path = config_file(publish=targets)
    first = cli("evaluate", path, timeout_s=600)
    assert first.code == 0, first.stderr
    assert "warning: toy: not published, ConnectionError: the tracker is away" in first.stdout
    assert "1 point sent to toy" in first.stdout
    again = cli("evaluate", path, timeout_s=600)
    assert again.code == 0, again.stderr
    assert "nothing new for toy" in again.stdout
    (line,) = [json.loads(line) for line in sent.read_text().splitlines()]
    assert line["metrics"]["rows/not_scored"] == 0


@pytest.mark.usefixtures("toy")
def test_a_sweep_is_one_curve(
    cli: Cli, config_file: Any, make_checkpoint: Any, tmp_path: Path
) -> None:
    for step in (10, 20):
        make_checkpoint(tmp_path / "train" / f"step_{step}", 1.0, float(step))
    sent = tmp_path / "sent"
    path = config_file(
        model={},
        checkpoints=str(tmp_path / "train"),
        settle_s=0,
        publish=[{"to": "toy", "file": str(sent)}],
    )
    ended = cli("sweep", path, timeout_s=900)
    assert ended.code == 0, ended.stderr
    resumed = cli("sweep", path, timeout_s=900)
    assert "train: nothing new for toy" in resumed.stdout, resumed.stdout + resumed.stderr
    lines = [json.loads(line) for line in sent.read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 20]
    assert len({line["key"] for line in lines}) == 1
    (folder,) = (tmp_path / "out").iterdir()
    assert (folder / "published.json").is_file()
    assert not list(folder.glob("*/published.json"))
