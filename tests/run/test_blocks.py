"""Which rows travel together: those that share their preparation, and no other episodes."""

from __future__ import annotations

import numpy as np
from test_plan import Toy, planned

from ace_ray.records import Entry
from ace_ray.run.graph import Work, blocks


class Rehearsed(Toy):
    """Texts that begin with a capital are episodes; those with the same capital share theirs."""

    def interactive(self, entry: Entry) -> bool:
        return bool(entry.data["text"][0].isupper())

    def preparation(self, entry: Entry) -> str:
        first = str(entry.data["text"][0])
        return "" if first == "X" else first


def travelling(texts: list[str], **changes: object) -> list[list[tuple[int, int, int]]]:
    rows = planned(Rehearsed(texts), **changes).rows
    found = blocks(Work(0, rows, np.ones(len(rows), np.int32)), 4)
    return [
        [(row["entry"], row["sample"], row["repeat"]) for row in block.to_pylist()]
        for block in found
    ]


def test_episodes_of_one_preparation_travel_together() -> None:
    found = travelling(["A one", "X alone", "A two", "B one", "plain", "X again", "A three"])
    assert sorted(map(sorted, found)) == [
        [(0, 0, 0), (2, 0, 0), (6, 0, 0)],
        [(1, 0, 0)],
        [(3, 0, 0)],
        [(4, 0, 0)],
        [(5, 0, 0)],
    ]


def test_each_sample_and_each_repeat_prepares_by_itself() -> None:
    found = travelling(["A one", "A two"], samples=2, repeat_subset=1.0)
    assert sorted(map(sorted, found)) == [
        [(0, 0, 0), (1, 0, 0)],
        [(0, 0, 1), (1, 0, 1)],
        [(0, 1, 0), (1, 1, 0)],
    ]


def test_a_call_of_its_own_has_no_preparation() -> None:
    assert {row.shares for row in planned(Rehearsed(["a", "b", "X"])).rows} == {-1}
