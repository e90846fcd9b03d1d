"""Measure how each run used the engines: rows in flight over time, and waits by cause."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sized
from typing import Any, NamedTuple

import numpy as np

from ace_ray.pipeline.monitoring.tally import Tally

CAUSES = ("start", "no_rows", "tail", "checker", "store")

# Maximum number of intervals of `Use.rows_in_flight`.
MOST_POINTS = 120

# Share of a pass's rows that have ended before the tail of a run begins.
MOST_ROWS = 0.9


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


class Use:
    """The engine time that one run has used, and its rows in flight over time."""

    def __init__(self) -> None:
        # All seconds of engines, and the seconds of engines that waited.
        self.engine_s = 0.0
        self.waited_s: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
        # Model calls in flight per engine at each look, and the first look with `MOST_ROWS`.
        self.calls = array("f")
        self.most_rows_at: float | None = None
        # After each added interval: the seconds so far, and the sum of seconds x rows in flight.
        self._ends, self._totals = array("d", [0.0]), array("d", [0.0])

    def add_rows_in_flight(self, seconds: float, rows: int) -> None:
        self._ends.append(self._ends[-1] + seconds)
        self._totals.append(self._totals[-1] + seconds * rows)

    def rows_in_flight(self) -> dict[str, Any]:
        """Return ``rows``, the mean rows in flight of each interval, and ``every_s``, the length of
        an interval: the smallest power of two with at most `MOST_POINTS` intervals."""
        every_s, end_s = 1.0, self._ends[-1]
        while every_s * MOST_POINTS < end_s:
            every_s *= 2
        # A rounding error must not become an interval.
        edges = np.append(np.arange(0.0, end_s - 1e-6, every_s), end_s)
        means = np.diff(np.interp(edges, self._ends, self._totals)) / np.diff(edges)
        return {"every_s": every_s, "rows": means.round(1).tolist()}


class Utilization:
    """Rows in flight over time, and the engine seconds that were waits, by cause; for each run.

    The engines of a sweep evaluate several runs one after another. Each second counts for the run
    whose weights an engine has loaded last; once this run is concluded, for the next run.

    ``start``: an engine loads or warms up, or waits for its first row. ``no_rows``: rows are
    planned, but none arrives. ``tail``: no row is left to hand out, while other engines have rows.
    ``checker``: answers wait for checkers. ``store``: rows wait for the writer. Each call of
    `count_time` counts the time since the last one. Times in which rows wait for tools or other
    models are in `ace_ray.pipeline.monitoring.timing.Clock`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._backlog = Backlog()
        # Time of the last call of `count_time`; None while no graph runs.
        self._at: float | None = None
        # Workers that the graph starts with, and the largest number seen.
        self._workers = self._peak = 0
        # Run of the graph that is not concluded -> number of its planned rows, in order.
        self._planned: dict[int, int] = {}
        self._uses: dict[int, Use] = {}

    def begin(self, workers: int, pending: Mapping[int, Sized]) -> None:
        """Note that a graph starts ``workers`` engine workers for the ``pending`` rows of runs."""
        self._workers, self._peak, self._backlog, self._at = workers, 0, Backlog(), self._clock()
        self._planned = {run: len(pending[run]) for run in sorted(pending)}

    def note(self, backlog: Backlog) -> None:
        self._backlog = backlog

    def count_time(self, tally: Tally) -> None:
        """Count the time since the last call as spent in the state of ``tally``."""
        with self._lock:
            if self._at is None:
                return
            now_s = self._clock()
            seconds, self._at = now_s - self._at, now_s
            if not self._planned:
                return
            loaded = [r for r in self._planned if r in tally.runs and tally.runs[r].ready_at]
            use = self._uses.setdefault(max(loaded, default=min(self._planned)), Use())
            engines, backlog = tally.engines, self._backlog
            self._peak = max(self._peak, sum(engines))
            starting = engines.starting + max(0, self._workers - self._peak)
            use.engine_s += seconds * (sum(engines) - engines.starting + starting)
            use.waited_s["start"] += seconds * starting
            late = engines.at_work and not backlog.planned
            use.waited_s["tail" if late else "start"] += seconds * engines.unused
            use.waited_s[_cause(tally, backlog)] += seconds * engines.idle
            use.add_rows_in_flight(seconds, tally.in_flight)
            if engines.at_work:
                use.calls.append(tally.load.running / engines.at_work)
            for run in tally.runs.keys() & self._planned.keys():
                use = self._uses.setdefault(run, Use())
                if tally.runs[run].ended_rows >= MOST_ROWS * self._planned[run]:
                    use.most_rows_at = use.most_rows_at or now_s

    def end(self) -> None:
        """Note that the graph has ended."""
        self._at = None

    def take(self, run: int) -> Use:
        """Return and forget the `Use` of a run that is concluded."""
        with self._lock:
            self._planned.pop(run, None)
            return self._uses.pop(run, None) or Use()


def _cause(tally: Tally, backlog: Backlog) -> str:
    """Return the element of `CAUSES` why engines that have had rows have no row now."""
    store = bool(tally.notice) or backlog.writer_queue > 0
    # Rows that would not end before the time limit are not handed out.
    if backlog.planned and not any(counts.out_of_time for counts in tally.runs.values()):
        return "checker" if backlog.checker_queue else "store" if store else "no_rows"
    if tally.engines.at_work:
        return "tail"
    if backlog.checkers:
        return "checker"
    return "store" if store or backlog.writer else "tail"
