"""Trackers hold each number of a run and step once, whatever is published again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ace_ray.integrations.trackers import Point, Publication
from tests.integrations.made import complete_run, sweep_of, whole

HEADLINE = "acebench/official/headline"
Tags = dict[str, list[tuple[int, float]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("tensorboard")
    return tmp_path / "tb"


def readers(folder: Path) -> dict[str, Any]:
    """Return TensorBoard's reader of each folder with event files, by its name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for path in sorted({file.parent for file in folder.rglob("*tfevents*")}):
        found[str(path.relative_to(folder))] = EventAccumulator(str(path), {"scalars": 0})
        found[str(path.relative_to(folder))].Reload()
    return found


def tags_of(reader: Any) -> Tags:
    """Return (step, value) of every event by tag, also of repeated ones."""
    tags = reader.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in tags}


def publish(here: Any, run: Path, to: str, *options: object) -> str:
    ended = here("publish", run, "--to", to, *(x for o in options for x in ("--option", o)))
    assert ended.code == 0, ended.stderr
    return str(ended.stdout)


def test_tensorboard_has_a_run_with_interval_and_formula(
    here: Any, tmp_path: Path, folder: Path
) -> None:
    said = publish(here, complete_run(tmp_path / "run"), "tensorboard", f"folder={folder}")
    assert "run: published to tensorboard:" in said
    ((name, reader),) = readers(folder).items()
    assert name.startswith("run-")
    tags = tags_of(reader)
    assert tags[HEADLINE] == [(0, 100.0)]
    assert tags["rows/not_scored"] == [(0, 0.0)]
    assert 80 < tags[f"{HEADLINE}_low"][0][1] < 100
    assert "workbook" in reader.SummaryMetadata(HEADLINE).summary_description
    assert reader.SummaryMetadata("rows/declared").summary_description == ""


def test_tensorboard_has_each_point_of_a_sweep_once(
    here: Any, tmp_path: Path, folder: Path
) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    publish(here, sweep, "tensorboard", f"folder={folder}")
    # A late checkpoint, another verdict, and the same again.
    sweep_of(sweep, {50: whole(1), 100: whole(3), 200: whole(5)})
    for _ in range(2):
        publish(here, sweep, "tensorboard", f"folder={folder}")
    ((name, reader),) = readers(folder).items()
    assert name.startswith("train-1a2b/train-1a2b-train-")
    steps, values = zip(*tags_of(reader)[HEADLINE], strict=True)
    assert steps == (50, 100, 200)
    assert values[0] < values[1] < values[2] == 100.0
    assert len(list(folder.rglob("*tfevents*"))) == 1


def test_models_without_a_step_and_partial_headlines_have_their_own_lines(
    here: Any, tmp_path: Path, folder: Path
) -> None:
    rows = [row for row in whole(2) if row["category"] != "special_incomplete"]
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2)}, other=rows)
    said = publish(here, sweep, "tensorboard", f"folder={folder}")
    assert "other: published" in said
    assert "train: published" in said
    found = {name.split("/")[1]: tags_of(reader) for name, reader in readers(folder).items()}
    assert len(found) == 2
    (other,) = [tags for name, tags in found.items() if "train-1a2b" not in name]
    assert HEADLINE not in other
    assert f"{HEADLINE}_partial" in other


@pytest.mark.parametrize("kind", ["linked folder", "linked file", "file with two names"])
def test_nothing_is_written_behind_a_link(
    kind: str, here: Any, tmp_path: Path, folder: Path
) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2)})
    publish(here, sweep, "tensorboard", f"folder={folder}")
    (file,) = folder.rglob("*tfevents*")
    held = tmp_path / "kept"
    if kind == "file with two names":
        held.hardlink_to(file)
    else:
        place = file.parent if kind == "linked folder" else file
        place.rename(held)
        place.symlink_to(held)
    before = [path.read_bytes() for path in (*held.glob("*"), held) if path.is_file()]
    sweep_of(sweep, {100: whole(2), 200: whole(5)})
    ended = here("publish", sweep, "--to", "tensorboard", "--option", f"folder={folder}")
    assert [path.read_bytes() for path in (*held.glob("*"), held) if path.is_file()] == before
    refused = "symbolic link, and files behind links are never changed" in ended.stderr
    assert refused == (kind == "linked folder")


@pytest.mark.nightly
def test_trackio_has_each_point_once(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trackio")
    from trackio import utils
    from trackio.sqlite_storage import SQLiteStorage

    # The module reads the environment once, when it is imported.
    for module in (utils, sys.modules[SQLiteStorage.__module__]):
        if hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    said = publish(here, sweep, "trackio", "project=toys")
    assert "train: published to trackio: trackio: project toys" in said
    sweep_of(sweep, {50: whole(1), 100: whole(2), 200: whole(5)})
    for _ in range(2):
        publish(here, sweep, "trackio", "project=toys")
    (name,) = SQLiteStorage.get_runs("toys")
    assert name.startswith("train-1a2b-train-")
    entries = [one for one in SQLiteStorage.get_logs("toys", name) if HEADLINE in one]
    curve = sorted((int(one["step"]), one[HEADLINE]) for one in entries)
    assert [step for step, _ in curve] == [50, 100, 200]
    assert curve[2][1] == 100.0
    assert "workbook" in (SQLiteStorage.get_run_config("toys", name) or {})[f"{HEADLINE}_is"]


def test_points_that_a_tracker_lacks_are_sent_again() -> None:
    points = [Point(100, {HEADLINE: 1.0, "x/y": 4.0}), Point(50, {HEADLINE: 2.0})]
    curve = Publication("key-1", "train", "sweep-1", {}, {}, points)
    held = {(100, HEADLINE): 1.0, (100, "x/y"): 3.0}
    assert curve.missing(held) == [Point(100, {"x/y": 4.0}), points[1]]


def test_mlflow_has_each_point_once(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    publish(here, sweep, "mlflow")
    sweep_of(sweep, {100: whole(2), 200: whole(5), 300: whole(1)})
    for _ in range(2):
        publish(here, sweep, "mlflow")
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("ace_ray").experiment_id
    (found,) = client.search_runs([experiment])
    assert found.info.run_name == "train"
    history = client.get_metric_history(found.info.run_id, HEADLINE)
    assert [metric.step for metric in history] == [100, 200, 300]
    assert found.data.params["backend"] == "vllm"
    assert "workbook" in found.data.tags[f"{HEADLINE}_is"]
    assert found.data.tags["ace_ray.group"] == "train-1a2b"
