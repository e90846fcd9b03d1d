"""One-to-one assignment of least total cost."""

from __future__ import annotations

from collections.abc import Sequence


def assign(costs: Sequence[Sequence[int]]) -> list[int]:
    """For each row of a square matrix its column, so that the sum of the costs is least.

    The Hungarian method with potentials, O(n^3): rows enter one by one, and each finds the cheapest
    chain of moves that frees a column for it. Deterministic: ties go to the leftmost column.
    """
    size = len(costs)
    row_price, column_price = [0] * size, [0] * size
    owner: list[int | None] = [None] * size  # the row that holds each column
    for row in range(size):
        slack: list[int | None] = [None] * size
        came_from: list[int | None] = [None] * size
        reached: list[int] = []
        here, column = row, None
        while True:
            for other in range(size):
                if other in reached:
                    continue
                gap = costs[here][other] - row_price[here] - column_price[other]
                known = slack[other]
                if known is None or gap < known:
                    slack[other], came_from[other] = gap, column
            step, nearest = min(
                (gap, other)
                for other, gap in enumerate(slack)
                if gap is not None and other not in reached
            )
            row_price[row] += step
            for other in range(size):
                if other in reached:
                    holder = owner[other]
                    assert holder is not None
                    row_price[holder] += step
                    column_price[other] -= step
                else:
                    gap_left = slack[other]
                    assert gap_left is not None
                    slack[other] = gap_left - step
            reached.append(nearest)
            column = nearest
            holder = owner[nearest]
            if holder is None:
                break
            here = holder
        # Walk back: each column on the chain goes to the row that held the one before it.
        while column is not None:
            before = came_from[column]
            owner[column] = row if before is None else owner[before]
            column = before
    columns = [0] * size
    for column, holder in enumerate(owner):
        if holder is not None:
            columns[holder] = column
    return columns
