from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ace_ray.config.schema import run_config
from ace_ray.models.fake import count_words
from ace_ray.pipeline import doctor
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.open_run import opened
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.types import Episode
from tests.pipeline.made_run import CATEGORIES, written_run


def test_prompts_that_do_not_fit_are_counted(here: Any, config_file: Any) -> None:
    def plan(context: int) -> Plan:
        tree = json.loads(config_file(engine={"max_model_len": context}, limit=6).read_text())
        return plan_run(run_config(tree, where="x"))

    lengths = sorted(
        count_words(benchmark.prompt(entry), benchmark.tools(entry))
        for made in [plan(4096)]
        for entry in made.entries
        for benchmark in [made.benchmarks[entry.benchmark]]
    )
    longest = lengths[-1]
    assert longest > lengths[-2]
    told = f"5 of 6 prompts fit a context of {longest} tokens, the longest has {longest}"
    shown = here("doctor", config_file(engine={"max_model_len": longest}, limit=6)).stdout
    assert f"{told}; rows whose prompt does not fit are skipped (PromptTooLong)" in shown
    said: list[object] = []
    with opened(plan(longest), fresh=False, say=said.append, began=0.0):
        assert any(told in str(line) for line in said)
    said.clear()
    with opened(plan(longest + 1), fresh=False, say=said.append, began=0.0):
        assert not said


def test_plan_writes_nothing(here: Any, config_file: Any, tmp_path: Path) -> None:
    path = config_file(limit=3)
    ended = here("evaluate", path, "--plan")
    assert ended.code == 0, ended.stderr
    lines = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())
    assert lines["rows"] == "all 3 are to be evaluated"
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
    assert told["rows"] == "0 of 8 are to be evaluated; the others are stored"
    part.unlink()
    told = {line.topic: line.text for line in doctor.planned(config)}
    assert told["rows"] == "8 of 8 are to be evaluated; the others are stored"
