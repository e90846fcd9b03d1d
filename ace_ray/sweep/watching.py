"""Watching a folder for checkpoints: what has come, and when it is time to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ace_ray.config import StoreConfig
from ace_ray.sweep.checkpoints import Checkpoint, Settling, find_checkpoints
from ace_ray.sweep.config import SweepOptions


class Watching:
    """Looks until a file, a time or a step ends it. What is there by then and still has to settle
    is waited for: the last checkpoint and the stop file often come together."""

    def __init__(
        self,
        options: SweepOptions,
        store: StoreConfig,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._store, self._now = options, store, now
        self._settling = Settling(options.settle_s, now)
        self._taken: dict[str, str] = {}
        self._began = now()
        self._ending = False
        self._until: float | None = None
        """When what there was at the end has settled, if it does."""
        self._last: set[str] | None = None
        """What there was when it was time to end. Later ones are not waited for: there may be no
        end to them."""
        self._open: list[Checkpoint] = []

    def look(self, reached: int | None = None) -> list[Checkpoint]:
        """Checkpoints that have settled whole, and were not taken as they are now. ``reached`` is
        the highest step taken so far. Raises `UserError`: one cannot look now."""
        self._ending = self._ending or self._is_time(reached)
        self._open = []
        found = find_checkpoints(self._options, self._store)
        if self._ending:
            if self._last is None:
                self._last = {checkpoint.source for checkpoint in found if self._counts(checkpoint)}
            found = [checkpoint for checkpoint in found if checkpoint.source in self._last]
        settled = self._settling.look(found)
        if self._ending and self._until is None:
            self._until = self._now() + self._options.settle_s
        self._open = [checkpoint for checkpoint in found if not self._is_taken(checkpoint)]
        return [checkpoint for checkpoint in settled if not self._is_taken(checkpoint)]

    def take(self, checkpoint: Checkpoint) -> None:
        """It is known, until it changes."""
        self._taken[checkpoint.source] = checkpoint.state

    @property
    def wait_s(self) -> float:
        """Until the next look; 0 when there should be none."""
        if not self._ending:
            return self._options.poll_s
        if self._until is None or not self.unfinished():
            return 0.0
        return max(0.0, min(self._options.poll_s, self._until - self._now()))

    def unfinished(self) -> list[Checkpoint]:
        """Those seen last that somebody may be writing."""
        return [c for c in self._open if not self._settling.has_settled(c)]

    def torn(self) -> list[Checkpoint]:
        """Those seen last that lack something, and that nobody is writing any more."""
        return [c for c in self._open if c.lacks and self._settling.has_settled(c)]

    def _is_taken(self, checkpoint: Checkpoint) -> bool:
        return self._taken.get(checkpoint.source) == checkpoint.state

    def _counts(self, checkpoint: Checkpoint) -> bool:
        until = self._options.until_step
        return until is None or checkpoint.step <= until

    def _is_time(self, reached: int | None) -> bool:
        options, step = self._options, self._options.until_step
        return (
            (step is not None and reached is not None and reached >= step)
            or (options.stop_file is not None and Path(options.stop_file).exists())
            or (options.watch_s is not None and self._now() - self._began > options.watch_s)
        )
