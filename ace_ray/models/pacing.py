"""Pace requests to an endpoint: rate limit, backoff and circuit breaker."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

# Maximum wait before the first retry. The wait doubles with each retry.
BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
# Maximum pause that a server may request. A longer one fails the row.
MAX_RETRY_AFTER_S = 120.0
# Status codes that are retried, besides server errors (500 and above).
RETRIED = frozenset({408, 409, 425, 429})


class Pacer:
    """Spaces requests evenly: one every 60 / ``per_minute`` seconds, over all callers."""

    def __init__(self, per_minute: int | None) -> None:
        self.interval_s = 60.0 / per_minute if per_minute else 0.0
        self._next_turn_s = 0.0

    def reserve(self, now_s: float) -> float:
        """Reserve the next free turn, and return the seconds to wait for it from ``now_s``."""
        turn = max(now_s, self._next_turn_s)
        self._next_turn_s = turn + self.interval_s
        return turn - now_s

    def delay(self, now_s: float, seconds: float) -> None:
        """Delay the next turn to at least ``now_s + seconds``: the server requested a pause."""
        self._next_turn_s = max(self._next_turn_s, now_s + seconds)


class Breaker:
    """Circuit breaker, which avoids retries on an endpoint that is down.

    The breaker opens when ``limit`` consecutive calls have failed after all retries. While it is
    open, calls fail at once. ``cooldown_s`` seconds later, calls are on trial: each has one
    attempt. An answer closes the breaker, and a failure opens it again."""

    def __init__(
        self, limit: int = 3, cooldown_s: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._cooldown_s, self._clock = limit, cooldown_s, clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        return self._is_tripped and self._clock() < self._open_until

    @property
    def is_on_trial(self) -> bool:
        return self._is_tripped and self._clock() >= self._open_until

    @property
    def _is_tripped(self) -> bool:
        return self._failures >= self._limit

    def note_failure(self) -> None:
        self._failures += 1
        self._open_until = self._clock() + self._cooldown_s

    def note_answer(self) -> None:
        self._failures = 0


def retry_after_s(header: str, now_s: float) -> float:
    """Return the seconds in a ``Retry-After`` header (RFC 9110: a number or a date); 0 if it is
    invalid.

    ``now_s`` is the time in seconds since the epoch."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now_s
        except (ValueError, OverflowError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def backoff_s(attempt: int) -> float:
    """Return the seconds to wait after failed attempt number ``attempt`` (from 1), with jitter."""
    # Jitter spreads the retries of many rows after an outage.
    return min(MAX_BACKOFF_S, BACKOFF_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)
