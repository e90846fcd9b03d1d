"""Simulated runs in which engines die by accident and by rows: only killers are quarantined.

`Isolation` on simulated engines: 64 rows in flight, rows of exponentially distributed length (5 s),
30 s to start an engine, accidents as a Poisson process. A recognised accident counts as a cause
outside. Killers crash the engine in the middle of their work, each time.
"""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest

from ace_ray.pipeline.health.isolation import OPEN, Isolation

ROWS, AT_ONCE, ROW_S, START_S = 2_000, 64, 5.0, 30.0


def waiting(isolation: Isolation) -> list[list[str]]:
    """Return the groups of isolated rows; rows that crashed an engine alone come last."""
    groups: dict[int, list[str]] = {}
    for row, isolated in isolation.rows.items():
        if isolated.group != OPEN and not isolated.end:
            groups.setdefault(isolated.group, []).append(row)
    return sorted(groups.values(), key=lambda rows: isolation.rows[rows[0]].deaths_alone)


def simulated(seed: int, minutes: float, *, recognised: bool) -> None:
    """Simulate a run with an accident every ``minutes``, and check who is quarantined."""
    chance = random.Random(seed)
    names = [str(number) for number in range(ROWS)]
    killers = set(chance.sample(names, 2))
    now, accident, engines = 0.0, chance.expovariate(1 / (60 * minutes)), Counter[str]()

    def work(isolation: Isolation, rows: list[str]) -> None:
        nonlocal now, accident
        lengths = {row: chance.expovariate(1 / ROW_S) for row in rows}
        crashes = [now + lengths[row] / 2 for row in rows if row in killers]
        end = min([now + max(lengths.values()), *crashes])
        outside = accident < end
        if outside:
            end = accident
        isolation.enter("engine", rows)
        isolation.leave("engine", [row for row in rows if now + lengths[row] <= end])
        dead = [row for row in rows if now + lengths[row] > end]
        now = end
        if outside or crashes:
            isolation.died("engine", dead, outside=outside and recognised)
            engines.update(killers & set(dead) if not outside else ())
            now += START_S
            while accident < now:  # an accident during a start makes it start again
                now = accident + START_S
                accident += chance.expovariate(1 / (60 * minutes))

    isolation, left = Isolation(), deque(names)
    while left:
        work(isolation, [left.popleft() for _ in range(min(AT_ONCE, len(left)))])
        while groups := waiting(isolation):
            work(isolation, groups[0])
    last = Isolation(isolation.rows)
    while groups := waiting(last):
        work(last, groups[0])
    quarantined = {row for row, state in last.rows.items() if state.end == "quarantined"}
    assert quarantined <= killers
    assert all(last.rows[row].end == "given_up" for row in killers - quarantined)
    assert max(engines.values()) <= 6


@pytest.mark.parametrize("recognised", [True, False])
def test_accidents_quarantine_no_innocent_row(recognised: bool) -> None:
    for seed in range(10):
        simulated(seed, 5, recognised=recognised)
