"""Who killed a process: killers are found in few deaths, and nobody else is condemned."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import pytest

from ace_ray.run.health.isolation import (
    FEW,
    KILLED_FROM_OUTSIDE,
    MOST_ALONE,
    OPEN,
    TRIALS,
    Suspect,
    Suspects,
    ended_columns,
    grouped,
    of_rows,
    shared_id,
)

MOST_ENGINES = 6
"""That a row which always kills may cost."""


def names(count: int) -> list[str]:
    return [f"row{i:04}" for i in range(count)]


def suspected(book: Suspects) -> set[str]:
    return {row for row, suspect in book.known.items() if not suspect.cleared}


def play(
    book: Suspects, rows: list[str], killers: set[str], at_once: int, *, outside: bool = False
) -> Counter[str]:
    """One pass: work on ``rows`` as engines do, ``at_once`` together, until all are done or ended.

    Returns row -> deaths at which it was at work.
    """
    waiting, deaths = deque(rows), Counter[str]()
    done: list[str] = []
    while waiting:
        known = book.known
        if (first := known.get(waiting[0])) and first.end:
            waiting.popleft()
            continue
        group = first.group if first else OPEN
        together = [r for r in waiting if (known[r].group if r in known else OPEN) == group]
        together = together[:at_once]
        for row in together:
            waiting.remove(row)
        book.enter("engine", together)
        if killers & set(together):
            deaths.update(together)
            book.died("engine", outside=outside)
            waiting.extend(together)
        else:
            book.leave("engine", together)
            done += together
    assert len(done) == len(set(done))
    assert set(done) | {r for r in rows if r in book.known and book.known[r].end} == set(rows)
    return deaths


def to_the_end(
    rows: list[str], killers: set[str], at_once: int, *, outside: bool = False
) -> tuple[Suspects, Counter[str]]:
    """A run: a pass over all, then one over those that were set aside."""
    first = Suspects()
    deaths = play(first, rows, killers, at_once, outside=outside)
    last = Suspects(first.known)
    again = [row for row, suspect in first.known.items() if suspect.end == "set_aside"]
    deaths += play(last, again, killers, at_once, outside=outside)
    return last, deaths


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 64, 256, 257, 512, 1000])
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
    book, deaths = to_the_end(rows, killers, at_once=count)
    assert {r for r, s in book.known.items() if s.end == "quarantined"} == killers
    assert suspected(book) == killers, "innocent rows are cleared"
    assert all(deaths[row] <= MOST_ENGINES for row in rows)
    assert all(book.known[row].deaths == deaths[row] for row in killers)


def test_up_to_16_rows_cost_five_engines() -> None:
    for count in range(1, FEW + 1):
        rows = names(count)
        _, deaths = to_the_end(rows, {rows[-1]}, at_once=count)
        assert deaths[rows[-1]] == 1 + TRIALS + 1


def test_killers_are_found_among_more_rows_than_fit_an_engine() -> None:
    rows = names(300)
    killers = {rows[3], rows[4], rows[150], rows[299]}
    book, deaths = to_the_end(rows, killers, at_once=64)
    assert suspected(book) == killers
    assert max(deaths.values()) <= MOST_ENGINES


def test_what_kills_without_a_trace_is_given_up_not_quarantined() -> None:
    rows = names(40)
    book, deaths = to_the_end(rows, {rows[7]}, at_once=40, outside=True)
    assert {r: s.end for r, s in book.known.items() if not s.cleared} == {rows[7]: "given_up"}
    assert deaths[rows[7]] == 2 + MOST_ALONE <= MOST_ENGINES


@pytest.mark.parametrize("accidents", range(1, TRIALS + 1))
def test_deaths_from_outside_are_no_trials(accidents: int) -> None:
    book = Suspects()
    book.enter("e", ["a"])
    book.died("e")
    for _ in range(accidents):
        book.enter("e", ["a"])
        book.died("e", outside=True)
    assert (book.known["a"].trials, book.known["a"].deaths_alone) == (0, accidents)
    assert not book.known["a"].end
    book.enter("e", ["a"])
    book.leave("e", ["a"])
    assert book.known["a"].cleared


def test_a_row_is_set_aside_after_three_trials_and_quarantined_after_one_more() -> None:
    first = Suspects()
    for deaths in range(1, 1 + TRIALS):
        first.enter("e", ["a"])
        first.died("e")
        assert first.known["a"].trials == deaths - 1
        assert not first.known["a"].end
    first.enter("e", ["a"])
    first.died("e")
    assert (first.known["a"].deaths, first.known["a"].end) == (1 + TRIALS, "set_aside")
    assert ended_columns(first.known["a"], "engine") == {
        "status": "infra_error",
        "error_class": "EngineKilled",
        "error": "4 engines died while they worked on this row, 3 of them on it alone; "
        "it is tried once more after all other rows",
    }
    last = Suspects(first.known)
    again = last.known["a"]
    assert (again.end, again.alone, again.trials, again.unstored) == ("", True, TRIALS, 0)
    assert again.group != OPEN
    last.enter("e", ["a"])
    last.died("e")
    assert last.known["a"].end == "quarantined"
    assert ended_columns(last.known["a"], "engine") == {
        "status": "quarantined",
        "error_class": "EngineKilled",
        "error": "5 engines died while they worked on this row, 4 of them on it alone, "
        "the last one after all other rows were done",
    }
    assert first.known["a"].end == "set_aside", "a copy: the first book stays as it was"


def test_one_that_was_set_aside_and_lives_is_cleared() -> None:
    aside = Suspect(4, OPEN, trials=TRIALS, deaths_alone=TRIALS, end="set_aside")
    book = Suspects({"a": aside})
    book.enter("e", ["a"])
    book.leave("e", ["a"])
    assert book.known["a"].cleared
    assert book.known["a"].unstored == 0


def test_an_accident_at_the_last_trial_is_none() -> None:
    aside = Suspect(4, OPEN, trials=TRIALS, deaths_alone=TRIALS, end="set_aside")
    book = Suspects({"a": aside})
    book.enter("e", ["a"])
    book.died("e", outside=True)
    assert not book.known["a"].end
    assert book.known["a"].unstored == 1
    book.enter("e", ["a"])
    book.died("e")
    assert book.known["a"].end == "quarantined"


def test_one_that_is_given_up_is_owed_to_the_next_command() -> None:
    given_up = Suspect(5, OPEN, deaths_alone=MOST_ALONE, end="given_up")
    columns = ended_columns(given_up, "engine")
    assert (columns["status"], columns["error_class"]) == ("infra_error", KILLED_FROM_OUTSIDE)
    assert "nothing shows that the row was the cause" in columns["error"]


def test_a_row_is_never_condemned_for_one_death() -> None:
    book = Suspects()
    book.enter("e", ["a"])
    book.died("e")
    assert book.known["a"] == Suspect(1, book.known["a"].group, alone=True)
    assert not book.known["a"].end


def test_a_row_that_was_not_alone_has_failed_no_trial() -> None:
    book = Suspects()
    for deaths in range(1, 10):
        book.enter("e", ["a", "b"])
        book.died("e")
        assert {(s.deaths, s.trials, s.end) for s in book.known.values()} == {(deaths, 0, "")}
        # In groups of their own from the first time on.
        assert book.known["a"].group != book.known["b"].group


@pytest.mark.parametrize(
    ("count", "groups", "largest"),
    [(1, 1, 1), (2, 2, 1), (16, 16, 1), (17, 4, 5), (64, 8, 8), (65, 8, 9), (512, 23, 23)],
)
def test_groups_are_as_large_as_there_are_many(count: int, groups: int, largest: int) -> None:
    book = Suspects()
    book.enter("e", names(count))
    book.died("e")
    sizes = Counter(suspect.group for suspect in book.known.values())
    assert (len(sizes), max(sizes.values()), sum(sizes.values())) == (groups, largest, count)
    assert OPEN not in sizes, "the group of rows that are no suspects"


def test_two_deaths_lead_to_rows_that_are_alone() -> None:
    book = Suspects()
    rows = names(512)
    book.enter("e", rows)
    book.died("e")
    group = [row for row in rows if book.known[row].group == book.known[rows[0]].group]
    book.enter("e", group)
    book.died("e")
    assert all(book.known[row].alone for row in group)


def test_groups_of_several_deaths_are_not_mixed() -> None:
    book = Suspects()
    book.enter("one", ["a", "b"])
    book.enter("two", ["c", "d"])
    book.died("one")
    book.died("two")
    assert len({suspect.group for suspect in book.known.values()}) == 4


def test_a_row_that_ends_is_no_suspect_any_more() -> None:
    book = Suspects()
    book.enter("e", ["a", "b"])
    book.died("e")
    book.enter("e", ["a"])
    book.leave("e", ["a"])
    assert suspected(book) == {"b"}
    assert set(book.among(["a", "b", "c"])) == {"a", "b"}
    # What was left is not held against it when the process dies.
    book.died("e")
    assert suspected(book) == {"b"}


def test_a_row_that_has_to_come_again_goes_on_counting_and_is_nobodys_killer() -> None:
    """Its process died before what came of it had passed on."""
    book = Suspects()
    book.enter("e", ["a"])
    book.died("e")
    book.enter("e", ["a"])
    book.leave("e", ["a"])
    assert book.among(["a"])["a"] == Suspect(1, OPEN)
    book.enter("e", ["a"])
    book.died("e")
    assert book.known["a"].trials == 0, "the second death with it, but it has lived through one"
    assert (book.known["a"].deaths, book.known["a"].cleared) == (2, False)


def test_what_cleared_rows_cost_is_not_counted_again_in_the_next_pass() -> None:
    first = Suspects()
    first.enter("e", ["a", "b"])
    first.died("e")
    first.leave("e", ["a"])
    assert set(Suspects(first.known).known) == {"b"}


def test_the_dying_know_better_what_they_held() -> None:
    book = Suspects()
    book.enter("e", ["a", "b", "c"])
    book.died("e", ["b"])
    assert set(book.known) == {"b"}
    book.enter("e", ["a", "b"])
    book.died("e", [])
    assert set(book.known) == {"b"}
    assert book.known["b"].deaths == 1
    # Its book is closed: what it noted before does not come back.
    book.died("e")
    assert book.known["b"].deaths == 1


def test_a_process_that_held_nothing_accuses_nobody() -> None:
    book = Suspects()
    book.died("never seen")
    book.enter("e", [])
    book.died("e")
    assert book.known == {}
    book.leave("never seen", ["a"])
    assert book.among(["a"]) == {}


def test_each_process_has_its_own_page() -> None:
    book = Suspects()
    book.enter("one", ["a"])
    book.enter("two", ["b"])
    book.died("one")
    assert set(book.known) == {"a"}
    book.leave("two", ["b"])
    book.died("two")
    assert set(book.known) == {"a"}


def test_rows_add_up_while_they_are_worked_on() -> None:
    book = Suspects()
    book.enter("e", ["a"])
    book.enter("e", ["b"])
    book.leave("e", ["a"])
    book.enter("e", ["c"])
    book.died("e")
    assert set(book.known) == {"b", "c"}


def test_suspects_outlive_a_pass() -> None:
    first = Suspects()
    first.enter("e", ["a", "b"])
    first.died("e")
    first.enter("e", ["b"])
    first.died("e")
    second = Suspects(first.known)
    assert second.known == first.known
    assert second.known["b"].trials == 1
    second.enter("e", ["c"])
    second.died("e")
    old = {first.known[r].group for r in ("a", "b")}
    assert second.known["c"].group not in old, "a new group, not an old number"
    second.enter("e", ["a"])
    second.died("e")
    assert second.known["a"].trials == 1, "its death in the first pass counts"
    assert not first.known["a"].trials, "a copy: the first book stays as it was"


def test_leaving_does_not_pardon() -> None:
    book = Suspects({"a": Suspect(2, OPEN, end="quarantined")})
    book.leave("e", ["a"])
    assert book.known["a"].end == "quarantined"


def test_the_last_one_left_of_a_group_is_not_condemned_for_being_slow() -> None:
    """It has its process to itself next time."""
    book = Suspects()
    rows = names(64)
    book.enter("e", rows)
    book.died("e")
    group = [row for row in rows if book.known[row].group == book.known[rows[0]].group]
    assert len(group) == 8
    book.enter("e", group)
    book.leave("e", group[:7])
    book.died("e")
    assert book.known[group[7]].alone
    assert book.known[group[7]].trials == 0
    book.enter("e", group[7:])
    book.died("e")
    assert book.known[group[7]].trials == 1


def test_rows_are_told_from_those_that_are_not_tried_any_more() -> None:
    rows = [{"row_id": name} for name in "abcd"]
    known = {"a": Suspect(2, 7), "b": Suspect(5, OPEN, end="quarantined"), "c": Suspect(1, OPEN)}
    ended, groups = grouped(rows, known)
    assert ended == [({"row_id": "b"}, known["b"])]
    assert groups == {7: rows[:1], OPEN: rows[2:]}
    assert not replace(known["b"], end="").end


ROW = {"row_id": "r", "run": 0, "shares": 3, "sample": 0, "repeat": 0}
SHARED = shared_id(ROW)


def test_a_row_goes_where_what_it_shares_goes() -> None:
    alive, cleared = Suspect(1, 7), Suspect(1, OPEN)
    ended = Suspect(4, OPEN, trials=3, deaths_alone=3, end="set_aside")
    for own, shared, by_shared in (
        (None, alive, True),
        (alive, None, False),
        (alive, cleared, False),
        (cleared, alive, True),
        (alive, alive, False),
        (alive, ended, True),
        (ended, alive, False),
        (ended, ended, False),
    ):
        known = {k: s for k, s in (("r", own), (SHARED, shared)) if s is not None}
        found, is_shared = of_rows([ROW], known)["r"]
        assert is_shared is by_shared
        assert (found.group, found.end) == (known[SHARED if by_shared else "r"].group, found.end)
        assert found.deaths == known[SHARED if by_shared else "r"].deaths
        assert found.unstored == sum(s.deaths for s in known.values()), "each cost it an attempt"
    assert of_rows([{**ROW, "shares": -1}], {SHARED: alive}) == {}


def test_what_was_given_up_decides_nothing_in_the_next_pass() -> None:
    """A row that was set aside for itself is still tried alone."""
    book = Suspects()
    for _ in range(1 + TRIALS):
        book.enter("e", ["r"])
        book.died("e")
    for _ in range(1 + MOST_ALONE):
        book.enter("e", [SHARED])
        book.died("e", outside=True)
    assert (book.known["r"].end, book.known[SHARED].end) == ("set_aside", "given_up")
    later = Suspects(book.known)
    found, is_shared = of_rows([ROW], later.known)["r"]
    assert (found.end, found.alone, found.trials, is_shared) == ("", True, TRIALS, False)
