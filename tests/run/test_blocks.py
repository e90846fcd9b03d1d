"""Which rows travel together, how many, and how many of them a worker holds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_plan import Toy, planned

from ace_ray.records import Entry
from ace_ray.run.graph import Work, blocks, in_flight, rows_held, rows_per_block


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


def sizes(rows: int, *, workers: int = 1, max_num_seqs: int = 32, **config: object) -> list[int]:
    """Rows at work in a worker, held by it, and in a block."""
    auto = {"concurrency": "auto", "rows_per_block": "auto"}
    job: Any = SimpleNamespace(
        config=SimpleNamespace(**auto | config), engine={"max_num_seqs": max_num_seqs}
    )
    cluster: Any = SimpleNamespace(workers=workers)
    return [measure(job, cluster, rows) for measure in (in_flight, rows_held, rows_per_block)]


@pytest.mark.parametrize(
    ("rows", "workers", "max_num_seqs", "expected"),
    [
        (1, 1, 32, [1, 1, 1]),
        (24, 1, 32, [24, 24, 1]),
        (256, 1, 32, [64, 256, 16]),
        (512, 1, 32, [64, 512, 32]),
        (2_040, 1, 32, [64, 512, 32]),
        (2_040, 1, 256, [512, 2_040, 32]),
        (2_040, 8, 256, [255, 255, 15]),
        (20_000, 8, 256, [512, 1_250, 32]),
        (1_000_000, 16, 256, [512, 4_096, 256]),
    ],
)
def test_what_a_worker_holds(
    rows: int, workers: int, max_num_seqs: int, expected: list[int]
) -> None:
    assert sizes(rows, workers=workers, max_num_seqs=max_num_seqs) == expected


@pytest.mark.parametrize("workers", [1, 2, 3, 16])
@pytest.mark.parametrize("rows", [1, 5, 63, 64, 700, 5_000, 300_000])
@pytest.mark.parametrize("max_num_seqs", [1, 8, 32, 256, 1024])
def test_no_worker_takes_what_others_need_and_each_holds_many_blocks(
    rows: int, workers: int, max_num_seqs: int
) -> None:
    most, held, size = sizes(rows, workers=workers, max_num_seqs=max_num_seqs)
    assert 1 <= size <= max(1, held // 16)
    assert most <= held <= 8 * most
    assert held <= math.ceil(rows / workers)


def test_a_named_concurrency_is_kept() -> None:
    assert sizes(700, concurrency=1) == [1, 8, 1]
    assert sizes(700, concurrency=10, rows_per_block=50) == [10, 80, 50]
