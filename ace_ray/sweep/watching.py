"""Watch a folder for checkpoints, and know when to end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ace_ray.config.schema import StoreConfig
from ace_ray.errors import UserError
from ace_ray.storage.object_store import Store, open_store
from ace_ray.sweep.checkpoints import Checkpoint, find_checkpoints
from ace_ray.sweep.config import SweepOptions

LEAST_POLL_S, MOST_POLL_S = 1.0, 30.0


class Settling:
    """Find checkpoints that have not changed for a while: a trainer may still be writing one."""

    def __init__(self, settle_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._settle_s, self._now = settle_s, now
        self._seen: dict[str, tuple[str, float]] = {}

    def look(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return the complete checkpoints that have settled, as far as the looks so far can
        show."""
        now = self._now()
        for checkpoint in checkpoints:
            state, since = self._seen.get(checkpoint.source, ("", now))
            unchanged = state == checkpoint.state
            self._seen[checkpoint.source] = (checkpoint.state, since if unchanged else now)
        return [c for c in checkpoints if not c.lacks and self.has_settled(c)]

    def has_settled(self, checkpoint: Checkpoint) -> bool:
        """Return whether the checkpoint has been unchanged for ``settle_s``, complete or not."""
        state, since = self._seen.get(checkpoint.source, ("", math.inf))
        return state == checkpoint.state and self._now() - since >= self._settle_s


class Watching:
    """Watch until the stop file exists. Checkpoints that exist by then and have not settled are
    waited for, because the last checkpoint and the stop file often come together."""

    def __init__(
        self,
        options: SweepOptions,
        store: StoreConfig,
        now: Callable[[], float] = time.monotonic,
        seen: set[int] | None = None,
    ) -> None:
        """Start watching. ``seen``: see `find_checkpoints`."""
        self._options, self._store, self._now = options, store, now
        self._seen = set() if seen is None else seen
        self._stop_file = _StopFile(options.stop_file, store) if options.stop_file else None
        self._known: set[str] | None = None
        """Sources of checkpoints, after the first successful look. Folders that become invalid
        later are refused; before that, they are errors for the user."""
        self.invalid: dict[str, str] = {}
        """Folders of the last look that are not checkpoints of their own: source -> reason."""
        self._settling = Settling(options.settle_s, now)
        self._taken: dict[str, str] = {}
        self._until: float | None = None
        """While ending: the time until which checkpoints are waited for."""
        self._last: set[str] | None = None
        """Checkpoints that existed at the end. Later ones are not waited for, since there may
        always be new ones."""
        self._open: list[Checkpoint] = []
        self.failed = False
        """Whether the last look failed, so that the checkpoints are unknown."""

    def look(self) -> list[Checkpoint]:
        """Return complete, settled checkpoints that were not taken in their current state.

        Raises `UserError`: the folder cannot be listed now.
        """
        invalid: dict[str, str] | None = None if self._known is None else {}
        sources = self._known or set()
        try:
            if self._is_time():
                self._end()
            checkpoints = find_checkpoints(self._options, self._store, self._seen, sources, invalid)
        except UserError:
            self.failed = True
            raise
        self.failed, self.invalid = False, invalid or {}
        self._known = sources | {checkpoint.source for checkpoint in checkpoints}
        settled = self._settling.look(checkpoints)
        if self._until is not None:
            if self._last is None:
                self._last = {checkpoint.source for checkpoint in checkpoints}
                self._until = self._now() + self._options.settle_s
            checkpoints = [
                checkpoint for checkpoint in checkpoints if checkpoint.source in self._last
            ]
            settled = [checkpoint for checkpoint in settled if checkpoint.source in self._last]
        self._open = [checkpoint for checkpoint in checkpoints if not self._is_taken(checkpoint)]
        return [checkpoint for checkpoint in settled if not self._is_taken(checkpoint)]

    def take(self, checkpoint: Checkpoint) -> None:
        """Mark the checkpoint as taken until it changes."""
        self._taken[checkpoint.source] = checkpoint.state

    @property
    def poll_s(self) -> float:
        """Seconds between two looks: half of ``settle_s``, within bounds."""
        return min(max(LEAST_POLL_S, self._options.settle_s / 2), MOST_POLL_S)

    @property
    def wait_s(self) -> float:
        """Seconds until the next look; 0 if there should be none."""
        if self._until is None:
            return self.poll_s
        if not (self.failed or self.unfinished() or self.left()):
            return 0.0
        return max(0.0, min(self.poll_s, self._until - self._now()))

    def unfinished(self) -> list[Checkpoint]:
        """Return checkpoints of the last look that may still be written."""
        return [c for c in self._open if not self._settling.has_settled(c)]

    def torn(self) -> list[Checkpoint]:
        """Return checkpoints of the last look that are incomplete and no longer written."""
        return [c for c in self._open if c.lacks and self._settling.has_settled(c)]

    def left(self) -> list[Checkpoint]:
        """Return complete checkpoints of the last look that were not taken."""
        whole = [c for c in self._open if not c.lacks and self._settling.has_settled(c)]
        return [checkpoint for checkpoint in whole if not self._is_taken(checkpoint)]

    def _is_taken(self, checkpoint: Checkpoint) -> bool:
        return self._taken.get(checkpoint.source) == checkpoint.state

    def _end(self) -> None:
        if self._until is None:
            self._until = self._now() + self._options.settle_s

    def _is_time(self) -> bool:
        """Return whether the stop file exists. Raises `UserError`: it cannot be checked."""
        return self._until is None and self._stop_file is not None and self._stop_file.exists()


class _StopFile:
    """Stop file on a disk or on S3. Raises `UserError`: the location is not valid."""

    def __init__(self, path: str, store: StoreConfig) -> None:
        self._path = Path(path)
        self._store: Store | None = None
        if "://" in path:
            folder, _, self._name = path.rpartition("/")
            self._store = open_store(
                # Without this, "s3:/" would be left for a bucket alone, and be taken for a folder.
                folder if "://" in folder else "s3://",
                endpoint_url=store.endpoint_url,
                region=store.region,
            ).quick()

    def exists(self) -> bool:
        if self._store is None:
            return self._path.exists()
        return self._store.get(self._name) is not None
