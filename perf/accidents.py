"""Simulated runs in which engines die by accident and by rows: who is quarantined?

The product's own `ace_ray.run.health.isolation` on simulated engines: one worker, rows of
exponentially distributed length, accidents as a Poisson process, at any time. An accident is
recognised as coming from outside (a preempted node, a kill) or, with ``--unrecognised``, looks like
the engine's own death. Killers kill in the middle of their work, each time.

    python perf/accidents.py --runs 1000
    python perf/accidents.py --runs 1000 --unrecognised --seconds 2
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Collection, Iterator

from ace_ray.run.health.isolation import OPEN, IsolatedRow, Isolation

ENGINE = "engine"


class Simulation:
    """One run.

    Args:
        minutes: between accidents, on average; 0: there are none.
        seconds: of work on a row, on average.
        at_once: rows at work at a time.
        start_s: until an engine has started; an accident meanwhile takes no row along.
        recognised: whether accidents are told from the engine's own deaths.
    """

    def __init__(
        self,
        seed: int,
        *,
        rows: int = 10_000,
        minutes: float,
        seconds: float = 5.0,
        at_once: int = 64,
        start_s: float = 30.0,
        recognised: bool = True,
        killers: int = 1,
    ) -> None:
        self._random = random.Random(seed)
        self._seconds, self._at_once, self._start_s = seconds, at_once, start_s
        self._minutes, self._recognised = minutes, recognised
        self._left = list(range(rows))
        self._random.shuffle(self._left)
        self.killers = set(self._random.sample(range(rows), killers))
        self._now = 0.0
        self._accident_at = 0.0
        self._next_accident()
        self.accidents = 0
        self.engines = Counter[int]()
        """Killer -> engines that died of it."""
        self.ends: dict[int, str] = {}
        """Row -> how it ended, of those that have no verdict."""

    def run(self) -> None:
        isolation = Isolation()
        while self._left:
            self._open_rows(isolation)
            self._isolated(isolation)
        last = Isolation(isolation.rows)
        self._fresh_engine()
        self._isolated(last)
        self.ends = {int(row): s.end for row, s in last.rows.items() if s.end}

    def _open_rows(self, isolation: Isolation) -> None:
        """Rows that nothing is known of, until something happens to the engine."""
        until = self._accident_at - self._now
        first = next((i for i, row in enumerate(self._left) if row in self.killers), None)
        rate = self._at_once / self._seconds
        done = int(until * rate)
        if first is not None and first < min(done + self._at_once, len(self._left)):
            # It comes to work when all before it have at least begun.
            done = max(0, first - self._at_once + 1)
            self._now += done / rate
            self._die(isolation, done, killed=True)
        elif done < len(self._left):
            self._now = self._accident_at
            self._die(isolation, done, killed=False)
        else:
            self._now += len(self._left) / rate
            self._left = []

    def _die(self, isolation: Isolation, done: int, *, killed: bool) -> None:
        there = self._left[done : done + self._at_once]
        self._left = self._left[done + self._at_once :]
        self._death(isolation, there, outside=not killed)

    def _death(self, isolation: Isolation, rows: Collection[int], *, outside: bool) -> None:
        isolation.enter(ENGINE, map(str, rows))
        isolation.died(ENGINE, outside=outside and self._recognised)
        if outside:
            self.accidents += 1
            self._next_accident()
        else:
            self.engines.update(self.killers & set(rows))
        self._fresh_engine()

    def _isolated(self, isolation: Isolation) -> None:
        while groups := _waiting(isolation):
            self._groups(isolation, groups)

    def _groups(self, isolation: Isolation, groups: dict[int, list[int]]) -> None:
        """Each group by itself; those that an engine has died on alone come last."""
        for rows in sorted(
            groups.values(), key=lambda rows: isolation.rows[str(rows[0])].deaths_alone
        ):
            lengths = {row: self._random.expovariate(1 / self._seconds) for row in rows}
            ends = {row: self._now + length for row, length in lengths.items()}
            killing = [ends[row] - lengths[row] / 2 for row in rows if row in self.killers]
            end = min([max(ends.values()), *killing])
            if outside := self._accident_at < end:
                end = self._accident_at
            self._now = end
            isolation.leave(ENGINE, [str(row) for row in rows if ends[row] <= end])
            if outside or killing:
                self._death(isolation, [row for row in rows if ends[row] > end], outside=outside)

    def _fresh_engine(self) -> None:
        """Accidents before it has started make it start again."""
        ready = self._now + self._start_s
        while self._accident_at < ready:
            ready = self._accident_at + self._start_s
            self.accidents += 1
            self._next_accident()
        self._now = ready

    def _next_accident(self) -> None:
        wait = self._random.expovariate(1 / (60 * self._minutes)) if self._minutes else float("inf")
        self._accident_at = max(self._now, self._accident_at) + wait


def _waiting(isolation: Isolation) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for row, isolated_row in isolation.rows.items():
        if _waits(isolated_row):
            groups.setdefault(isolated_row.group, []).append(int(row))
    return groups


def _waits(isolated_row: IsolatedRow) -> bool:
    return isolated_row.group != OPEN and not isolated_row.end


def simulated(runs: int, **how: float | bool) -> Iterator[Simulation]:
    for seed in range(runs):
        one = Simulation(seed, **how)  # type: ignore[arg-type]
        one.run()
        yield one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, nargs="*", default=[1, 5, 20])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--killers", type=int, default=1)
    parser.add_argument("--unrecognised", action="store_true")
    args = parser.parse_args()
    for minutes in args.minutes:
        innocent, ends, accidents, most = Counter[str](), Counter[str](), 0, 0
        for one in simulated(
            args.runs,
            rows=args.rows,
            minutes=minutes,
            seconds=args.seconds,
            at_once=args.at_once,
            killers=args.killers,
            recognised=not args.unrecognised,
        ):
            accidents += one.accidents
            most = max([most, *one.engines.values()])
            for row, end in one.ends.items():
                (ends if row in one.killers else innocent)[end] += 1
        print(
            f"an accident every {minutes:g} min, {args.runs} runs of {args.rows} rows: "
            f"{accidents} accidents; innocent rows {dict(innocent) or 'all scored'}; "
            f"{args.runs * args.killers} killers {dict(ends)}, at most {most} engines each",
            flush=True,
        )


if __name__ == "__main__":
    main()
