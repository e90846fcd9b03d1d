"""Processes of a run are killed, and every row is stored once."""

import re

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_run_survives_the_death_of_each_of_its_processes(make_run):
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


def test_frozen_writer_is_killed_and_its_rows_are_stored(make_run):
    run = make_run(samples=3, engine={"delay_s": 0.5}, concurrency=2, engine_stall_timeout_s=5.0)
    driver = run.start()
    driver.until_stored(4)
    driver.find("Writer").suspend()
    assert driver.wait() == 0, driver.text
    assert re.search("writer .* does not respond and is killed", driver.text)
    rows = run.rows()
    assert len(rows) == len({row["row_id"] for row in rows}) == 36


@pytest.mark.parametrize("title", ["raylet/raylet", "gcs_server"])
def test_same_command_continues_after_the_cluster_is_lost(make_run, title):
    run = make_run(samples=3, engine={"delay_s": 0.5}, concurrency=2)
    # By default Ray looks for a lost GCS for a minute.
    driver = run.start(RAY_gcs_rpc_server_reconnect_timeout_s="5")
    driver.until_stored(8)
    driver.remember()
    driver.find(title).kill()
    driver.wait()
    assert driver.code in (0, 75), driver.text
    if driver.code != 0:
        start_times = {row["row_id"]: row["started_at"] for row in run.rows()}
        assert len(start_times) >= 8
        again = run.to_the_end()
        assert again.code == 0, again.text
        assert (
            start_times.items() <= {row["row_id"]: row["started_at"] for row in run.rows()}.items()
        )
    rows = run.rows()
    assert len(rows) == len({row["row_id"] for row in rows}) == 36
    assert {row["status"] for row in rows} == {"scored"}
