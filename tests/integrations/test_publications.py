"""What trackers are given of runs and sweeps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ace_ray.errors import UserError
from ace_ray.integrations.publications import publications
from ace_ray.integrations.trackers import Publication
from ace_ray.storage.object_store import LocalStore
from tests.integrations.made import complete_run, summarized, sweep_of, whole
from tests.report.builders import write_run

HEADLINE = "acebench/official/headline"


def of(folder: Path) -> tuple[list[Publication], list[str]]:
    said: list[str] = []
    found = publications(LocalStore(str(folder)), said.append)
    return found, said


def test_the_config_is_flat_and_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    identity = {
        "engine": {
            "dtype": "float16",
            "speculative_config": {"model": "/home/me/draft"},
            "several": ["/home/me/a", {"at": "file:/home/me/b"}],
        },
        "model": "abc",
    }
    run = complete_run(tmp_path / "run", model="/home/me/toy", extra_identity=identity)
    ((found,), _) = of(run)
    assert found.config["engine.dtype"] == "float16"
    assert found.config["engine.speculative_config.model"] == "draft"
    assert found.config["engine.several"] == '["a",{"at":"b"}]'
    assert found.config["model"] == "toy"
    assert found.config["sampling.temperature"] == 0.0
    assert "/home/me" not in json.dumps(dict(found.config))
    assert all(isinstance(value, str | int | float) for value in found.config.values())


def test_a_curve_has_the_config_that_its_models_share(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", {200: whole(5), 100: whole(2)})
    ((found,), _) = of(sweep)
    assert [point.step for point in found.points] == [100, 200]
    assert "model" not in found.config, "of each checkpoint another one"
    assert found.config["backend"] == "vllm"
    assert found.words[f"{HEADLINE}_is"] == "Overall (workbook)"


def test_a_headline_that_is_partial_or_not_there(tmp_path: Path) -> None:
    rows = [row for row in whole(2) if row["category"] != "special_incomplete"]
    ((partial,), _) = of(complete_run(tmp_path / "partial", rows, limit=3))
    assert "partial, without en/special_incomplete" in partial.words[f"{HEADLINE}_is"]
    assert partial.words["limited_to"] == "3"
    rows = [{**row, "status": "quarantined"} if not i else row for i, row in enumerate(whole(5))]
    ((none,), _) = of(complete_run(tmp_path / "none", rows))
    metrics = none.points[0].metrics
    assert not [name for name in metrics if "headline" in name]
    assert (metrics["rows/not_scored"], metrics["rows/quarantined"]) == (1, 1)
    assert "no score, 1 of" in none.words[f"{HEADLINE}_is"]


def test_a_run_of_a_sweep_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    (sweep / "run-step_100" / "summary.json").write_text("{}")
    ((found,), said) = of(sweep)
    assert [point.step for point in found.points] == [200]
    assert said[0].startswith("step_100: skipped: ")
    (sweep / "run-step_200" / "_SUCCESS").unlink()
    with pytest.raises(UserError, match="no run of the sweep can be published"):
        of(sweep)


def test_what_cannot_be_published(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", whole(5), finished=False)
    with pytest.raises(UserError, match="the run is not complete; complete the evaluation"):
        of(run)
    with pytest.raises(UserError, match="is not a run"):
        of(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../../out", "/etc", "..", ""])
def test_a_foreign_sweep_names_no_folder(tmp_path: Path, name: str) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2)})
    manifest = json.loads((sweep / "sweep.json").read_text())
    (sweep / "sweep.json").write_text(json.dumps({**manifest, "sweep_id": name}))
    ((found,), _) = of(sweep)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", found.group)
    assert re.fullmatch(r"[A-Za-z0-9._-]{9,120}", found.key)
    assert ".." not in found.key


def test_a_replaced_run_is_another_one(tmp_path: Path) -> None:
    keys = set()
    for created in ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"):
        run = write_run(tmp_path / "run", whole(5))
        manifest = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**manifest, "created_at": created}))
        ((found,), _) = of(summarized(run))
        keys.add(found.key)
        assert found.points[0].time > 1.7e9
    assert len(keys) == 2
