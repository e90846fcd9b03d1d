"""A clock that is set back, and a process that is stopped when the time ends."""

import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

SET_BACK = """
import os, time
wall, began = time.time, float(os.environ["CLOCK_BEGAN"])
time.time = lambda: wall() - (3600 if time.monotonic() - began > 8 else 0)
"""


def test_run_whose_clock_is_set_back_has_a_report(make_run):
    run = make_run(engine={"delay_s": 0.5}, concurrency=1, samples=2, time_limit="30m")
    (run.folder / "sitecustomize.py").write_text(SET_BACK)  # imported by every Python process
    clock = {"PYTHONPATH": str(run.folder), "CLOCK_BEGAN": str(time.monotonic())}
    driver = run.to_the_end(**clock)
    assert driver.code == 0, driver.text
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
