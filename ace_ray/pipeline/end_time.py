"""End a run in time. Times are `time.monotonic` of the driver, which cannot be set back."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from ace_ray.config.schema import seconds_of
from ace_ray.errors import UserError

AUTO = "auto"
# Environment variables with the Unix time at which the job ends.
VARIABLES = ("SLURM_JOB_END_TIME", "ACE_RAY_END_TIME")

# Time before the end for storing the last rows and writing the summary: this share of the limit,
# within these bounds in seconds.
CLOSING_SHARE, CLOSING_S = 0.04, (20.0, 60.0)

# Number of recent rows of a category by which the time of the next row is estimated. An engine may
# become slower.
RECENT = 48
# Quantile of their times.
QUANTILE = 0.8
# Minimum time of a run, in durations of a row.
ROW_ROOM = 1.25


def ends_at(
    limit: str | None, began: float, environment: Mapping[str, str] = os.environ
) -> float | None:
    """Return the time at which a command must have ended; None for no limit.

    ``limit`` is `RunConfig.time_limit`, counted from ``began``. Unless ``limit`` is None, the times
    in the environment variables `VARIABLES` apply as well. Raises `UserError` if one of these
    variables is not a Unix time."""
    if limit is None:
        return None
    ends = [began + seconds_of(limit)] if limit != AUTO else []
    return min([*ends, *_job_ends(environment).values()], default=None)


def _job_ends(environment: Mapping[str, str]) -> dict[str, float]:
    """Return the end times by variable. Raises `UserError` if a variable is not a Unix time."""
    ends, boot = {}, time.time() - time.monotonic()
    for name in VARIABLES:
        if not (value := environment.get(name, "").strip()):
            continue
        try:
            ends[name] = float(value)
        except ValueError:
            ends[name] = math.nan
        if not 0 <= ends[name] < math.inf:
            fix = "set the seconds since 1970, such as $(date -d '+8 hours' +%s), or unset it"
            raise UserError(f"{value!r:.80} is not a Unix time", where=name, fix=fix)
    return {name: end - boot for name, end in ends.items()}


def rows_end_at(
    limit: str | None, began: float, environment: Mapping[str, str] = os.environ
) -> float | None:
    """Return the time at which the last row must have ended: `ends_at` minus `closing_s`, or None.

    Raises `UserError` if no time is left, for example in a shell that outlived its Slurm job."""
    if (end := ends_at(limit, began, environment)) is None:
        return None
    if end <= began:
        raise UserError(
            "this end time has passed",
            where=min(ends := _job_ends(environment), key=ends.__getitem__),
            fix="start a new job, or unset the variable, or set time_limit=null",
        )
    return end - closing_s(end - began)


def closing_s(limit_s: float) -> float:
    """Return the seconds for storing the last rows and writing the summary."""
    return min(max(CLOSING_SHARE * limit_s, CLOSING_S[0]), CLOSING_S[1])


def share_end(now_s: float, end: float, later: int, row_s: float) -> float:
    """Return the time at which a run that begins at ``now_s`` must end, at the latest ``end``.

    The run and ``later`` further runs get equal shares of the time until ``end``. Time that a run
    does not use goes to the runs after it. A share is longer than ``row_s``, the expected seconds
    of a row of the slowest category: in a shorter share no row would end."""
    return min(end, now_s + max((end - now_s) / (later + 1), ROW_ROOM * row_s))


def format_time(seconds: float) -> str:
    """Return a duration for a message, such as "about 12 minutes"."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.{int(seconds < 10 * size and unit == 'hours')}f} {unit}"
    return f"about {max(1.0, seconds):.0f} s"


class RowTimes:
    """Decides which rows of a worker can still end in time, by the times of the rows that have
    ended.

    Args:
        end: time at which all rows must have ended; None for no limit.
        runs: indexes of the runs with pending rows, which share the time until ``end``.
        cancel: cancels the rows of a run that are in flight. Returns False if the run must go on,
            because none of its rows has ended yet."""

    def __init__(
        self, end: float | None, runs: Sequence[int], cancel: Callable[[int], bool]
    ) -> None:
        self._end, self._runs, self._cancel = end, runs, cancel
        self._recent: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        # Run -> time at which its rows must have ended.
        self._run_ends: dict[int, float] = {}

    def add(self, category: str, seconds: float, length: float = 1.0) -> None:
        """Note the time of a row that has ended. ``length``: as in `Durations.lengths`."""
        self._recent[category].append(seconds / length)

    def expected_s(self, category: str, length: float = 1.0) -> float:
        """Return the expected seconds of a row of ``category``. If no row of the category has
        ended, use the rows of all categories; return 0 before any row has ended."""
        ordered = sorted(self._recent.get(category) or chain(*self._recent.values()))
        return length * ordered[math.ceil(QUANTILE * len(ordered)) - 1] if ordered else 0.0

    def can_end(self, run: int, category: str, length: float = 1.0) -> bool:
        """Return whether a row of ``category`` that starts now can probably end before ``run`` must
        end. The first call for a run sets this end, so the run's weights must be loaded."""
        if self._end is None:
            return True
        if run not in self._run_ends:
            now_s, later = time.monotonic(), sum(index > run for index in self._runs)
            longest_s = max(map(self.expected_s, self._recent), default=0.0)
            end = self._run_ends[run] = share_end(now_s, self._end, later, longest_s)
            if later:
                self._cancel_after(max(0.0, end - now_s), run)
        return time.monotonic() + self.expected_s(category, length) <= self._run_ends[run]

    def _cancel_after(self, seconds: float, run: int) -> None:
        """Cancel the rows of ``run`` after ``seconds``. If the run must go on, because its share of
        the time is shorter than a row, try again after the same time."""

        def cancel() -> None:
            if not self._cancel(run):
                self._cancel_after(max(1.0, seconds), run)

        asyncio.get_running_loop().call_later(seconds, cancel)
