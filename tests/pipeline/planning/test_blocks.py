"""Blocks of rows, and how many of them a worker holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ace_ray.pipeline.graph import Work, blocks
from ace_ray.types import Entry
from tests.pipeline.planning.toy_benchmark import Toy, planned


class Prepared(Toy):
    """Texts with the same capital are episodes of one preparation; those with X have none."""

    def interactive(self, entry: Entry) -> bool:
        return bool(entry.data["text"][0].isupper())

    def preparation(self, entry: Entry) -> str:
        return str(entry.data["text"][0]).replace("X", "")


def travelling(texts: list[str], **changes: Any) -> list[list[tuple[int, int, int]]]:
    rows = planned(Prepared(texts), **changes).rows
    found = blocks(Work(0, rows, np.ones(len(rows), np.int32)), 4)
    return sorted(
        sorted((row["entry"], row["sample"], row["repeat"]) for row in block.to_pylist())
        for block in found
    )


def test_episodes_of_one_preparation_share_a_block() -> None:
    texts = ["A one", "X alone", "A two", "B one", "plain", "X again", "A three"]
    shared = [(0, 0, 0), (2, 0, 0), (6, 0, 0)]
    assert travelling(texts) == [shared, *([(one, 0, 0)] for one in (1, 3, 4, 5))]
    # Each sample and each repeat has its own preparation.
    assert travelling(["A one", "A two"], samples=2, repeat_subset=1.0) == [
        [(0, 0, 0), (1, 0, 0)],
        [(0, 0, 1), (1, 0, 1)],
        [(0, 1, 0), (1, 1, 0)],
    ]
    assert {*planned(Prepared(["a", "b", "X"])).rows.shares.tolist()} == {-1}
