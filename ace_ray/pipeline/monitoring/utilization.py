"""Measure how each run used the engines: rows in flight over time, and waits by cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from ace_ray.pipeline.monitoring.counts import Tally

Cause = Literal["start", "no_rows", "tail", "checker", "store"]
CAUSES: tuple[Cause, ...] = ("start", "no_rows", "tail", "checker", "store")

# Maximum points of a series. It must be even.
MOST_POINTS = 120


class Backlog(NamedTuple):
    """Numbers of blocks of a graph, as Ray Data sees them."""

    planned: int = 0
    """Blocks that were not yet handed to an engine worker."""
    checker_queue: int = 0
    """Blocks for which no checker has room."""
    checkers: int = 0
    """Blocks in checkers and in their queue."""
    writer_queue: int = 0
    writer: int = 0


class Series:
    """Means of a value over equal intervals, at most `MOST_POINTS`; when full, the interval
    doubles."""

    def __init__(self) -> None:
        self._every_s = 1.0
        # For each point the seconds that it covers so far, and the integral of the value.
        self._points: list[tuple[float, float]] = []

    def add(self, seconds: float, value: float) -> None:
        """Add a value that lasted for ``seconds``."""
        while seconds > 0:
            if not self._points or self._points[-1][0] >= self._every_s:
                if len(self._points) == MOST_POINTS:
                    pairs = zip(self._points[::2], self._points[1::2], strict=True)
                    self._points = [(a + c, b + d) for (a, b), (c, d) in pairs]
                    self._every_s *= 2
                self._points.append((0.0, 0.0))
            covered, total = self._points[-1]
            part = min(seconds, self._every_s - covered)
            # `seconds` may be a rounding error, which must not leave the last point open.
            covered = self._every_s if part < seconds else covered + part
            self._points[-1] = covered, total + part * value
            seconds -= part

    def figures(self) -> dict[str, Any]:
        """Return the interval ``every_s`` and the means ``rows``."""
        rows = [round(total / covered, 1) for covered, total in self._points if covered]
        return {"every_s": self._every_s, "rows": rows}


class _Use:
    """Figures of one run."""

    def __init__(self) -> None:
        self.waited: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
        self.engine_s, self.in_flight = 0.0, Series()


class Utilization:
    """Rows in flight over time, and the engine seconds that were waits, by cause; for each run.

    Engines evaluate the runs of a lane one after another. Each second counts for the run whose
    weights an engine has loaded last, and after this run was concluded for the next one.

    ``start``: an engine loads or warms up, or waits for its first row. ``no_rows``: rows are
    planned, but none arrives. ``tail``: no row is left to hand out, while other engines have rows.
    ``checker``: answers wait for checkers. ``store``: rows wait for the writer. Each call of `look`
    counts the time since the last one. Times in which rows wait for tools or other models are in
    `ace_ray.pipeline.monitoring.timing.Clock`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock = now, threading.Lock()
        self._backlog = Backlog()
        # Time of the last look; None while no graph runs.
        self._at: float | None = None
        # Workers that the graph starts with, and the largest number seen.
        self._workers = self._seen = 0
        # Runs of the graph that are not concluded, in order.
        self._runs: list[int] = []
        self._uses: dict[int, _Use] = {}

    def begin(self, workers: int, runs: Iterable[int]) -> None:
        """Note that a graph starts ``workers`` engine workers for ``runs``."""
        self._workers, self._seen, self._backlog, self._at = workers, 0, Backlog(), self._now()
        self._runs = sorted(runs)

    def note(self, backlog: Backlog) -> None:
        self._backlog = backlog

    def look(self, tally: Tally) -> None:
        """Count the time since the last look as spent in the state of ``tally``."""
        with self._lock:
            if self._at is None:
                return
            now = self._now()
            seconds, self._at = now - self._at, now
            if not self._runs:
                return
            loaded = [r for r in self._runs if r in tally.runs and tally.runs[r].ready_at]
            use = self._uses.setdefault(max(loaded, default=self._runs[0]), _Use())
            engines, backlog = tally.engines, self._backlog
            self._seen = max(self._seen, sum(engines))
            starting = engines.starting + max(0, self._workers - self._seen)
            use.engine_s += seconds * (sum(engines) - engines.starting + starting)
            use.waited["start"] += seconds * starting
            late = engines.at_work and not backlog.planned
            use.waited["tail" if late else "start"] += seconds * engines.unused
            use.waited[_cause(tally, backlog)] += seconds * engines.idle
            use.in_flight.add(seconds, tally.in_flight)

    def end(self) -> None:
        """Note that the graph has ended."""
        self._at = None

    def take(self, run: int) -> dict[str, Any]:
        """Return the figures of a run, which is concluded: ``engine_s``, all seconds of engines;
        ``waited_s`` by cause; ``rows_in_flight``."""
        with self._lock:
            use = self._uses.pop(run, None) or _Use()
            self._runs = [index for index in self._runs if index != run]
        return {
            "engine_s": use.engine_s,
            "waited_s": use.waited,
            "rows_in_flight": use.in_flight.figures(),
        }


def _cause(tally: Tally, backlog: Backlog) -> Cause:
    """Return why engines that have had rows have none now."""
    store = bool(tally.notice) or backlog.writer_queue > 0
    # Rows that would not end before the time limit are not handed out.
    if backlog.planned and not tally.out_of_time:
        return "checker" if backlog.checker_queue else "store" if store else "no_rows"
    if tally.engines.at_work:
        return "tail"
    if backlog.checkers:
        return "checker"
    return "store" if store or backlog.writer else "tail"
