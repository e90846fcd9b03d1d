"""Rows that fail, hang and crash their engines, each with its own end."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

QUARANTINED = (0, "quarantined", "EngineKilled")


@pytest.mark.parametrize(
    ("fault", "end", "cause"),
    [
        ("hang", QUARANTINED, "no answer for"),
        ("die", QUARANTINED, "told to die"),
        ("abort", QUARANTINED, "its process crashed: Fatal Python error: Aborted"),
        # Nothing distinguishes it from an operator who kills the engine each time.
        ("crash", (75, "infra_error", "KilledFromOutside"), "its process was killed"),
    ],
)
def test_only_the_row_that_ends_engines_is_quarantined(
    make_run, fault: str, end: tuple[Any, ...], cause: str
):
    run = make_run()
    run.write(engine={fault: {run.questions[6]: ""}, "delay_s": 0.2})
    if fault == "hang":
        run.write(stall_s=3.0)
    driver = run.to_the_end()
    row = run.row(6)
    assert (driver.code, row["status"], row["error_class"]) == end, driver.text
    assert "no headline number" in driver.text
    deaths = run.summary()["timing"]["engine_deaths"]
    assert len(deaths) == sum(cause in death for death in deaths) == 5, deaths
    assert {run.row(entry)["status"] for entry in range(12) if entry != 6} == {"scored"}


def test_rows_of_an_engine_that_crashed_or_froze_once_are_scored(make_run):
    # One row at a time, so that no other row is in flight when a row crashes the engine.
    run = make_run(concurrency=1, workers=2, worker_cpus=0.3, stall_s=3.0)
    once = {"die": 0, "crash": 1, "hang": 2, "freeze": 3}
    run.write(engine={fault: {run.questions[at]: run.marker(fault)} for fault, at in once.items()})
    driver = run.to_the_end()
    assert driver.code == 0, driver.text
    for at in once.values():
        assert (run.row(at)["status"], run.row(at)["attempts"]) == ("scored", 2)
    deaths = run.summary()["timing"]["engine_deaths"]
    causes = ["told to die", "its process was killed", "no answer for"]
    causes.append("it was stopped by a signal and was killed")
    assert [sum(cause in death for death in deaths) for cause in causes] == [1] * 4
    for death in deaths:
        assert f"engine worker {death}" in driver.text
