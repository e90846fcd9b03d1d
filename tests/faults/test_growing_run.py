"""A run grows in steps, its driver is killed in between, and its rows equal those of one run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_grown_run_equals_one_run(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "perf"))
    compare = importlib.import_module("same_rows").compare
    run = make_run(run_id=None, engine={"delay_s": 0.3}, sampling={"temperature": 0.7})
    acebench, output = run.tree["benchmarks"][0], Path(run.output)
    steps: list[dict[str, Any]] = [
        {"benchmarks": [{**acebench, "limit": 3}]},
        {"benchmarks": [{**acebench, "limit": 6}]},
        {"samples": 3},
        {"benchmarks": [{**acebench, "limit": 6}, {"name": "bfcl", "limit": 4}]},
    ]

    def stored() -> int:
        return sum(len(read_ledger(open_store(str(path))).ids) for path in output.iterdir())

    for changes, before, rows in zip(steps, (0, 3, 6, 18), (3, 6, 18, 30), strict=True):
        run.write(**changes)
        if before:
            first = run.start()
            first.until(lambda before=before: stored() > before)
            first.kill()
        reused = stored() if before else 0
        last = run.to_the_end()
        assert last.code == 0, last.text
        assert f"{rows} rows declared, {rows - reused} to evaluate, {reused} stored" in last.text
    (folder,) = output.iterdir()
    grown = json.loads((folder / "summary.json").read_text())["grown"]
    assert [line.partition(" rows on ")[0] for line in grown] == [
        f"grew from {step}" for step in ("3 to 6", "6 to 18", "18 to 30")
    ]
    run.write(output=str(output.parent / "one"))
    assert run.to_the_end().code == 0
    (whole,) = (output.parent / "one").iterdir()
    assert (whole.name, compare(str(whole), str(folder), contents=True)) == (folder.name, 0)
