"""Who killed a process: killers are found in few deaths, and nobody else is condemned."""

from __future__ import annotations

import math
from collections import deque

import pytest

from ace_ray.run.suspects import GROUPS, Suspect, Suspects


def names(count: int) -> list[str]:
    return [f"row{i:04}" for i in range(count)]


def suspected(book: Suspects) -> set[str]:
    return {row for row, suspect in book.known.items() if not suspect.cleared}


def play(book: Suspects, rows: list[str], killers: set[str], at_once: int) -> int:
    """Work on ``rows`` as engines do, ``at_once`` together, until all are done or condemned.

    Returns the number of deaths.
    """
    waiting, deaths = deque(rows), 0
    done: list[str] = []
    while waiting:
        known = book.known
        group = known[waiting[0]].group if waiting[0] in known else 0
        together = [r for r in waiting if (known[r].group if r in known else 0) == group]
        for row in together[:at_once]:
            waiting.remove(row)
        together = together[:at_once]
        book.enter("engine", together)
        if killers & set(together):
            deaths += 1
            book.died("engine")
            waiting.extend(row for row in together if not known[row].condemned)
        else:
            book.leave("engine", together)
            done += together
    assert len(done) == len(set(done))
    assert set(done) | {r for r, s in book.known.items() if s.condemned} == set(rows)
    return deaths


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 31, 32, 33, 256, 257, 1000])
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
    book = Suspects()
    deaths = play(book, rows, killers, at_once=count)
    assert {r for r, s in book.known.items() if s.condemned} == killers
    assert suspected(book) == killers, "innocent rows are cleared"
    # One death of all, one of each shrinking group, one alone; two killers may share some.
    rounds = 1 + max(1, math.ceil(math.log(count, GROUPS) - 1e-9)) if count > 1 else 2
    assert deaths <= 1 + len(killers) * (rounds - 1) if killers else deaths == 0
    assert all(book.known[r].deaths >= 2 for r in killers)


def test_killers_are_found_among_more_rows_than_fit_an_engine() -> None:
    rows = names(300)
    killers = {rows[3], rows[4], rows[150], rows[299]}
    book = Suspects()
    deaths = play(book, rows, killers, at_once=64)
    assert suspected(book) == killers
    assert deaths <= 3 * len(killers)


def test_up_to_16_rows_cost_two_engines() -> None:
    for count in range(1, GROUPS + 1):
        assert play(Suspects(), names(count), {names(count)[-1]}, at_once=count) == 2


def test_a_row_is_never_condemned_for_one_death() -> None:
    book = Suspects()
    book.enter("e", ["a"])
    assert book.died("e") == []
    assert book.known["a"] == Suspect(1, book.known["a"].group, alone=True)
    assert not book.known["a"].condemned
    book.enter("e", ["a"])
    assert book.died("e") == ["a"]
    assert (book.known["a"].deaths, book.known["a"].condemned) == (2, True)


def test_a_row_that_was_not_alone_is_never_condemned() -> None:
    book = Suspects()
    for deaths in range(1, 6):
        book.enter("e", ["a", "b"])
        assert book.died("e") == []
        assert {(s.deaths, s.condemned) for s in book.known.values()} == {(deaths, False)}
        # In groups of their own from the first time on.
        assert book.known["a"].group != book.known["b"].group


@pytest.mark.parametrize(
    ("count", "groups", "largest"),
    [(1, 1, 1), (2, 2, 1), (16, 16, 1), (17, 9, 2), (32, 16, 2), (33, 11, 3), (256, 16, 16)],
)
def test_one_death_makes_at_most_16_groups(count: int, groups: int, largest: int) -> None:
    book = Suspects()
    book.enter("e", names(count))
    book.died("e")
    sizes: dict[int, int] = {}
    for suspect in book.known.values():
        sizes[suspect.group] = sizes.get(suspect.group, 0) + 1
    assert (len(sizes), max(sizes.values()), sum(sizes.values())) == (groups, largest, count)
    assert groups <= GROUPS
    assert 0 not in sizes, "group 0 is that of rows that are no suspects"


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
    assert book.died("e") == []
    assert suspected(book) == {"b"}


def test_a_row_that_has_to_come_again_goes_on_counting_and_is_nobodys_killer() -> None:
    """Its process died before what came of it had passed on."""
    book = Suspects()
    book.enter("e", ["a"])
    book.died("e")
    book.enter("e", ["a"])
    book.leave("e", ["a"])
    assert book.among(["a"])["a"] == Suspect(1, 0)
    book.enter("e", ["a"])
    assert book.died("e") == [], "the second death with it, but it has lived through one start"
    assert (book.known["a"].deaths, book.known["a"].cleared) == (2, False)
    book.enter("e", ["a"])
    assert book.died("e") == ["a"]


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
    assert book.died("e") == []
    assert book.known["b"].deaths == 1


def test_a_process_that_held_nothing_accuses_nobody() -> None:
    book = Suspects()
    assert book.died("never seen") == []
    book.enter("e", [])
    assert book.died("e") == []
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
    assert book.died("two") == []
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
    assert second.known["b"].condemned
    second.enter("e", ["c"])
    second.died("e")
    old = {first.known[r].group for r in ("a", "b")}
    assert second.known["c"].group not in old, "a new group, not an old number"
    second.enter("e", ["a"])
    assert second.died("e") == ["a"], "its death in the first pass counts"
    assert not first.known["a"].condemned, "a copy: the first book stays as it was"


def test_leaving_does_not_pardon() -> None:
    book = Suspects({"a": Suspect(2, 0, condemned=True)})
    book.leave("e", ["a"])
    assert book.known["a"].condemned


def test_the_last_one_left_of_a_group_is_not_condemned_for_being_slow() -> None:
    """It has its process to itself next time, and is condemned if that dies, too."""
    book = Suspects()
    rows = names(64)
    book.enter("e", rows)
    book.died("e")
    group = [row for row in rows if book.known[row].group == book.known[rows[0]].group]
    assert len(group) == 4
    book.enter("e", group)
    book.leave("e", group[:3])
    assert book.died("e") == []
    assert book.known[group[3]].alone
    book.enter("e", group[3:])
    assert book.died("e") == group[3:]


def test_a_group_that_is_what_division_leaves_is_alone_too() -> None:
    book = Suspects()
    rows = names(2 * GROUPS - 1)
    book.enter("e", rows)
    book.died("e")
    assert [book.known[row].alone for row in rows[-3:]] == [False, False, True]
