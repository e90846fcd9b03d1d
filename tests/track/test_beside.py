"""A tracker may fail in any way: it is one warning, and the run is what it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config import PublishConfig, StoreConfig
from ace_ray.sweeps.ledger import CostRecord
from ace_ray.sweeps.sweep import Sweep
from ace_ray.track import beside
from ace_ray.track.beside import Beside
from tests.track.made import complete_run, sweep_of, whole
from tests.track.third_party import install


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path / "site")))
    paths = [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def publishing(uri: Path, file: Path, *fails: str) -> tuple[Beside, list[str]]:
    said: list[str] = []
    asked = [
        PublishConfig.model_validate({"to": "toy", "file": f"{file}{how}", "fails": how})
        for how in fails or ("",)
    ]
    return Beside(str(uri), asked, StoreConfig(), said.append), said


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.nightly
def test_a_run_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = complete_run(tmp_path / "run")
    monkeypatch.setenv("ACE_RAY_PUBLISH_AGAIN", "1")  # of a command that a user gives
    for words in ("run: 1 point sent to toy: ", "run: nothing new for toy"):
        trackers, said = publishing(run, tmp_path / "sent")
        trackers.finish()
        assert [line[: len(words)] for line in said] == [words], said  # not what a tracker prints
    (line,) = lines(tmp_path / "sent")
    assert (line["step"], line["group"]) == (None, "")
    assert line["metrics"]["acebench/official/headline"] == 100.0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fails", "words"),
    [
        ("raises", "ConnectionError: the tracker is away, api_key=***"),
        ("exits", "SystemExit: 3"),
        ("dies", "its process was ended by signal 9"),
        ("stops", "its process ended before it was done"),
    ],
)
def test_a_failed_tracker_is_one_warning(tmp_path: Path, fails: str, words: str) -> None:
    run = complete_run(tmp_path / "run")
    trackers, said = publishing(run, tmp_path / "sent", fails, "")
    trackers.finish()
    trackers.finish()
    warning, done, _ = said
    assert warning.startswith(f"warning: toy: not published, {words}")
    assert f"; to repeat: ace-ray publish {run} --to toy --option " in warning
    assert "1 point sent to toy" in done, "the other tracker has it"
    assert lines(tmp_path / "sent")
    assert not (tmp_path / f"sent{fails}").exists()


@pytest.mark.nightly
def test_a_tracker_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "MOST_S", 3.0)
    trackers, said = publishing(complete_run(tmp_path / "run"), tmp_path / "sent", "hangs")
    trackers.start()
    trackers.finish()  # not a second time
    (warning,) = said
    assert "toy: not published, no answer within 3 s; to repeat: " in warning


@pytest.mark.nightly
def test_a_sweep_that_goes_on_sends_what_is_new(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2)})
    trackers, said = publishing(sweep, tmp_path / "sent")
    trackers.start()
    trackers.start()  # while the first one may be at work
    sweep_of(sweep, {100: whole(2), 200: whole(5)})
    trackers.finish()
    assert [line["step"] for line in lines(tmp_path / "sent")] == [100, 200]
    assert {line["group"] for line in lines(tmp_path / "sent")} == {"train-1a2b"}
    assert len({line["key"] for line in lines(tmp_path / "sent")}) == 1
    assert not [line for line in said if "warning" in line]


@pytest.mark.nightly
@pytest.mark.parametrize("code", [0, 75])
def test_evaluate_publishes_a_run_that_is_complete(
    here: Any, config_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    run = complete_run(tmp_path / "run")
    summary = {**json.loads((run / "summary.json").read_text()), "uri": str(run)}
    target = {"to": "toy", "file": str(tmp_path / "sent")}
    config = config_file(publish=[target])
    monkeypatch.setattr("ace_ray.run.evaluate.evaluate", lambda *_, **__: (code, summary))
    ended = here("evaluate", config)
    assert ended.code == code, ended.stderr
    assert ("1 point sent to toy" in ended.stdout) == (code == 0)


@pytest.mark.nightly
def test_a_sweep_publishes_when_its_ledger_is_written(
    here: Any, config_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {"to": "toy", "file": str(tmp_path / "sent")}
    config = config_file(model={}, models=[{"source": "a"}], sweep_id="s", publish=[target])
    folder = tmp_path / "out" / "s"

    def run(sweep: Sweep, noted: Callable[[], None]) -> int:
        noted()  # nothing is complete
        sweep_of(folder, {100: whole(2)})
        sweep.cost_records = [CostRecord("a", 100, "a", "r", state="complete")]
        noted()
        sweep_of(folder, {100: whole(2), 200: whole(5)})
        return 75

    monkeypatch.setattr(Sweep, "run", run)
    ended = here("sweep", config)
    assert ended.code == 75, ended.stderr
    assert "warning" not in ended.stdout
    assert [line["step"] for line in lines(tmp_path / "sent")] == [100, 200]
