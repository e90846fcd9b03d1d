"""Progress of a run as log lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from ace_ray.models.start_phases import PHASES
from ace_ray.pipeline.monitoring.counts import Tally
from ace_ray.util import log

POLL_S = 0.5
LOG_EVERY_S = 10.0


class ProgressView:
    """Polls ``read`` in a thread and prints a line each `LOG_EVERY_S` until the context ends.

    Args:
        read: returns the current tally; may raise while the cluster is going down.
        planned: rows this session will evaluate.
        console: where lines go.
    """

    def __init__(self, read: Callable[[], Tally], planned: int, console: Console) -> None:
        self._read, self._planned = read, planned
        self._say = log.say_on(console)
        self._start = time.time()
        self._started = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)

    def __enter__(self) -> ProgressView:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def _loop(self) -> None:
        shown, last = -1, 0.0
        while not self._stop.wait(POLL_S):
            tally = self._tally()
            if tally is None:
                continue
            self._tell_start(tally)
            if time.time() - last < LOG_EVERY_S:
                continue
            if tally.done != shown or not tally.done or tally.notice:
                shown, last = tally.done, time.time()
                self._say(log.Line(self.line(tally), event="progress", **self.numbers(tally)))

    def _tell_start(self, tally: Tally) -> None:
        """Once, what the start of the first engine took."""
        if not self._started and tally.workers:
            self._started = True
            self._say(start_line(tally.workers[0]))

    def _tally(self) -> Tally | None:
        try:
            return self._read()
        except Exception:  # noqa: BLE001 - the view must never end the run
            return None

    def numbers(self, tally: Tally) -> dict[str, Any]:
        """Those of `line`, as fields."""
        rate = _tokens_per_s(tally)
        return {
            "done": tally.done,
            "planned": self._planned,
            "tokens_per_s": None if rate is None else round(rate, 1),
            "not_scored": tally.done - tally.statuses["scored"],
            "engine_deaths": len(tally.deaths),
        }

    def line(self, tally: Tally) -> str:
        if not tally.workers and not tally.done:
            at = [f"{tally.phases[phase]} {phase}" for phase in PHASES if tally.phases[phase]]
            waited = f"starting engines ... {time.time() - self._start:.0f} s"
            return waited + (f" ({', '.join(at)})" if at else "")
        failed = tally.done - tally.statuses["scored"]
        parts = [f"{tally.done}/{self._planned} rows", _accuracy(tally), *self._speed(tally)]
        if failed:
            parts.append(f"{failed} not scored")
        if tally.deaths:
            parts.append(f"{len(tally.deaths)} engine death(s)")
        parts.append(tally.notice)
        return " | ".join(part for part in parts if part)

    def _speed(self, tally: Tally) -> list[str]:
        tokens, seconds = _tokens_per_s(tally), _seconds(tally)
        if tokens is None or seconds is None:
            return []
        left = (self._planned - tally.done) * seconds / max(1, tally.done)
        # The longest rows come first: an early estimate would be far too long.
        far_enough = tally.done >= self._planned / 10
        return [f"{tokens:.0f} tokens/s", f"about {_clock(left)} left" if far_enough else ""]


def start_line(worker: Mapping[str, Any]) -> log.Line:
    """What the start of an engine took, by the facts that its worker tells."""
    took, each = worker["load_s"], worker["start_s"]
    phases = ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in each.items())
    return log.Line(
        f"the first engine is ready after {took:.0f} s" + (phases and f": {phases}"),
        event="engine_ready",
        load_s=took,
        start_s=each,
    )


def _seconds(tally: Tally) -> float | None:
    """From the first engine that was ready to the last row."""
    if tally.first_ready_at is None or tally.last_row_at is None:
        return None
    return max(1e-6, tally.last_row_at - tally.first_ready_at)


def _tokens_per_s(tally: Tally) -> float | None:
    seconds = _seconds(tally)
    return None if seconds is None else tally.tokens / seconds


def _accuracy(tally: Tally) -> str:
    return ", ".join(
        f"{' '.join(key).strip()}: "
        + " ".join(f"{rules} {share:.3f}" for rules, share in shares.items())
        for key, shares in tally.accuracies().items()
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
