"""Processes of a run are killed one after another, and the run ends as if nothing had been."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_checker_writer_worker_and_coordinator(make_run):
    run = make_run(samples=10, engine={"delay_s": 0.5}, concurrency=3)
    driver = run.start()
    stored = 1
    for title in ("Checker", "Writer", "EngineWorker", "ray::Coordinator"):
        driver.until_stored(stored)
        driver.find(title).kill()
        stored += 15
    assert driver.wait() == 0, driver.text
    rows = run.rows()
    assert len(rows) == len({row["row_id"] for row in rows}) == 120
    assert {row["status"] for row in rows} == {"scored"}
    assert not (run.path / "lease.json").exists()
    assert (run.path / "_SUCCESS").exists()


def test_a_coordinator_killed_before_anything_is_stored(make_run):
    """The run goes on, and stays one: with its manifest, and resumable all along."""
    run = make_run(rows_per_part=100)
    # All say "user:": the engine hangs from the first row on, until the coordinator takes it along.
    run.write(engine={"hang": {"user:": run.marker("hung")}})
    driver = run.start()
    driver.until(Path(run.marker("hung")).exists)
    driver.find("ray::Coordinator").kill()
    assert driver.wait() == 0, driver.text
    assert "going on with 12 rows" in driver.text
    assert (run.path / "run.json").exists()
    again = run.to_the_end()
    assert again.code == 0, again.text
    assert len(run.rows()) == 12


def test_a_frozen_writer_is_killed_and_its_rows_are_stored(make_run):
    run = make_run(samples=3, engine={"delay_s": 0.5}, concurrency=2, stall_s=5.0)
    driver = run.start()
    driver.until_stored(4)
    driver.find("Writer").suspend()
    assert driver.wait() == 0, driver.text
    assert re.search("writer .* was frozen and is killed", driver.text)
    rows = run.rows()
    assert len(rows) == len({row["row_id"] for row in rows}) == 36


def test_an_engine_that_does_not_start_in_time_ends_the_run(make_run):
    run = make_run(engine={"ready_file": "/never"}, start_timeout_s=3.0)
    driver = run.to_the_end()
    assert driver.code == 75
    assert "no engine has started within start_timeout_s = 3" in driver.text
    assert "Traceback" not in driver.text


@pytest.mark.parametrize("title", ["raylet/raylet", "gcs_server"])
def test_the_cluster_dies_and_the_same_command_goes_on(make_run, title):
    run = make_run(samples=3, engine={"delay_s": 0.5}, concurrency=2)
    # Ray looks for a GCS that is gone for a minute.
    driver = run.start(RAY_gcs_rpc_server_reconnect_timeout_s="5")
    driver.until_stored(8)
    driver.remember()
    driver.find(title).kill()
    driver.wait()
    assert driver.code in (0, 75), driver.text
    if driver.code != 0:
        kept = {row["row_id"]: row["started_at"] for row in run.rows()}
        assert len(kept) >= 8
        again = run.to_the_end()
        assert again.code == 0, again.text
        assert kept.items() <= {row["row_id"]: row["started_at"] for row in run.rows()}.items()
    rows = run.rows()
    assert len(rows) == len({row["row_id"] for row in rows}) == 36
    assert {row["status"] for row in rows} == {"scored"}
