"""Simulated runs in which engines die by accident and by rows: only killers are quarantined.

`Isolation` on simulated engines: one worker, 64 rows in flight, rows of exponentially distributed
length, accidents as a Poisson process. A recognised accident counts as a cause outside. Killers
crash the engine in the middle of their work, each time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from ace_ray.pipeline.health.isolation import OPEN, Isolation

ENGINE = "engine"
AT_ONCE = 64
ROWS, KILLERS = 10_000, 2
SECONDS, START_S = 5.0, 30.0
"""Mean time for a row, and time for an engine to start."""


class Simulation:
    """One run.

    Args:
        minutes: mean time between accidents.
        recognised: True if accidents can be told from the engine's own crashes.
    """

    def __init__(
        self,
        seed: int,
        *,
        minutes: float,
        recognised: bool = True,
    ) -> None:
        self._random = random.Random(seed)
        self._minutes, self._recognised = minutes, recognised
        self._left = list(range(ROWS))
        self._random.shuffle(self._left)
        self.killers = set(self._random.sample(range(ROWS), KILLERS))
        self._now = self._accident_at = 0.0
        self._next_accident()
        self.engines = Counter[int]()
        """Killer -> engines that it crashed."""
        self.quarantined: set[int] = set()

    def run(self) -> None:
        isolation = Isolation()
        while self._left:
            self._open_rows(isolation)
            self._isolated_rows(isolation)
        # The next pass takes the isolated rows over.
        last = Isolation(isolation.rows)
        self._fresh_engine()
        self._isolated_rows(last)
        self.quarantined = {int(row) for row, s in last.rows.items() if s.end == "quarantined"}

    def _open_rows(self, isolation: Isolation) -> None:
        """Run rows that are not isolated, until the engine dies."""
        rate = AT_ONCE / SECONDS
        done = int((self._accident_at - self._now) * rate)
        first = next((i for i, row in enumerate(self._left) if row in self.killers), None)
        if first is not None and first < min(done + AT_ONCE, len(self._left)):
            # A row starts when all rows before it have started.
            done = max(0, first - AT_ONCE + 1)
            self._now += done / rate
            self._take_and_crash(isolation, done, outside=False)
        elif done < len(self._left):
            self._now = self._accident_at
            self._take_and_crash(isolation, done, outside=True)
        else:
            self._now += len(self._left) / rate
            self._left = []

    def _take_and_crash(self, isolation: Isolation, done: int, *, outside: bool) -> None:
        at_work = self._left[done : done + AT_ONCE]
        self._left = self._left[done + AT_ONCE :]
        self._crash(isolation, at_work, outside=outside)

    def _crash(self, isolation: Isolation, rows: Collection[int], *, outside: bool) -> None:
        isolation.enter(ENGINE, map(str, rows))
        isolation.died(ENGINE, outside=outside and self._recognised)
        if outside:
            self._next_accident()
        else:
            self.engines.update(self.killers & set(rows))
        self._fresh_engine()

    def _isolated_rows(self, isolation: Isolation) -> None:
        """Run each group by itself; rows that crashed an engine alone come last."""
        while groups := waiting(isolation):
            for rows in sorted(groups, key=lambda rows: isolation.rows[str(rows[0])].deaths_alone):
                self._group(isolation, rows)

    def _group(self, isolation: Isolation, rows: list[int]) -> None:
        lengths = {row: self._random.expovariate(1 / SECONDS) for row in rows}
        ends = {row: self._now + length for row, length in lengths.items()}
        crashes = [ends[row] - lengths[row] / 2 for row in rows if row in self.killers]
        end = min([max(ends.values()), *crashes])
        if outside := self._accident_at < end:
            end = self._accident_at
        self._now = end
        isolation.leave(ENGINE, [str(row) for row in rows if ends[row] <= end])
        if outside or crashes:
            self._crash(isolation, [row for row in rows if ends[row] > end], outside=outside)

    def _fresh_engine(self) -> None:
        """An accident before the engine has started makes it start again."""
        ready = self._now + START_S
        while self._accident_at < ready:
            ready = self._accident_at + START_S
            self._next_accident()
        self._now = ready

    def _next_accident(self) -> None:
        wait = self._random.expovariate(1 / (60 * self._minutes))
        self._accident_at = max(self._now, self._accident_at) + wait


def waiting(isolation: Isolation) -> list[list[int]]:
    """The groups of isolated rows that have not ended."""
    groups: dict[int, list[int]] = {}
    for row, isolated in isolation.rows.items():
        if isolated.group != OPEN and not isolated.end:
            groups.setdefault(isolated.group, []).append(int(row))
    return list(groups.values())


def simulated(runs: int, **how: Any) -> Iterator[Simulation]:
    for seed in range(runs):
        one = Simulation(seed, **how)
        one.run()
        yield one


@pytest.mark.nightly
@pytest.mark.parametrize(("minutes", "runs"), [(1, 300), (5, 30), (20, 30)])
def test_recognised_accidents_quarantine_no_innocent_row(minutes: float, runs: int) -> None:
    for run in simulated(runs, minutes=minutes):
        assert run.quarantined == run.killers
        assert max(run.engines.values()) <= 6


def test_rare_unrecognised_accidents_quarantine_no_innocent_row() -> None:
    for run in simulated(30, minutes=5, recognised=False):
        assert run.quarantined == run.killers
