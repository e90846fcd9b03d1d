"""Simulated runs in which engines die by accident and by rows: only killers are quarantined.

The package's own `Isolation` on simulated engines: one worker, 64 rows at work, rows of
exponentially distributed length, accidents as a Poisson process. An accident is recognised as one
from outside (a preempted node, a kill), or it looks like the engine's own crash. Killers crash the
engine in the middle of their work, each time.
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
KILLERS = 2


class Simulation:
    """One run.

    Args:
        minutes: between accidents, on average.
        seconds: of work on a row, on average.
        start_s: until an engine has started; an accident meanwhile hits no row.
        recognised: True if accidents can be told from the engine's own crashes.
    """

    def __init__(
        self,
        seed: int,
        *,
        minutes: float,
        rows: int = 10_000,
        seconds: float = 5.0,
        start_s: float = 30.0,
        recognised: bool = True,
    ) -> None:
        self._random = random.Random(seed)
        self._minutes, self._seconds, self._start_s = minutes, seconds, start_s
        self._recognised = recognised
        self._left = list(range(rows))
        self._random.shuffle(self._left)
        self.killers = set(self._random.sample(range(rows), KILLERS))
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
        # The next command, which goes on with what is known of the rows.
        last = Isolation(isolation.rows)
        self._fresh_engine()
        self._isolated_rows(last)
        self.quarantined = {int(row) for row, s in last.rows.items() if s.end == "quarantined"}

    def _open_rows(self, isolation: Isolation) -> None:
        """Run rows that nothing is known of, until something happens to the engine."""
        rate = AT_ONCE / self._seconds
        done = int((self._accident_at - self._now) * rate)
        first = next((i for i, row in enumerate(self._left) if row in self.killers), None)
        if first is not None and first < min(done + AT_ONCE, len(self._left)):
            # It comes to work when all before it have at least begun.
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
        """Run each group by itself; rows that an engine has crashed on alone come last."""
        while groups := waiting(isolation):
            for rows in sorted(groups, key=lambda rows: isolation.rows[str(rows[0])].deaths_alone):
                self._group(isolation, rows)

    def _group(self, isolation: Isolation, rows: list[int]) -> None:
        lengths = {row: self._random.expovariate(1 / self._seconds) for row in rows}
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
        ready = self._now + self._start_s
        while self._accident_at < ready:
            ready = self._accident_at + self._start_s
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
@pytest.mark.parametrize("minutes", [1, 5, 20])
def test_no_innocent_row_is_quarantined(minutes: float) -> None:
    for run in simulated(30, minutes=minutes):
        assert run.quarantined == run.killers
        assert max(run.engines.values()) <= 6


@pytest.mark.nightly
def test_300_runs_with_an_accident_a_minute() -> None:
    for run in simulated(300, minutes=1):
        assert run.quarantined == run.killers
        assert max(run.engines.values()) <= 6


def test_no_innocent_row_is_quarantined_where_accidents_look_like_crashes() -> None:
    for run in simulated(30, minutes=5, recognised=False):
        assert run.quarantined == run.killers


def test_the_simulation_can_quarantine_an_innocent_row() -> None:
    """With accidents at the pace of the work, and none recognised."""
    pace = {"minutes": 1 / 6, "seconds": 60.0, "start_s": 1.0}
    runs = simulated(5, rows=2000, recognised=False, **pace)
    assert any(run.quarantined - run.killers for run in runs)
