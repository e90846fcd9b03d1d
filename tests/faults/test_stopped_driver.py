"""The driver is stopped and interrupted; the same command continues each time."""

import os
import signal

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def started(run) -> dict[str, object]:
    return {row["row_id"]: row["started_at"] for row in run.rows()}


def test_stopped_and_interrupted_runs_continue(make_run):
    run = make_run(samples=8, engine={"delay_s": 1.5}, concurrency=2)

    first = run.start()
    first.until_stored(3)
    second = run.to_the_end()
    assert second.code == 2
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
    before = started(run)
    assert len(before) == summary["scored"] >= 3

    # A terminal sends it to the command and every process below it.
    interrupted = run.start()
    interrupted.until_stored(len(before) + 2)
    os.killpg(interrupted.process.pid, signal.SIGINT)
    assert interrupted.wait() == 75, interrupted.text
    assert before.items() <= started(run).items()
    before = started(run)

    last = run.to_the_end()
    assert last.code == 0, last.text
    assert f"{96 - len(before)} to evaluate" in last.text
    assert before.items() <= started(run).items()
    assert len(started(run)) == 96
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
