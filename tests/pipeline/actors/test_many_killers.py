"""However many rows kill, wherever they stand: each is quarantined, at six engines or fewer."""

from __future__ import annotations

import pytest

from ace_ray.pipeline.health.isolation import shared_id
from tests.pipeline.actors.played_run import played, without_arrow

ROWS, MOST_ENGINES = 300, 6

WHERE = {
    "head": lambda count: set(range(count)),
    "middle": lambda count: set(range(ROWS // 2, ROWS // 2 + count)),
    "tail": lambda count: set(range(ROWS - count, ROWS)),
    "scattered": lambda count: set(range(0, ROWS, ROWS // count)),
}


@pytest.fixture(autouse=True)
def records(monkeypatch: pytest.MonkeyPatch) -> None:
    without_arrow(monkeypatch.setattr)


@pytest.mark.nightly
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(("most", "size"), [(64, 16), (8, 64), (1, 1)])
@pytest.mark.parametrize("count", [4, 12])
@pytest.mark.parametrize("where", WHERE)
def test_each_is_quarantined(where: str, count: int, most: int, size: int, shuffled: bool) -> None:
    killers = WHERE[where](count)
    first, last = played(ROWS, killers, most=most, size=size, seed=count, shuffled=shuffled)
    assert not first.failure
    assert last is not None
    assert not last.failure
    assert {int(row) for row in last.stored} == killers
    assert {row["status"] for row in last.stored.values()} == {"quarantined"}
    assert len(first.stored) == ROWS
    costs = first.engines + last.engines
    assert max(costs.values()) <= MOST_ENGINES
    for row_id, row in last.stored.items():
        assert row["attempts"] == costs[row_id]


@pytest.mark.nightly
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(("most", "size"), [(64, 16), (1, 1)])
@pytest.mark.parametrize(
    ("sharing", "killers"), [(30, {0}), (30, {0, 5, 9}), (3, {50}), (300, {0})]
)
def test_a_preparation_that_kills_ends_with_its_rows(
    sharing: int, killers: set[int], most: int, size: int, shuffled: bool
) -> None:
    """It costs what one row costs, however many share it."""
    first, last = played(
        ROWS, killers, sharing=sharing, most=most, size=size, seed=1, shuffled=shuffled
    )
    assert not first.failure
    assert last is not None
    assert not last.failure
    assert {int(row) // sharing for row in last.stored} == killers
    assert len(last.stored) == sharing * len(killers)
    assert {row["status"] for row in last.stored.values()} == {"quarantined"}
    assert {row["error_class"] for row in last.stored.values()} == {"PreparationKilled"}
    assert len(first.stored) == ROWS
    costs = first.engines + last.engines
    assert max(costs.values()) <= MOST_ENGINES
    for row in last.stored.values():
        assert row["attempts"] == costs[shared_id(row)]
    assert first.starts + last.starts <= MOST_ENGINES * len(killers) + 2


def test_where_every_row_kills_each_is_tried_and_the_run_ends() -> None:
    """The engine itself works: it answers what is no row."""
    first, last = played(5, set(range(5)), most=8, size=1, seed=0, shuffled=True)
    assert last is not None
    assert {row["status"] for row in last.stored.values()} == {"quarantined"}
    assert first.starts + last.starts <= 5 * MOST_ENGINES + 2
