"""Admit rows to an engine, one partition (rows that may be in flight together) at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ace_ray.pipeline.actors.kv_budget import KVBudget
from ace_ray.pipeline.health.isolation import OPEN

# From this many starts without progress, rows that are not isolated go before isolated rows.
ISOLATED_LAST = 4
# From this many starts without progress, the isolated row with the most `deaths_alone` goes first.
MOST_TRIED_FIRST = 7
# Time after which episodes that found no room in the engine's KV cache ask again.
ASK_AGAIN_S = 1.0

# (index of a run, isolation group). Rows that are not isolated form one group per run, `OPEN`.
Partition = tuple[int, int]


@dataclass(eq=False)
class AdmissionControl:
    """Admits rows of one partition at a time. Isolated rows were in flight when an engine died.

    Between runs the engine swaps its weights. So rows of the run whose weights are loaded come
    first, then rows of the earliest run. Within a run isolated rows come first; otherwise they
    would wait until the run ends. Exception: until a row has ended in the current engine, an
    isolated row comes last if an engine died while the row ran alone. The exception holds for all
    isolated rows from `ISOLATED_LAST` starts without progress, and for none from
    `MOST_TRIED_FIRST`."""

    max_rows: int
    """Maximum rows in the engine. A group with more rows is admitted alone."""
    run: int | None = None
    """Run whose weights the engine has loaded."""
    starts_since_progress: int = 0
    """Earlier starts of this worker since a row last made progress."""
    arriving: bool = False
    """Whether Ray will send the blocks of this worker's previous process again, in any order. Rows
    of other runs and isolated rows that were tried wait for these blocks."""
    room: KVBudget = field(default_factory=lambda: KVBudget(0))
    """Decides whether further episodes fit into the engine's KV cache."""
    passed: bool = False
    """Whether a row has ended in this engine."""
    _admitted: set[Group] = field(default_factory=set)
    _closed: bool = False
    _partition: Partition | None = None
    # Partition of an isolated row -> number of engines that died while the row ran alone.
    _tried: dict[Partition, int] = field(default_factory=dict)
    _waiting: dict[Partition, deque[Group]] = field(default_factory=dict)
    _asks_again: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        starts = self.starts_since_progress
        self._isolated_last = ISOLATED_LAST <= starts < MOST_TRIED_FIRST
        self._most_tried_first = starts >= MOST_TRIED_FIRST

    @asynccontextmanager
    async def admission(
        self, partition: Partition, rows: int, *, tried: int = 0, episodes: bool = False
    ) -> AsyncIterator[Group]:
        """Wait until ``rows`` rows of ``partition`` may start; their places stay taken until the
        context ends. ``tried``: for an isolated row, the number of engines that died while the row
        ran alone. ``episodes``: whether each row makes several model calls."""
        group = Group(rows, episodes)
        if tried:
            self._tried[partition] = tried
        self._waiting.setdefault(partition, deque()).append(group)
        self._admit()
        try:
            await group.admitted.wait()
            yield group
        finally:
            self._admitted.discard(group)
            groups = self._waiting.get(partition, deque())
            if group in groups:  # the caller was cancelled before the group was admitted
                groups.remove(group)
                if not groups:
                    del self._waiting[partition]
            self._admit()

    def free_place(self, group: Group) -> None:
        """Free the place of one row of ``group`` for other rows. The group's last place stays taken
        until the context of `admission` ends, so that no other partition is admitted before."""
        self.passed = True
        if group.rows > 1:
            group.rows -= 1
            self._admit()

    def note_arrival(self) -> None:
        """Stop waiting for blocks of the previous process."""
        self.arriving = False
        self._admit()

    def close(self) -> None:
        """End all waits in `admission`. The callers that waited must not start their rows."""
        self._closed = True
        self._admit()

    def _admit(self) -> None:
        while self._closed and self._waiting:
            for group in self._waiting.popitem()[1]:
                group.admitted.set()
        while self._waiting:
            partition = min(self._waiting, key=self._rank)
            may_come_later = self._most_tried_first or partition[0] != self.run
            if self.arriving and (may_come_later or self._waits(partition)):
                return  # blocks that arrive later may go first
            groups = self._waiting[partition]
            if self._admitted and partition != self._partition:
                return
            inside = sum(group.rows for group in self._admitted)
            episodes = sum(group.rows for group in self._admitted if group.episodes)
            full = False
            for group in list(groups):
                if inside and inside + group.rows > self.max_rows:
                    return
                if group.episodes and episodes and not full:
                    full = not self.room.fits(episodes + group.rows)
                if group.episodes and full:
                    continue
                groups.remove(group)
                # Count the rows now, before the group's own coroutine runs.
                self._admitted.add(group)
                self._partition, self.run = partition, partition[0]
                inside += group.rows
                episodes += group.rows if group.episodes else 0
                group.admitted.set()
            if groups:
                if self._asks_again is not None:
                    self._asks_again.cancel()
                self._asks_again = asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._admit)
                return
            del self._waiting[partition]

    def _waits(self, partition: Partition) -> bool:
        was_tried = partition in self._tried and not self._most_tried_first
        after_others = self._isolated_last or was_tried
        return partition[1] != OPEN and after_others and not self.passed

    def _rank(self, partition: Partition) -> tuple[bool, int, int, int]:
        run, isolation_group = partition
        rank = 2 if self._waits(partition) else 1 if isolation_group == OPEN else 0
        tried = self._tried.get(partition, 0) if self._most_tried_first else 0
        return run != self.run, run, rank, -tried


@dataclass(slots=True, eq=False)
class Group:
    """Rows that wait together and are admitted together."""

    rows: int
    """Number of rows that are in flight, or that wait."""
    episodes: bool
    """Whether each row makes several model calls."""
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
