"""Isolation of rows whose process died: killers are found in few deaths."""

from collections import Counter, deque
from dataclasses import replace

import pytest

from ace_ray.pipeline.health.isolation import (
    MOST_ALONE,
    OPEN,
    TRIALS,
    IsolatedRow,
    Isolation,
    ended_columns,
    set_aside,
    shared_id,
    states_by_row,
)
from ace_ray.storage.rows import KILLED_FROM_OUTSIDE


def names(count: int) -> list[str]:
    return [f"row{i:04}" for i in range(count)]


def isolated_rows(isolation: Isolation) -> set[str]:
    return {row for row, isolated_row in isolation.rows.items() if not isolated_row.is_released}


def play(
    isolation: Isolation, rows: list[str], killers: set[str], at_once: int, *, outside: bool = False
) -> Counter[str]:
    """Work on ``rows`` as one pass does, ``at_once`` together, until all are done or ended.

    Returns row -> deaths while it was at work.
    """
    waiting, deaths = deque(rows), Counter[str]()
    row_ids: list[str] = []
    while waiting:
        isolated = isolation.rows
        if (first := isolated.get(waiting[0])) and first.end:
            waiting.popleft()
            continue
        group = first.group if first else OPEN
        together = [r for r in waiting if (isolated[r].group if r in isolated else OPEN) == group]
        together = together[:at_once]
        for row in together:
            waiting.remove(row)
        isolation.enter("engine", together)
        if killers & set(together):
            deaths.update(together)
            isolation.isolate("engine", outside=outside)
            waiting.extend(together)
        else:
            isolation.leave("engine", together)
            row_ids += together
    assert len(row_ids) == len(set(row_ids))
    assert {*row_ids} | {row for row, state in isolation.rows.items() if state.end} >= {*rows}
    return deaths


def to_the_end(
    rows: list[str], killers: set[str], at_once: int, *, outside: bool = False
) -> tuple[Isolation, Counter[str]]:
    """Play a pass over all rows, then one over those that were set aside."""
    first = Isolation()
    deaths = play(first, rows, killers, at_once, outside=outside)
    last = Isolation(first.rows)
    again = [row for row, isolated_row in first.rows.items() if isolated_row.end == "set_aside"]
    deaths += play(last, again, killers, at_once, outside=outside)
    return last, deaths


def die(isolation: Isolation, rows: list[str], *, outside: bool = False) -> None:
    """A process dies while it works on ``rows``."""
    isolation.enter("e", rows)
    isolation.isolate("e", outside=outside)


def live(isolation: Isolation, rows: list[str]) -> None:
    """A process ends its work on ``rows``."""
    isolation.enter("e", rows)
    isolation.leave("e", rows)


@pytest.mark.parametrize(
    ("count", "at_once", "killers", "engines"),
    [
        (16, 16, {15}, 5),
        (17, 17, {0}, 6),
        (257, 257, {0, 1}, 6),
        (300, 64, {3, 4, 150, 299}, 6),
        (40, 40, set(), 0),
    ],
    ids=["last of 16", "first of 17", "two of 257", "four of 300", "none of 40"],
)
def test_only_killers_are_quarantined_at_five_or_six_engines(count, at_once, killers, engines):
    rows = names(count)
    kill = {rows[number] for number in killers}
    isolation, deaths = to_the_end(rows, kill, at_once)
    assert {r for r, s in isolation.rows.items() if s.end == "quarantined"} == kill
    assert isolated_rows(isolation) == kill, "other rows are released"
    assert max(deaths.values(), default=0) == engines
    assert all(isolation.rows[row].deaths == deaths[row] for row in kill)


def test_row_that_kills_without_a_trace_is_given_up_until_the_next_command() -> None:
    rows = names(40)
    isolation, deaths = to_the_end(rows, {rows[7]}, at_once=40, outside=True)
    (given_up,) = (state for state in isolation.rows.values() if not state.is_released)
    assert isolation.rows[rows[7]] == given_up
    assert (given_up.end, deaths[rows[7]]) == ("given_up", 2 + MOST_ALONE)
    columns = ended_columns(given_up, "engine")
    assert (columns["status"], columns["error_class"]) == ("infra_error", KILLED_FROM_OUTSIDE)
    assert "the row may not be the cause" in columns["error"]


def test_row_is_set_aside_after_three_trials_and_quarantined_after_one_more() -> None:
    first = Isolation()
    for deaths in range(1, 2 + TRIALS):
        die(first, ["a"])
        assert (first.rows["a"].deaths, first.rows["a"].trials) == (deaths, deaths - 1)
        assert bool(first.rows["a"].end) == (deaths > TRIALS)
    row_columns = ended_columns(first.rows["a"], "engine")
    assert (row_columns["status"], row_columns["error_class"]) == ("infra_error", "EngineKilled")
    assert "4 engines crashed while working on this row, 3 of them" in row_columns["error"]
    last = Isolation(first.rows)
    again = last.rows["a"]
    assert (again.end, again.alone, again.trials, again.unstored_deaths) == ("", True, TRIALS, 0)
    assert again.group != OPEN
    die(last, ["a"])
    assert last.rows["a"].end == "quarantined"
    for shared, name in ((False, "CheckerKilled"), (True, "PreparationKilled")):
        columns = ended_columns(replace(last.rows["a"], shared=shared), "checker")
        assert (columns["status"], columns["error_class"]) == ("quarantined", name)
        assert columns["error"].startswith("5 checkers crashed while working on ")
    assert first.rows["a"].end == "set_aside", "the earlier state stays as it was"


def test_row_that_was_set_aside_is_released_or_has_a_last_trial() -> None:
    isolation = Isolation({"a": set_aside(4), "b": set_aside(4)})
    live(isolation, ["a"])
    assert (isolation.rows["a"].is_released, isolation.rows["a"].unstored_deaths) == (True, 0)
    die(isolation, ["b"], outside=True)
    assert (isolation.rows["b"].end, isolation.rows["b"].unstored_deaths) == ("", 1)
    die(isolation, ["b"])
    assert isolation.rows["b"].end == "quarantined"


def test_isolated_rows_are_kept_by_the_next_pass() -> None:
    first = Isolation()
    die(first, ["a", "b", "released"])
    live(first, ["released"])
    die(first, ["b"])
    second = Isolation(first.rows)
    assert first.rows.pop("released").is_released, "its stored row counts the attempts"
    assert second.rows == first.rows
    assert second.rows["b"].trials == 1
    die(second, ["c"])
    assert second.rows["c"].group not in {first.rows[r].group for r in ("a", "b")}
    die(second, ["a"])
    assert second.rows["a"].trials == 1
    assert not first.rows["a"].trials


ROW = {"row_id": "r", "run": 0, "shares": 3, "sample": 0, "repeat": 0}
SHARED = shared_id(ROW)


ALIVE, RELEASED = IsolatedRow(1, 7), IsolatedRow(1, OPEN)
SET_ASIDE = IsolatedRow(4, OPEN, trials=3, deaths_alone=3, end="set_aside")


@pytest.mark.parametrize(
    ("row", "shared", "by_shared"),
    [
        pytest.param(None, ALIVE, True, id="preparation alone"),
        pytest.param(ALIVE, None, False, id="row alone"),
        pytest.param(ALIVE, RELEASED, False, id="released preparation"),
        pytest.param(RELEASED, ALIVE, True, id="released row"),
        pytest.param(ALIVE, ALIVE, False, id="both isolated"),
        pytest.param(ALIVE, SET_ASIDE, True, id="preparation set aside"),
        pytest.param(SET_ASIDE, ALIVE, False, id="row set aside"),
        pytest.param(SET_ASIDE, SET_ASIDE, False, id="both set aside"),
    ],
)
def test_row_goes_where_its_preparation_goes(row, shared, by_shared) -> None:
    rows = {k: s for k, s in (("r", row), (SHARED, shared)) if s is not None}
    state, source = states_by_row([ROW], rows)["r"], rows[SHARED if by_shared else "r"]
    assert state.shared is by_shared
    assert (state.group, state.end, state.deaths) == (source.group, source.end, source.deaths)
    assert state.unstored_deaths == sum(s.deaths for s in rows.values())
    assert states_by_row([{**ROW, "shares": -1}], {SHARED: ALIVE}) == {}, "no preparation"
