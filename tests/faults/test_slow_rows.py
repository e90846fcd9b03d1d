"""Rows that end late hold up their own blocks, never the engine."""

from __future__ import annotations

SLOW = 5


def test_slow_rows_do_not_keep_others_from_the_engine(make_run):
    """Some end only when their time is over: by then all others have begun, though every block
    but one may have a slow row and there is place for one row beside them."""
    run = make_run(concurrency=SLOW + 1, rows_per_block=4, max_attempts=1, episode_timeout_s=15.0)
    run.write(engine={"endless": run.questions[:SLOW]})
    driver = run.to_the_end()
    late = [row for row in run.rows() if row["error_class"] == "EpisodeTimeout"]
    assert len(run.rows()) == 12, driver.text
    assert len(late) == SLOW, driver.text
    first_end = min(row["started_at"].timestamp() + row["duration_s"] for row in late)
    assert [row["id"] for row in run.rows() if row["started_at"].timestamp() >= first_end] == []
