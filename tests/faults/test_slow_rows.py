"""Rows that end late hold up their own blocks, never the engine, and no others get their blame."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import load, locate

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

PLACES = 16
"""At which two rows come in together, and each must leave by itself."""


def wide(make_run: Any, slow: int, **changes: Any) -> tuple[Any, list[str]]:
    """A run of the 60 mini rows that are one call each, and ``slow`` questions that never end."""
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
    """Some end only when their time is over: by then all others have begun. There are enough to
    take every place with those that they came in with."""
    slow = PLACES - 4
    run, _ = wide(make_run, slow, rows_per_block=8, episode_timeout_s=15.0)
    driver = run.to_the_end()
    rows = run.rows()
    late = late_ones(rows)
    assert (len(rows), len(late)) == (60, slow), driver.text
    first_end = min(row["started_at"].timestamp() + row["duration_s"] for row in late)
    assert [row["id"] for row in rows if row["started_at"].timestamp() >= first_end] == []


def test_rows_that_had_ended_are_not_blamed_for_a_death(make_run):
    """They come again, since their block had not ended; but they are not isolated, and a death that
    was none of theirs is not counted among their attempts."""
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
