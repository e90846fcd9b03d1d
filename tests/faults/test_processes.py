"""Processes are killed, frozen, stopped and interrupted, or a clock is set back: no row is lost."""

import os
import re
import signal
import subprocess
import sys
import time

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
    run.check_scored(120)
    assert not (run.path / "lease.json").exists()
    assert (run.path / "_SUCCESS").exists()


def test_frozen_writer_is_killed_and_its_rows_are_stored(make_run):
    run = make_run(samples=3, engine={"delay_s": 0.5}, concurrency=2, engine_stall_timeout_s=5.0)
    driver = run.start()
    driver.until_stored(4)
    driver.find("Writer").suspend()
    assert driver.wait() == 0, driver.text
    assert re.search("writer .* does not respond and is killed", driver.text)
    run.check_scored(36)


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
        before = run.started()
        assert len(before) >= 8
        run.to_the_end(code=0)
        assert before.items() <= run.started().items()
    run.check_scored(36)


def test_stopped_and_interrupted_runs_continue(make_run):
    run = make_run(samples=8, engine={"delay_s": 1.5}, concurrency=2)

    first = run.start()
    first.until_stored(3)
    second = run.to_the_end(code=2)
    assert f"is being written by process {first.pid} on " in second.text
    assert " since 20" in second.text
    # `timeout` and job managers send the signal to every process of the group.
    os.killpg(first.process.pid, signal.SIGTERM)
    assert first.wait() == 75, first.text
    assert "finishing rows in flight (3 s)" in first.text
    assert "Traceback" not in first.text
    assert "*** SIGTERM" not in first.text
    summary = run.summary()
    assert summary["declared"] == 96
    assert summary["scored"] + summary["missing"] == 96
    assert summary["infra_error"] == summary["quarantined"] == 0
    assert not summary["headline"]
    assert not (run.path / "lease.json").exists()
    before = run.started()
    assert len(before) == summary["scored"] >= 3

    # A terminal sends it to the command and every process below it.
    interrupted = run.start()
    interrupted.until_stored(len(before) + 2)
    os.killpg(interrupted.process.pid, signal.SIGINT)
    assert interrupted.wait() == 75, interrupted.text
    assert before.items() <= run.started().items()
    before = run.started()

    last = run.to_the_end(code=0)
    assert f"{96 - len(before)} to evaluate" in last.text
    assert before.items() <= run.started().items()
    assert len(run.started()) == 96
    assert run.summary()["complete"]
    assert not (run.path / "lease.json").exists()


def test_rows_in_flight_after_the_grace_period_are_pending(make_run):
    run = make_run(drain_timeout_s=1.0)
    run.write(engine={"endless": run.questions[:2]})
    driver = run.start()
    driver.until_stored(10)
    driver.process.send_signal(signal.SIGTERM)
    assert driver.wait() == 75, driver.text
    summary = run.summary()
    assert (summary["scored"], summary["missing"], summary["infra_error"]) == (10, 2, 0)


SET_BACK = """
import os, time
wall, began = time.time, float(os.environ["CLOCK_BEGAN"])
time.time = lambda: wall() - (3600 if time.monotonic() - began > 8 else 0)
"""


def test_run_whose_clock_is_set_back_has_a_report(make_run):
    run = make_run(engine={"delay_s": 0.5}, concurrency=1, samples=2, time_limit="30m")
    (run.folder / "sitecustomize.py").write_text(SET_BACK)  # imported by every Python process
    clock = {"PYTHONPATH": str(run.folder), "CLOCK_BEGAN": str(time.monotonic())}
    run.to_the_end(code=0, **clock)
    timing = run.summary()["timing"]
    assert timing["wall_s"] > timing["first_row_s"] > 0 < timing["generation_wall_s"]
    assert timing["until_first_row_s"]
    command = [sys.executable, "-m", "ace_ray.cli.main", "report", str(run.path)]
    report = subprocess.run(command, capture_output=True, text=True, cwd=run.folder)
    assert report.returncode == 0, report.stderr


def test_writer_that_is_stopped_when_the_time_ends_leaves_time_for_the_summary(make_run):
    run = make_run(samples=50, engine={"delay_s": 1.0}, concurrency=2, time_limit="90s")
    driver = run.start()
    driver.until_stored(1)
    driver.find("Writer").suspend()
    assert driver.wait() == 75, driver.text
    assert "rows in flight did not stop in time and stay pending" in driver.text
    summary = run.summary()
    assert summary["scored"] + summary["missing"] == summary["declared"] == 600
    assert not (run.path / "lease.json").exists()
