"""Rows that fail, hang and crash their engines, each with its own end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ace_ray.pipeline.actors.coordinator import MAX_STARTS_WITHOUT_PROGRESS
from tests.faults.fault_runs import Driver, Run

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

WRONG, FAILS, FAILS_ONCE, KILLS, KILLS_ONCE, CRASHES_ONCE, HANGS_ONCE, FREEZES_ONCE = range(8)
"""Numbers of entries, named by what the engine does on them."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Iterator[tuple[Run, Driver]]:
    with Run(tmp_path_factory.mktemp("faulty")) as run:
        asked = run.questions
        run.write(
            engine={
                "fail": {asked[FAILS]: "told to fail, always"},
                "fail_once": {asked[FAILS_ONCE]: run.marker("failed")},
                "die": {asked[KILLS]: "", asked[KILLS_ONCE]: run.marker("died")},
                "crash": {asked[CRASHES_ONCE]: run.marker("crashed")},
                "hang": {asked[HANGS_ONCE]: run.marker("hung")},
                "freeze": {asked[FREEZES_ONCE]: run.marker("frozen")},
            },
            workers=2,
            worker_cpus=0.3,
            # One row at a time, so that no other row is in flight when a row crashes the engine.
            concurrency=1,
            stall_s=3.0,
            max_attempts=2,
        )
        yield run, run.to_the_end()


def test_each_row_ends_by_its_own_fault(faulty):
    run, driver = faulty
    rows = run.rows()
    assert len(rows) == len({row["row_id"] for row in rows}) == 12, driver.text
    assert (run.summary()["skipped"], run.summary()["missing"]) == (0, 0)
    wrong, fails, fails_once, kills = map(run.row, (WRONG, FAILS, FAILS_ONCE, KILLS))
    assert (wrong["status"], wrong["official_valid"], wrong["attempts"]) == ("scored", False, 1)
    assert (fails["status"], fails["error_class"]) == ("infra_error", "RuntimeError")
    assert (fails["error"], fails["attempts"]) == ("told to fail, always", 2)
    assert (fails_once["status"], fails_once["attempts"]) == ("scored", 2)
    assert fails_once["error"] is None
    assert (kills["status"], kills["error_class"]) == ("quarantined", "EngineKilled")
    died = "5 engines crashed while working on this row, 4 of them while working on it"
    assert kills["error"].startswith(died)
    assert fails["official_valid"] is kills["official_valid"] is None
    for entry in (KILLS_ONCE, CRASHES_ONCE, HANGS_ONCE, FREEZES_ONCE):
        assert (run.row(entry)["status"], run.row(entry)["attempts"]) == ("scored", 2)


def test_each_engine_death_is_recorded_and_printed(faulty):
    run, driver = faulty
    # Five for the row that always crashes the engine, one for each that does so once.
    deaths = run.summary()["timing"]["engine_deaths"]
    assert len(deaths) == 9, deaths
    assert sum("no answer for" in death for death in deaths) == 1
    assert sum("told to die" in death for death in deaths) == 6
    assert sum("its process was killed" in death for death in deaths) == 1
    assert sum("it was stopped by a signal and was killed" in death for death in deaths) == 1
    for death in deaths:
        assert f"engine worker {death}" in driver.text


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


def test_engines_that_die_on_every_row_end_the_run(make_run):
    run = make_run()
    run.write(engine={"die": {"": ""}})
    driver = run.to_the_end()
    assert driver.code == 75, driver.text
    starts = f"{MAX_STARTS_WITHOUT_PROGRESS} engines started one after another"
    line = f"{starts} without progress of any row"
    assert driver.text.count(line) == 1, driver.text
    assert "told to die" in driver.text
    assert run.rows() == []
