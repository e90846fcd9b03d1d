"""Who killed a process: killers are found in few deaths, and nobody else is quarantined."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import pytest

from ace_ray.pipeline.health.isolation import (
    FEW,
    MOST_ALONE,
    OPEN,
    TRIALS,
    IsolatedRow,
    Isolation,
    ended_columns,
    grouped,
    of_rows,
    shared_id,
)
from ace_ray.storage.rows import KILLED_FROM_OUTSIDE

MOST_ENGINES = 6
"""That a row which always kills may cost."""


def names(count: int) -> list[str]:
    return [f"row{i:04}" for i in range(count)]


def isolated_rows(isolation: Isolation) -> set[str]:
    return {row for row, isolated_row in isolation.rows.items() if not isolated_row.released}


def play(
    isolation: Isolation, rows: list[str], killers: set[str], at_once: int, *, outside: bool = False
) -> Counter[str]:
    """One pass: work on ``rows`` as engines do, ``at_once`` together, until all are done or ended.

    Returns row -> deaths at which it was at work.
    """
    waiting, deaths = deque(rows), Counter[str]()
    done: list[str] = []
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
            isolation.died("engine", outside=outside)
            waiting.extend(together)
        else:
            isolation.leave("engine", together)
            done += together
    assert len(done) == len(set(done))
    assert set(done) | {r for r in rows if r in isolation.rows and isolation.rows[r].end} == set(
        rows
    )
    return deaths


def to_the_end(
    rows: list[str], killers: set[str], at_once: int, *, outside: bool = False
) -> tuple[Isolation, Counter[str]]:
    """A run: a pass over all, then one over those that were set aside."""
    first = Isolation()
    deaths = play(first, rows, killers, at_once, outside=outside)
    last = Isolation(first.rows)
    again = [row for row, isolated_row in first.rows.items() if isolated_row.end == "set_aside"]
    deaths += play(last, again, killers, at_once, outside=outside)
    return last, deaths


def die(isolation: Isolation, rows: list[str], *, outside: bool = False) -> None:
    """A process dies while it works on ``rows``."""
    isolation.enter("e", rows)
    isolation.died("e", outside=outside)


def live(isolation: Isolation, rows: list[str]) -> None:
    """``rows`` live through their work."""
    isolation.enter("e", rows)
    isolation.leave("e", rows)


@pytest.mark.parametrize("count", [1, 16, 17, 257, 1000])
@pytest.mark.parametrize("which", ["none", "first", "last", "two", "neighbours"])
def test_killers_are_found_and_nobody_else(count: int, which: str) -> None:
    rows = names(count)
    killers = {
        "none": set(),
        "first": {rows[0]},
        "last": {rows[-1]},
        "two": {rows[0], rows[-1]},
        "neighbours": set(rows[:2]),
    }[which]
    isolation, deaths = to_the_end(rows, killers, at_once=count)
    assert {r for r, s in isolation.rows.items() if s.end == "quarantined"} == killers
    assert isolated_rows(isolation) == killers, "innocent rows are released"
    assert all(deaths[row] <= MOST_ENGINES for row in rows)
    assert all(isolation.rows[row].deaths == deaths[row] for row in killers)


def test_up_to_16_rows_cost_five_engines() -> None:
    for count in range(1, FEW + 1):
        rows = names(count)
        _, deaths = to_the_end(rows, {rows[-1]}, at_once=count)
        assert deaths[rows[-1]] == 1 + TRIALS + 1


def test_killers_are_found_among_more_rows_than_fit_an_engine() -> None:
    rows = names(300)
    killers = {rows[3], rows[4], rows[150], rows[299]}
    isolation, deaths = to_the_end(rows, killers, at_once=64)
    assert isolated_rows(isolation) == killers
    assert max(deaths.values()) <= MOST_ENGINES


def test_what_kills_without_a_trace_is_given_up_not_quarantined() -> None:
    rows = names(40)
    isolation, deaths = to_the_end(rows, {rows[7]}, at_once=40, outside=True)
    assert {r: s.end for r, s in isolation.rows.items() if not s.released} == {rows[7]: "given_up"}
    assert deaths[rows[7]] == 2 + MOST_ALONE <= MOST_ENGINES


@pytest.mark.parametrize("accidents", range(1, TRIALS + 1))
def test_deaths_from_outside_are_no_trials(accidents: int) -> None:
    isolation = Isolation()
    die(isolation, ["a"])
    for _ in range(accidents):
        die(isolation, ["a"], outside=True)
    assert (isolation.rows["a"].trials, isolation.rows["a"].deaths_alone) == (0, accidents)
    assert not isolation.rows["a"].end
    live(isolation, ["a"])
    assert isolation.rows["a"].released


def test_a_row_is_set_aside_after_three_trials_and_quarantined_after_one_more() -> None:
    first = Isolation()
    for deaths in range(1, 1 + TRIALS):
        die(first, ["a"])
        assert first.rows["a"].trials == deaths - 1
        assert not first.rows["a"].end
    die(first, ["a"])
    assert (first.rows["a"].deaths, first.rows["a"].end) == (1 + TRIALS, "set_aside")
    assert ended_columns(first.rows["a"], "engine") == {
        "status": "infra_error",
        "error_class": "EngineKilled",
        "error": "4 engines died while they worked on this row, 3 of them on it alone; "
        "it is tried once more after all other rows",
    }
    last = Isolation(first.rows)
    again = last.rows["a"]
    assert (again.end, again.alone, again.trials, again.unstored) == ("", True, TRIALS, 0)
    assert again.group != OPEN
    die(last, ["a"])
    assert last.rows["a"].end == "quarantined"
    assert ended_columns(last.rows["a"], "engine") == {
        "status": "quarantined",
        "error_class": "EngineKilled",
        "error": "5 engines died while they worked on this row, 4 of them on it alone, "
        "the last one after all other rows were done",
    }
    assert first.rows["a"].end == "set_aside", "a copy: the first one stays as it was"


def test_one_that_was_set_aside_and_lives_is_released() -> None:
    aside = IsolatedRow(4, OPEN, trials=TRIALS, deaths_alone=TRIALS, end="set_aside")
    isolation = Isolation({"a": aside})
    live(isolation, ["a"])
    assert isolation.rows["a"].released
    assert isolation.rows["a"].unstored == 0


def test_an_accident_at_the_last_trial_is_none() -> None:
    aside = IsolatedRow(4, OPEN, trials=TRIALS, deaths_alone=TRIALS, end="set_aside")
    isolation = Isolation({"a": aside})
    die(isolation, ["a"], outside=True)
    assert (isolation.rows["a"].end, isolation.rows["a"].unstored) == ("", 1)
    die(isolation, ["a"])
    assert isolation.rows["a"].end == "quarantined"


def test_one_that_is_given_up_is_left_to_the_next_command() -> None:
    given_up = IsolatedRow(5, OPEN, deaths_alone=MOST_ALONE, end="given_up")
    columns = ended_columns(given_up, "engine")
    assert (columns["status"], columns["error_class"]) == ("infra_error", KILLED_FROM_OUTSIDE)
    assert "nothing shows that the row was the cause" in columns["error"]


def test_a_row_is_never_quarantined_for_one_death() -> None:
    isolation = Isolation()
    die(isolation, ["a"])
    assert isolation.rows["a"] == IsolatedRow(1, isolation.rows["a"].group, alone=True)
    assert not isolation.rows["a"].end


def test_a_row_that_was_not_alone_has_failed_no_trial() -> None:
    isolation = Isolation()
    for deaths in range(1, 10):
        die(isolation, ["a", "b"])
        assert {(s.deaths, s.trials, s.end) for s in isolation.rows.values()} == {(deaths, 0, "")}
        # In groups of their own from the first time on.
        assert isolation.rows["a"].group != isolation.rows["b"].group


@pytest.mark.parametrize(
    ("count", "groups", "largest"),
    [(1, 1, 1), (2, 2, 1), (16, 16, 1), (17, 4, 5), (64, 8, 8), (65, 8, 9), (512, 23, 23)],
)
def test_groups_are_as_large_as_there_are_many(count: int, groups: int, largest: int) -> None:
    isolation = Isolation()
    die(isolation, names(count))
    sizes = Counter(isolated_row.group for isolated_row in isolation.rows.values())
    assert (len(sizes), max(sizes.values()), sum(sizes.values())) == (groups, largest, count)
    assert OPEN not in sizes, "the group of rows that are not isolated"


def test_two_deaths_lead_to_rows_that_are_alone() -> None:
    isolation = Isolation()
    rows = names(512)
    die(isolation, rows)
    group = [row for row in rows if isolation.rows[row].group == isolation.rows[rows[0]].group]
    die(isolation, group)
    assert all(isolation.rows[row].alone for row in group)


def test_a_row_that_ends_is_not_isolated_any_more() -> None:
    isolation = Isolation()
    die(isolation, ["a", "b"])
    live(isolation, ["a"])
    assert isolated_rows(isolation) == {"b"}
    assert set(isolation.among(["a", "b", "c"])) == {"a", "b"}
    # What was left is not held against it when the process dies.
    isolation.died("e")
    assert isolated_rows(isolation) == {"b"}


def test_a_row_that_has_to_come_again_goes_on_counting_and_is_nobodys_killer() -> None:
    """Its process died before what came of it had passed on."""
    isolation = Isolation()
    die(isolation, ["a"])
    live(isolation, ["a"])
    assert isolation.among(["a"])["a"] == IsolatedRow(1, OPEN)
    die(isolation, ["a"])
    assert isolation.rows["a"].trials == 0, "the second death with it, but it has lived through one"
    assert (isolation.rows["a"].deaths, isolation.rows["a"].released) == (2, False)


def test_what_released_rows_cost_is_not_counted_again_in_the_next_pass() -> None:
    first = Isolation()
    die(first, ["a", "b"])
    first.leave("e", ["a"])
    assert set(Isolation(first.rows).rows) == {"b"}


def test_the_dying_know_better_what_they_held() -> None:
    isolation = Isolation()
    isolation.enter("e", ["a", "b", "c"])
    isolation.died("e", ["b"])
    assert set(isolation.rows) == {"b"}
    isolation.enter("e", ["a", "b"])
    isolation.died("e", [])
    assert set(isolation.rows) == {"b"}
    assert isolation.rows["b"].deaths == 1
    # Its work is noted as over: what it noted before does not come back.
    isolation.died("e")
    assert isolation.rows["b"].deaths == 1


def test_isolated_rows_outlive_a_pass() -> None:
    first = Isolation()
    die(first, ["a", "b"])
    die(first, ["b"])
    second = Isolation(first.rows)
    assert second.rows == first.rows
    assert second.rows["b"].trials == 1
    die(second, ["c"])
    old = {first.rows[r].group for r in ("a", "b")}
    assert second.rows["c"].group not in old, "a new group, not an old number"
    die(second, ["a"])
    assert second.rows["a"].trials == 1, "its death in the first pass counts"
    assert not first.rows["a"].trials, "a copy: the first one stays as it was"


def test_the_last_one_left_of_a_group_has_failed_no_trial() -> None:
    """It has its process to itself next time."""
    isolation = Isolation()
    rows = names(64)
    die(isolation, rows)
    group = [row for row in rows if isolation.rows[row].group == isolation.rows[rows[0]].group]
    assert len(group) == 8
    isolation.enter("e", group)
    isolation.leave("e", group[:7])
    isolation.died("e")
    assert isolation.rows[group[7]].alone
    assert isolation.rows[group[7]].trials == 0
    die(isolation, group[7:])
    assert isolation.rows[group[7]].trials == 1


def test_rows_are_told_from_those_that_are_not_tried_any_more() -> None:
    rows = [{"row_id": name} for name in "abcd"]
    isolated = {
        "a": IsolatedRow(2, 7),
        "b": IsolatedRow(5, OPEN, end="quarantined"),
        "c": IsolatedRow(1, OPEN),
    }
    ended, groups = grouped(rows, isolated)
    assert ended == [({"row_id": "b"}, isolated["b"])]
    assert groups == {7: rows[:1], OPEN: rows[2:]}
    assert not replace(isolated["b"], end="").end


ROW = {"row_id": "r", "run": 0, "shares": 3, "sample": 0, "repeat": 0}
SHARED = shared_id(ROW)


def test_a_row_goes_where_what_it_shares_goes() -> None:
    alive, released = IsolatedRow(1, 7), IsolatedRow(1, OPEN)
    ended = IsolatedRow(4, OPEN, trials=3, deaths_alone=3, end="set_aside")
    for own, shared, by_shared in (
        (None, alive, True),
        (alive, None, False),
        (alive, released, False),
        (released, alive, True),
        (alive, alive, False),
        (alive, ended, True),
        (ended, alive, False),
        (ended, ended, False),
    ):
        rows = {k: s for k, s in (("r", own), (SHARED, shared)) if s is not None}
        found, is_shared = of_rows([ROW], rows)["r"]
        assert is_shared is by_shared
        assert (found.group, found.end) == (rows[SHARED if by_shared else "r"].group, found.end)
        assert found.deaths == rows[SHARED if by_shared else "r"].deaths
        assert found.unstored == sum(s.deaths for s in rows.values()), "each cost it an attempt"
    assert of_rows([{**ROW, "shares": -1}], {SHARED: alive}) == {}


def test_what_was_given_up_decides_nothing_in_the_next_pass() -> None:
    """A row that was set aside for itself is still tried alone."""
    isolation = Isolation()
    for _ in range(1 + TRIALS):
        die(isolation, ["r"])
    for _ in range(1 + MOST_ALONE):
        die(isolation, [SHARED], outside=True)
    assert (isolation.rows["r"].end, isolation.rows[SHARED].end) == ("set_aside", "given_up")
    later = Isolation(isolation.rows)
    found, is_shared = of_rows([ROW], later.rows)["r"]
    assert (found.end, found.alone, found.trials, is_shared) == ("", True, TRIALS, False)


def test_a_node_that_goes_says_nothing_about_its_rows_unless_twice() -> None:
    isolation, rows = Isolation(), names(40)
    isolation.enter("a", rows)
    isolation.moved("a")
    isolation.died("a", outside=True)
    assert isolated_rows(isolation) == set()
    assert {row.unstored for row in isolation.rows.values()} == {0}, "it is no attempt"
    isolation.enter("b", [rows[0], "new"])
    isolation.moved("b")
    isolation.died("b", outside=True)
    assert isolated_rows(isolation) == {rows[0]}
    assert isolation.rows[rows[0]].unstored == 1


def test_isolated_rows_stay_so_when_their_node_goes() -> None:
    isolation = Isolation()
    isolation.enter("a", ["x", "y"])
    isolation.died("a")
    isolation.enter("b", ["x"])
    isolation.moved("b")
    isolation.died("b", outside=True)
    assert isolated_rows(isolation) == {"x", "y"}
    assert isolation.rows["x"].trials == 0
