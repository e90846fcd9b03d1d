"""One run in which rows fail, hang, and kill their engines: each is told from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from ace_ray.pipeline.actors.coordinator import MAX_STARTS_WITHOUT_PROGRESS
from tests.faults.fault_runs import Driver, Run

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

WRONG, FAILS, FAILS_ONCE, KILLS, KILLS_ONCE, CRASHES_ONCE, HANGS_ONCE, FREEZES_ONCE = range(8)
"""Entries, by what the engine does on them."""


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
            # One row at a time, so that no row is there when another one kills.
            concurrency=1,
            stall_s=3.0,
            max_attempts=2,
        )
        yield run, run.to_the_end()


def test_every_declared_row_is_there_once(faulty):
    run, driver = faulty
    assert len(run.rows()) == len({row["row_id"] for row in run.rows()}) == 12, driver.text
    assert Counter(row["status"] for row in run.rows()) == {
        "scored": 10,
        "infra_error": 1,
        "quarantined": 1,
    }


def test_totals_add_up_and_the_run_can_be_continued(faulty):
    run, driver = faulty
    summary = run.summary()
    assert driver.code == 75
    assert summary["declared"] == 12
    assert (summary["scored"], summary["infra_error"], summary["quarantined"]) == (10, 1, 1)
    assert (summary["skipped"], summary["missing"]) == (0, 0)
    assert summary["headline"] is False
    assert "declared 12 = 10 scored + 1 infra_error + 1 quarantined" in driver.text


def test_a_wrong_answer_is_not_tried_again(faulty):
    row = faulty[0].row(WRONG)
    assert (row["status"], row["official_valid"], row["attempts"]) == ("scored", False, 1)


def test_a_failure_is_a_row_that_was_tried_on_another_worker(faulty):
    run, _ = faulty
    row = run.row(FAILS)
    assert (row["status"], row["error_class"], row["error"], row["attempts"]) == (
        "infra_error",
        "RuntimeError",
        "told to fail, always",
        2,
    )
    assert row["official_valid"] is None
    again = run.row(FAILS_ONCE)
    assert (again["status"], again["attempts"], again["error"]) == ("scored", 2, None)


def test_a_row_that_kills_engines_is_quarantined(faulty):
    row = faulty[0].row(KILLS)
    assert (row["status"], row["error_class"]) == ("quarantined", "EngineKilled")
    assert row["error"].startswith("5 engines died while they worked on this row, 4 of them on it")
    assert row["official_valid"] is None


@pytest.mark.parametrize("entry", [KILLS_ONCE, CRASHES_ONCE, HANGS_ONCE, FREEZES_ONCE])
def test_one_death_costs_no_row(faulty, entry):
    row = faulty[0].row(entry)
    assert row["status"] == "scored"
    assert row["attempts"] == 2


def test_deaths_are_counted(faulty):
    run, _ = faulty
    # One, three alone and one after all others for the one that always kills; one each for the four
    # that do so once.
    deaths = run.summary()["timing"]["engine_deaths"]
    assert len(deaths) == 9, deaths
    assert sum("no answer for" in death for death in deaths) == 1
    assert sum("told to die" in death for death in deaths) == 6
    assert sum("its process was killed" in death for death in deaths) == 1
    assert sum("it was stopped by a signal and was killed" in death for death in deaths) == 1


def test_each_end_of_an_engine_is_a_line_of_its_own(faulty):
    run, driver = faulty
    for death in run.summary()["timing"]["engine_deaths"]:
        assert f"engine worker {death}" in driver.text


def test_a_row_that_hangs_each_time_is_quarantined(make_run):
    run = make_run()
    run.write(engine={"hang": {run.questions[6]: ""}}, stall_s=3.0)
    driver = run.to_the_end()
    assert driver.code == 0, driver.text
    row = run.row(6)
    assert (row["status"], row["error_class"]) == ("quarantined", "EngineKilled")
    assert {run.row(entry)["status"] for entry in range(12) if entry != 6} == {"scored"}


def test_in_a_crowd_only_the_killer_is_quarantined(make_run):
    run = make_run()
    run.write(engine={"die": {run.questions[6]: ""}, "delay_s": 0.2})
    driver = run.to_the_end()
    assert driver.code == 0, driver.text
    assert "no headline number" in driver.text
    assert len(run.summary()["timing"]["engine_deaths"]) == 5
    for entry in range(12):
        assert run.row(entry)["status"] == ("quarantined" if entry == 6 else "scored")


def test_a_row_that_kills_without_a_trace_is_pending_not_quarantined(make_run):
    """Nothing tells it from an operator who kills the engine each time."""
    run = make_run()
    run.write(engine={"crash": {run.questions[6]: ""}, "delay_s": 0.2})
    driver = run.to_the_end()
    assert driver.code == 75, driver.text
    row = run.row(6)
    assert (row["status"], row["error_class"]) == ("infra_error", "KilledFromOutside")
    assert len(run.summary()["timing"]["engine_deaths"]) == 5
    assert {run.row(entry)["status"] for entry in range(12) if entry != 6} == {"scored"}


def test_a_row_that_crashes_the_worker_leaves_a_trace(make_run):
    run = make_run()
    run.write(engine={"abort": {run.questions[6]: ""}, "delay_s": 0.2})
    driver = run.to_the_end()
    assert driver.code == 0, driver.text
    assert run.row(6)["status"] == "quarantined"
    deaths = run.summary()["timing"]["engine_deaths"]
    assert [death.partition(": ")[2] for death in deaths] == [
        "its process crashed: Fatal Python error: Aborted"
    ] * 5


def test_engines_that_die_on_everything_end_the_run(make_run):
    run = make_run()
    run.write(engine={"die": {"": ""}})
    driver = run.to_the_end()
    assert driver.code == 75, driver.text
    line = f"{MAX_STARTS_WITHOUT_PROGRESS} engines started one after another and no row got further"
    assert driver.text.count(line) == 1, driver.text
    assert "told to die" in driver.text
    assert run.rows() == []
