"""Blocks of rows in the order of prompts, and how many blocks a worker holds."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ace_ray.cluster.resources import Resources
from ace_ray.pipeline.graph import Layout, Work, blocks, layout
from ace_ray.pipeline.planning.prefixes import common_length, cuts, largest_first, ranks
from ace_ray.storage.durations import Durations
from ace_ray.types import Entry
from tests.pipeline.planning.toy_benchmark import Toy, planned


class Prepared(Toy):
    """Texts with the same capital are episodes of one preparation; those with X have none."""

    def interactive(self, entry: Entry) -> bool:
        return bool(entry.data["text"][0].isupper())

    def preparation(self, entry: Entry) -> str:
        return str(entry.data["text"][0]).replace("X", "")


def work_of(texts: list[str], durations: Any = None, **changes: Any) -> Work:
    """Return the work of a plan. ``durations`` has the seconds and the tokens of each text."""
    rows = planned(Prepared(texts), **changes).rows
    seconds, tokens = durations or np.zeros((2, len(texts)))
    learnt = Durations(np.array(seconds), np.array(tokens), np.arange(1.0, len(texts) + 1))
    return Work(0, rows, np.ones(len(rows), np.int32), learnt)


def travelling(texts: list[str], **changes: Any) -> list[list[tuple[int, int, int]]]:
    parts = blocks(work_of(texts, **changes), 4)
    return sorted(
        sorted((row["entry"], row["sample"], row["repeat"]) for row in block.to_pylist())
        for block in parts
    )


def test_episodes_of_one_preparation_share_a_block() -> None:
    texts = ["A one", "X alone", "A two", "B one", "plain", "X again", "A three"]
    shared = [(0, 0, 0), (2, 0, 0), (6, 0, 0)]
    assert travelling(texts) == [shared, *([(row, 0, 0)] for row in (1, 3, 4, 5))]
    # Each sample and each repeat has its own preparation.
    assert travelling(["A one", "A two"], samples=2, repeat_fraction=1.0) == [
        [(0, 0, 0), (1, 0, 0)],
        [(0, 0, 1), (1, 0, 1)],
        [(0, 1, 0), (1, 1, 0)],
    ]
    assert {*planned(Prepared(["a", "b", "X"])).rows.shares.tolist()} == {-1}


def test_the_longest_rows_come_first_and_blocks_keep_their_prefixes() -> None:
    texts = ["X short", "X long", *(f"{group} {row}" for group in "abc" for row in range(4))]
    seconds = [1, 9, *[5] * 12]
    tokens = [9, 1, *[2] * 4, 2, 2, 7, 2, *[3] * 4]

    def order(*durations: list[int]) -> list[list[int]]:
        found = blocks(work_of(texts, durations), 4)
        return [block.column("entry").to_pylist() for block in found]

    calls = [[6, 7, 8, 9], [10, 11, 12, 13], [2, 3, 4, 5]]
    assert order(seconds, tokens) == [[1], [0], *calls], "episodes by seconds, calls by tokens"
    assert sorted(order([0] * 14, [0] * 14)) == sorted([[0], [1], *calls])
    row = next(blocks(work_of(texts, (seconds, tokens)), 4)).to_pylist()[0]
    assert (row["entry"], row["length"]) == (1, 2.0)


def shaped(rows: int, *, workers: int = 1, limit: int = 0, **config: Any) -> Layout:
    interactive, seats = config.pop("interactive", 0), config.pop("seats", 32)
    config = {"concurrency": "auto", "rows_per_block": "auto", **config}
    model = SimpleNamespace(endpoint=config.pop("endpoint", None))
    job: Any = SimpleNamespace(
        config=SimpleNamespace(model=model, **config), engine={"max_num_seqs": seats}
    )
    return layout(job, Resources(workers, 1.0, 1, 1, limit=limit), rows, interactive)


@pytest.mark.parametrize(
    ("rows", "how", "expected"),
    [
        (2_040, {"seats": 256}, Layout(concurrency=512, size=64, calls=40, spare=1)),
        # Episodes have calls of their own, which single calls use later.
        (2_040, {"interactive": 100, "workers": 4}, Layout(64, size=8, calls=36, spare=1)),
        # Elastic workers that may come find rows.
        (2_040, {"workers": 2, "limit": 64, "seats": 256}, Layout(510, 2, 319, 1)),
        # The config decides.
        (700, {"interactive": 40, "concurrency": 60, "rows_per_block": 30}, Layout(60, 30, 60, 1)),
    ],
)
def test_blocks_of_a_worker(rows: int, how: dict[str, Any], expected: Layout) -> None:
    assert shaped(rows, **how) == expected


def test_texts_with_a_common_prefix_are_neighbours() -> None:
    assert ranks(["tools b, x", "tools a, y", "tools b, a", "tools a"]).tolist() == [3, 1, 2, 0]
    assert [common_length(*two) for two in (("abc", "abd"), ("ab", "abc"), ("", "a"))] == [2, 2, 0]


def test_a_block_ends_where_prompts_share_least() -> None:
    common = np.array([0, 9, 9, 2, 9, 9, 9, 9, 1, 9])
    assert cuts(common, 2, 4) == [(0, 3), (3, 7), (7, 10)]
    assert cuts(common, 2, 20) == [(0, 10)]
    assert cuts(common[:0], 2, 4) == []
    # Three samples of each entry stay together.
    samples = np.array([0, 50, 50] * 7)
    assert {start % 3 for start, _ in cuts(samples, 2, 4)} == {0}


def test_the_block_with_the_most_work_starts_first() -> None:
    sizes, common = np.array([900, 900, 500, 500]), np.array([0, 880, 0, 10])
    # The second prompt is nearly computed with the first.
    assert largest_first([(0, 2), (2, 4)], sizes, common) == [(2, 4), (0, 2)]


def test_rows_that_are_left_share_what_the_rows_between_them_share() -> None:
    rows = planned(Toy(["aaaa", "aabb", "abbb", "abbc"])).rows
    subset = rows.select(np.array([True, False, False, True]))
    assert subset.common[0] == rows.common[0]
    assert subset.common[1] == min(rows.common[1:])
