"""Slow rows hold up their own blocks, not the engine."""

import pytest

from ace_ray.benchmarks.acebench.data.loader import load, locate

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

PLACES = 16


def test_slow_rows_do_not_keep_others_from_the_engine(make_run):
    """All other rows have begun when the first slow row times out."""
    slow = PLACES - 4
    questions = [
        entry.data["question"]
        for entry in load(locate("mini"), languages=["en"])
        if not entry.category.startswith("agent")
    ]
    run = make_run(concurrency=PLACES, max_attempts=1, rows_per_block=8, episode_timeout_s=15.0)
    benchmark = {"name": "acebench", "languages": ["en"], "categories": ["normal", "special"]}
    endless = questions[:: len(questions) // slow][:slow]
    run.write(benchmarks=[benchmark], engine={"endless": endless})
    driver = run.to_the_end()
    rows = run.rows()
    late = [row for row in rows if row["error_class"] == "EpisodeTimeout"]
    assert (len(rows), len(late)) == (60, slow), driver.text
    first_end = min(row["started_at"].timestamp() + row["duration_s"] for row in late)
    assert [row["id"] for row in rows if row["started_at"].timestamp() >= first_end] == []
