"""A run grows in steps, its driver is killed in between, and its rows equal those of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_grown_run_equals_one_run(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "perf"))
    from same_rows import compare

    run = make_run(run_id=None, engine={"delay_s": 0.3}, sampling={"temperature": 0.7})
    acebench, output = run.tree["benchmarks"][0], Path(run.output)

    def stored() -> int:
        return sum(len(read_ledger(open_store(str(path))).ids) for path in output.iterdir())

    steps: list[tuple[dict[str, Any], int]] = [
        ({"benchmarks": [{**acebench, "limit": 3}]}, 3),
        ({"benchmarks": [{**acebench, "limit": 6}]}, 6),
        ({"samples": 3}, 18),
        ({"benchmarks": [{**acebench, "limit": 6}, {"name": "bfcl", "limit": 4}]}, 30),
    ]
    before = 0
    for changes, rows in steps:
        run.write(**changes)
        if before:
            first = run.start()
            first.until(lambda before=before: stored() > before)
            first.kill()
            before = stored()
        last = run.to_the_end()
        assert last.code == 0, last.text
        assert f"{rows} rows declared, {rows - before} to evaluate" in last.text
        assert not before or f"{before} stored rows reused" in last.text
        before = rows
    (folder,) = output.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert [line.partition(" on ")[0] for line in summary["grown"]] == [
        "grew from 3 to 6 rows",
        "grew from 6 to 18 rows",
        "grew from 18 to 30 rows",
    ]
    assert summary["grown"][-1].endswith("(bfcl added)")
    run.write(output=str(output.parent / "one"))
    assert run.to_the_end().code == 0
    (whole,) = (output.parent / "one").iterdir()
    assert whole.name == folder.name
    assert compare(str(whole), str(folder), contents=True) == 0
