"""Measure how a session used its engines: rows in flight over time, and waits by cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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


class Utilization:
    """Rows in flight over time, and the engine seconds that were waits, by cause.

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
        self._restart()

    def _restart(self) -> None:
        self._waited: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
        self._engine_s, self._in_flight = 0.0, Series()

    def begin(self, workers: int) -> None:
        """Note that a graph starts ``workers`` engine workers."""
        self._workers, self._seen, self._backlog, self._at = workers, 0, Backlog(), self._now()

    def note(self, backlog: Backlog) -> None:
        self._backlog = backlog

    def look(self, tally: Tally) -> None:
        """Count the time since the last look as spent in the state of ``tally``."""
        with self._lock:
            if self._at is None:
                return
            now = self._now()
            seconds, self._at = now - self._at, now
            engines, backlog = tally.engines, self._backlog
            self._seen = max(self._seen, sum(engines))
            starting = engines.starting + max(0, self._workers - self._seen)
            self._engine_s += seconds * (sum(engines) - engines.starting + starting)
            self._waited["start"] += seconds * starting
            late = engines.at_work and not backlog.planned
            self._waited["tail" if late else "start"] += seconds * engines.unused
            self._waited[_cause(tally, backlog)] += seconds * engines.idle
            self._in_flight.add(seconds, tally.in_flight)

    def end(self) -> None:
        """Note that the graph has ended."""
        self._at = None

    def take(self) -> dict[str, Any]:
        """Return the figures since the last call: ``engine_s``, all seconds of engines;
        ``waited_s`` by cause; ``rows_in_flight``."""
        with self._lock:
            engine_s, waited, in_flight = self._engine_s, self._waited, self._in_flight
            self._restart()
        return {
            "engine_s": engine_s,
            "waited_s": dict(waited),
            "rows_in_flight": in_flight.figures(),
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
