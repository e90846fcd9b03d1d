"""Which rows travel together, how many, and how many of them a worker holds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ace_ray.cluster.resources import Resources
from ace_ray.pipeline.graph import Shape, Work, blocks, shape
from ace_ray.types import Entry
from tests.pipeline.planning.toy_benchmark import Toy, planned


class Prepared(Toy):
    """Texts that begin with a capital are episodes; those with the same capital share theirs."""

    def interactive(self, entry: Entry) -> bool:
        return bool(entry.data["text"][0].isupper())

    def preparation(self, entry: Entry) -> str:
        first = str(entry.data["text"][0])
        return "" if first == "X" else first


def travelling(texts: list[str], **changes: Any) -> list[list[tuple[int, int, int]]]:
    rows = planned(Prepared(texts), **changes).rows
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
    assert {*planned(Prepared(["a", "b", "X"])).rows.shares.tolist()} == {-1}


def shaped(
    rows: int,
    *,
    interactive: int = 0,
    workers: int = 1,
    limit: int = 0,
    max_num_seqs: int = 32,
    **config: object,
) -> Shape:
    auto = {
        "concurrency": "auto",
        "rows_per_block": "auto",
        "model": SimpleNamespace(endpoint=None),
    }
    job: Any = SimpleNamespace(
        config=SimpleNamespace(**auto | config), engine={"max_num_seqs": max_num_seqs}
    )
    return shape(job, Resources(workers, 1.0, 1, 1, limit=limit), rows, interactive)


@pytest.mark.parametrize(
    ("rows", "interactive", "workers", "max_num_seqs", "expected"),
    [
        (1, 0, 1, 32, Shape(most=1, size=1, calls=1, spare=1)),
        (24, 0, 2, 32, Shape(most=12, size=1, calls=12, spare=1)),
        (2_040, 0, 1, 256, Shape(most=512, size=32, calls=64, spare=1)),
        (20_000, 0, 8, 256, Shape(most=512, size=32, calls=40, spare=1)),
        (1_000_000, 0, 16, 256, Shape(most=512, size=256, calls=16, spare=1)),
        # Episodes take calls of their own, to which blocks of single calls come after them.
        (16, 16, 8, 32, Shape(most=2, size=1, calls=2, spare=1)),
        (2_040, 100, 4, 32, Shape(most=64, size=7, calls=42, spare=1)),
        (1_000_000, 2_000, 16, 256, Shape(most=512, size=222, calls=141, spare=1)),
    ],
)
def test_what_a_worker_holds(
    rows: int, interactive: int, workers: int, max_num_seqs: int, expected: Shape
) -> None:
    found = shaped(rows, interactive=interactive, workers=workers, max_num_seqs=max_num_seqs)
    assert found == expected


@pytest.mark.parametrize(
    ("rows", "workers", "limit", "expected"),
    [
        # A range that is filled is a number.
        (20_000, 8, 8, Shape(most=512, size=32, calls=40, spare=1)),
        (24, 1, 8, Shape(most=12, size=1, calls=12, spare=1)),
        (2_040, 1, 8, Shape(most=512, size=15, calls=35, spare=1)),
        (20_000, 1, 8, Shape(most=512, size=32, calls=40, spare=1)),
        (2_040, 2, 64, Shape(most=510, size=1, calls=510, spare=3)),
    ],
)
def test_workers_that_may_come_find_rows(
    rows: int, workers: int, limit: int, expected: Shape
) -> None:
    found = shaped(rows, workers=workers, limit=limit, max_num_seqs=256)
    assert found == expected
    assert found.most * workers <= rows // 2 or workers == limit, "others find half of them"


@pytest.mark.parametrize(
    ("rows", "workers", "max_num_seqs", "interactive"),
    [
        (1, 16, 1024, 0.0),
        (5, 2, 1, 1.0),
        (63, 3, 8, 0.05),
        (64, 1, 256, 0.0),
        (700, 3, 32, 0.05),
        (5_000, 16, 8, 1.0),
        (5_000, 2, 1024, 0.0),
        (300_000, 16, 256, 0.05),
    ],
)
def test_no_worker_takes_what_others_need_and_each_keeps_its_engine_full(
    rows: int, workers: int, max_num_seqs: int, interactive: float
) -> None:
    found = shaped(
        rows, interactive=round(rows * interactive), workers=workers, max_num_seqs=max_num_seqs
    )
    assert 1 <= found.calls <= found.most <= math.ceil(rows / workers)
    held = found.calls * found.size
    assert held >= min(found.most, rows), "once the episodes are over there is work for all places"
    half = rows if workers == 1 else rows // (2 * workers)
    assert held <= max(half, found.most) + max(found.calls, found.size)
    assert found.spare == 1 or found.spare * found.size <= rows / (8 * workers)
    if not interactive:
        assert held <= 8 * found.most + found.size
        assert found.size == 1 or found.calls >= 16, "many blocks, for some wait for slow rows"


def test_what_the_config_names_is_kept() -> None:
    assert shaped(700, concurrency=1) == Shape(most=1, size=1, calls=1, spare=8)
    named = shaped(700, interactive=40, concurrency=60, rows_per_block=30)
    assert named == Shape(most=60, size=30, calls=56, spare=1)


def test_large_blocks_are_some_even_so_unless_others_need_them() -> None:
    assert shaped(700, concurrency=10, rows_per_block=50).calls == 4
    assert shaped(700, concurrency=2, rows_per_block=500).calls == 2
    assert shaped(400, workers=4, rows_per_block=50).calls == 2
