"""When to ask an endpoint, and when no more: rate limit, backoff, circuit breaker."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

BACKOFF_S = 1.0
"""Longest wait before the first retry; doubles with each."""
MAX_BACKOFF_S = 60.0
MAX_RETRY_AFTER_S = 120.0
"""A server that asks for a longer pause is given up for this row."""
RETRIED = frozenset({408, 409, 425, 429})
"""Refusals that a later request may not meet; so may failures of the server, 500 and above."""


class Pacer:
    """Spaces requests evenly: one every 60 / ``per_minute`` seconds, for all who wait."""

    def __init__(self, per_minute: int | None) -> None:
        self.interval_s = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    def reserve(self, now: float) -> float:
        """Seconds to wait from ``now`` until the next free turn, which is taken with it."""
        turn = max(now, self._next)
        self._next = turn + self.interval_s
        return turn - now

    def hold(self, now: float, seconds: float) -> None:
        """No turn before ``now + seconds``: the server asked for a pause."""
        self._next = max(self._next, now + seconds)


class Breaker:
    """Keeps a dead endpoint from costing every row its full retry budget.

    After ``limit`` calls in a row that used up their retries it is open: calls fail at once. After
    ``cooldown_s`` they are on trial, one attempt each; an answer closes it, a failure opens it
    again.
    """

    def __init__(
        self,
        limit: int = 3,
        cooldown_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._cooldown_s, self._clock = limit, cooldown_s, clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        return self._tripped and self._clock() < self._open_until

    @property
    def on_trial(self) -> bool:
        return self._tripped and self._clock() >= self._open_until

    @property
    def _tripped(self) -> bool:
        return self._failures >= self._limit

    def failed(self) -> None:
        self._failures += 1
        self._open_until = self._clock() + self._cooldown_s

    def answered(self) -> None:
        self._failures = 0


def retry_after_s(header: str, now: float) -> float:
    """Seconds that a ``Retry-After`` header asks for (RFC 9110: a number, or a date); 0 if none.

    ``now`` is the time of day in seconds since the epoch.
    """
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, OverflowError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def backoff_s(attempt: int) -> float:
    """Seconds to wait after the ``attempt``-th failure (from 1): doubling, with jitter."""
    # Jitter, so that the many rows of one outage do not come back in the same instant.
    return min(MAX_BACKOFF_S, BACKOFF_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)
