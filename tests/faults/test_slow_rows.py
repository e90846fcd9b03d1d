"""Slow rows hold up their own blocks, not the engine."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import load, locate

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

PLACES = 16


def wide(make_run: Any, slow: int, **changes: Any) -> tuple[Any, list[str]]:
    """Return a run of 60 single calls, and ``slow`` questions of it whose answers never end."""
    run = make_run(concurrency=PLACES, max_attempts=1, **changes)
    benchmark = {"name": "acebench", "languages": ["en"], "categories": ["normal", "special"]}
    questions = [
        entry.data["question"]
        for entry in load(locate("mini"), languages=["en"])
        if not entry.category.startswith("agent")
    ]
    endless = questions[:: len(questions) // slow][:slow]
    run.write(benchmarks=[benchmark], engine={"endless": endless})
    return run, endless


def late_ones(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["error_class"] == "EpisodeTimeout"]


def test_slow_rows_do_not_keep_others_from_the_engine(make_run):
    """All other rows have begun when the first slow row times out."""
    slow = PLACES - 4
    run, _ = wide(make_run, slow, rows_per_block=8, episode_timeout_s=15.0)
    driver = run.to_the_end()
    rows = run.rows()
    late = late_ones(rows)
    assert (len(rows), len(late)) == (60, slow), driver.text
    first_end = min(row["started_at"].timestamp() + row["duration_s"] for row in late)
    assert [row["id"] for row in rows if row["started_at"].timestamp() >= first_end] == []


def test_rows_that_ended_before_a_death_are_not_blamed(make_run):
    """They run again with their block, but are not isolated, and count no attempt."""
    run, endless = wide(make_run, 2, rows_per_block=4, episode_timeout_s=30.0)
    driver = run.start()
    driver.until_stored(60 - 4 * len(endless))
    time.sleep(2.0)
    driver.find("EngineWorker").kill()
    driver.wait()
    rows = run.rows()
    late = late_ones(rows)
    assert (len(rows), len(late)) == (60, len(endless)), driver.text
    assert {row["attempts"] for row in late} == {2}
    assert {row["attempts"] for row in rows if row not in late} == {1}
