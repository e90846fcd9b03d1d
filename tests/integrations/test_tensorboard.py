"""TensorBoard for real: what its own reader finds in the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integrations.made import complete_run, sweep_of, whole

pytest.importorskip("tensorboard")

HEADLINE = "acebench/official/headline"
Curve = list[tuple[int, float]]


def curves(folder: Path) -> dict[str, dict[str, Curve]]:
    """Folder -> tag -> (step, value) of every event, those that are there twice included."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, dict[str, Curve]] = {}
    for path in sorted({file.parent for file in folder.rglob("*tfevents*")}):
        reader = EventAccumulator(str(path), size_guidance={"scalars": 0})
        reader.Reload()
        name = str(path.relative_to(folder))
        found[name] = {
            tag: [(event.step, event.value) for event in reader.Scalars(tag)]
            for tag in reader.Tags()["scalars"]
        }
    return found


def publish(here: Any, run: Path, folder: Path, *more: object) -> str:
    ended = here("publish", run, "--to", "tensorboard", "--option", f"folder={folder}", *more)
    assert ended.code == 0, ended.stderr
    return str(ended.stdout)


def test_a_run_is_a_run_of_its_own(here: Any, tmp_path: Path) -> None:
    run = complete_run(tmp_path / "run")
    said = publish(here, run, tmp_path / "tb")
    assert "run: published to tensorboard:" in said
    ((name, tags),) = curves(tmp_path / "tb").items()
    assert name.startswith("run-")
    assert tags[HEADLINE] == [(0, 100.0)]
    assert tags["rows/not_scored"] == [(0, 0.0)]
    low = tags[f"{HEADLINE}_low"][0][1]
    assert 80 < low < 100


def test_a_line_says_by_which_formula_it_is(here: Any, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    publish(here, complete_run(tmp_path / "run"), tmp_path / "tb")
    (folder,) = {file.parent for file in (tmp_path / "tb").rglob("*tfevents*")}
    reader = EventAccumulator(str(folder))
    reader.Reload()
    assert "workbook" in reader.SummaryMetadata(HEADLINE).summary_description
    assert reader.SummaryMetadata("rows/declared").summary_description == ""


def test_each_point_of_a_sweep_is_sent_once(here: Any, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    publish(here, sweep, tmp_path / "tb")
    sweep_of(sweep, {100: whole(2), 200: whole(5), 300: whole(1)})
    publish(here, sweep, tmp_path / "tb")
    publish(here, sweep, tmp_path / "tb")
    ((name, tags),) = curves(tmp_path / "tb").items()
    assert name.startswith("train-1a2b/train-1a2b-train-")
    steps, values = zip(*tags[HEADLINE], strict=True)
    assert steps == (100, 200, 300)
    assert values[2] < values[0] < values[1] == 100.0
    assert len(list((tmp_path / "tb").rglob("*tfevents*"))) == 1


def test_a_checkpoint_that_comes_late_finds_its_place(here: Any, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", {200: whole(5)})
    publish(here, sweep, tmp_path / "tb")
    sweep_of(sweep, {100: whole(2), 200: whole(5)})
    publish(here, sweep, tmp_path / "tb")
    ((_, tags),) = curves(tmp_path / "tb").items()
    assert [step for step, _ in tags[HEADLINE]] == [100, 200]


def test_what_was_scored_again_replaces_what_was_sent(here: Any, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    publish(here, sweep, tmp_path / "tb")
    ((_, before),) = curves(tmp_path / "tb").items()
    sweep_of(sweep, {100: whole(3), 200: whole(5)})
    publish(here, sweep, tmp_path / "tb")
    ((_, tags),) = curves(tmp_path / "tb").items()
    assert [step for step, _ in tags[HEADLINE]] == [100, 200]
    assert tags[HEADLINE][0] != before[HEADLINE][0]


def test_models_without_a_step_are_runs_of_their_own(here: Any, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2)}, other=whole(4))
    said = publish(here, sweep, tmp_path / "tb")
    assert "other: published" in said
    assert "train: published" in said
    assert {name.split("/")[0] for name in curves(tmp_path / "tb")} == {"train-1a2b"}
    assert len(curves(tmp_path / "tb")) == 2


def test_a_partial_headline_has_a_line_of_its_own(here: Any, tmp_path: Path) -> None:
    rows = [row for row in whole(2) if row["category"] != "special_incomplete"]
    run = complete_run(tmp_path / "run", rows)
    publish(here, run, tmp_path / "tb")
    ((_, tags),) = curves(tmp_path / "tb").items()
    assert HEADLINE not in tags
    assert f"{HEADLINE}_partial" in tags


@pytest.mark.parametrize("kind", ["linked folder", "linked file", "file with two names"])
def test_nothing_is_written_behind_a_link(kind: str, here: Any, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2)})
    publish(here, sweep, tmp_path / "tb")
    (file,) = (tmp_path / "tb").rglob("*tfevents*")
    kept = tmp_path / "kept"
    if kind == "linked folder":
        file.parent.rename(kept)
        file.parent.symlink_to(kept)
    elif kind == "linked file":
        file.rename(kept)
        file.symlink_to(kept)
    else:
        kept.hardlink_to(file)
    held = kept / file.name if kept.is_dir() else kept
    before = held.read_bytes()
    sweep_of(sweep, {100: whole(2), 200: whole(5)})
    ended = here("publish", sweep, "--to", "tensorboard", "--option", f"folder={tmp_path / 'tb'}")
    assert held.read_bytes() == before
    if kind == "linked folder":
        told = ended.stderr + ended.stdout
        assert "symbolic link, and files behind links are never changed" in told
        assert [path.name for path in kept.iterdir()] == [file.name]
    else:
        ((_, tags),) = curves(tmp_path / "tb").items()
        assert [step for step, _ in tags[HEADLINE]] == [100, 200]
