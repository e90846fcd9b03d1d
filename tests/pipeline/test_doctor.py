from __future__ import annotations

from pathlib import Path
from typing import Any

from ace_ray.config.schema import run_config
from ace_ray.pipeline import doctor
from ace_ray.types import Episode
from tests.pipeline.made_run import CATEGORIES, written_run


def test_plan_writes_nothing(here: Any, config_file: Any, tmp_path: Path) -> None:
    path = config_file(limit=3)
    ended = here("evaluate", path, "--plan")
    assert ended.code == 0, ended.stderr
    lines = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())
    assert lines["rows"] == "all 3 will be evaluated"
    assert lines["categories"].startswith("acebench: normal_atom_bool 1, ")
    assert lines["results"].startswith(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    too_many = here("evaluate", config_file(worker_cpus=10_000), "--plan")
    assert too_many.code == 2
    assert here("evaluate", config_file(benchmarks=["acebenhc"]), "--plan").code == 2


def test_plan_of_a_run_that_was_begun(tmp_path: Path) -> None:
    written_run(tmp_path / "run", lambda number, entry: Episode([], "[]", model_calls=1))
    (part,) = (tmp_path / "run/rows").iterdir()
    config = run_config(
        {
            "model": {"source": "fake"},
            "backend": "fake",
            "benchmarks": [{"name": "acebench", "languages": ["en"], "categories": CATEGORIES}],
            "output": str(tmp_path),
            "run_id": "run",
        },
        where="x",
    )
    told = {line.topic: line.text for line in doctor.planned(config)}
    assert told["rows"] == "0 of 8 will be evaluated; the others are stored"
    part.unlink()
    told = {line.topic: line.text for line in doctor.planned(config)}
    assert told["rows"] == "8 of 8 will be evaluated; the others are stored"
