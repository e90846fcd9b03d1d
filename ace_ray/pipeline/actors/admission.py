"""Admission of rows to an engine: one partition at a time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ace_ray.pipeline.health.isolation import OPEN

# Starts without progress from which rows that are not isolated go before isolated rows.
ISOLATED_LAST = 4
# Starts without progress from which the isolated row with the most failed trials goes first.
MOST_TRIED_FIRST = 7

# Run and isolation group. All rows of a run that are not isolated are one group, `OPEN`.
Partition = tuple[int, int]


class AdmissionControl:
    """Admits rows of one partition at a time.

    Rows of the run whose weights are loaded come first, then rows of the earliest run: a change of
    runs is a swap of weights. Within a run isolated rows come first, or they would wait until the
    run ends. An isolated row on which an engine died alone waits until another row has passed in
    this engine. So do all isolated rows after `ISOLATED_LAST` starts without progress.

    Args:
        most: maximum rows in the engine. A larger group is admitted alone.
        run: run whose weights the engine holds.
        starts_since_progress: engines that died here in a row while no row got further.
        arriving: whether blocks of the previous process are still to come, in any order. Rows of
            other runs wait for them.
    """

    def __init__(
        self,
        most: int,
        *,
        run: int | None = None,
        starts_since_progress: int = 0,
        arriving: bool = False,
    ) -> None:
        self._most = most
        self._run = run
        self._isolated_last = ISOLATED_LAST <= starts_since_progress < MOST_TRIED_FIRST
        self._most_tried_first = starts_since_progress >= MOST_TRIED_FIRST
        self._arriving = arriving
        # Whether a row has ended in this engine.
        self.passed = False
        self._inside = 0
        self._closed = False
        self._partition: Partition | None = None
        # Isolated rows on which engines died alone -> number of deaths.
        self._tried: dict[Partition, int] = {}
        self._waiting: OrderedDict[Partition, deque[Group]] = OrderedDict()

    @asynccontextmanager
    async def entered(
        self, partition: Partition, rows: int, *, tried: int = 0
    ) -> AsyncIterator[Group]:
        """Wait until ``rows`` rows of ``partition`` are admitted, and hold their places. ``tried``:
        how often an engine died with the row alone."""
        group = Group(asyncio.get_running_loop().create_future(), rows)
        if self._closed:
            group.rows = 0
            group.admitted.set_result(None)
        if tried:
            self._tried[partition] = tried
        if not self._closed:
            self._waiting.setdefault(partition, deque()).append(group)
            self._admit()
        try:
            await group.admitted
        except asyncio.CancelledError:
            if group.admitted.done() and not group.admitted.cancelled():
                self._leave(group)  # it had been admitted
            else:
                self._forget(partition, group)
            raise
        try:
            yield group
        finally:
            self._leave(group)

    def row_ended(self, group: Group) -> None:
        """Give the place of one row of ``group`` to other rows.

        The group keeps its last place until it leaves, so that no other partition is admitted
        before.
        """
        self.passed = True
        if group.rows > 1:
            group.rows -= 1
            self._inside -= 1
            self._admit()

    def arrived(self) -> None:
        """Wait no longer for blocks of the previous process."""
        self._arriving = False
        self._admit()

    def close(self) -> None:
        """Admit all groups without a place. Their callers see that no row begins any more."""
        self._closed = True
        waiting, self._waiting = self._waiting, OrderedDict()
        for group in (group for groups in waiting.values() for group in groups):
            group.rows = 0
            if not group.admitted.done():
                group.admitted.set_result(None)

    def _leave(self, group: Group) -> None:
        self._inside -= group.rows
        group.rows = 0
        self._admit()

    def _forget(self, partition: Partition, group: Group) -> None:
        groups = self._waiting.get(partition, deque())
        if group in groups:
            groups.remove(group)
            if not groups:
                del self._waiting[partition]
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            partition = min(self._waiting, key=self._rank)
            if self._arriving and self._is_early(partition):
                return
            groups = self._waiting[partition]
            if self._inside and partition != self._partition:
                return
            while groups:
                if self._inside and self._inside + groups[0].rows > self._most:
                    return
                group = groups.popleft()
                if not group.admitted.cancelled():
                    # Counted here, before the group's own coroutine runs.
                    self._partition, self._run = partition, partition[0]
                    self._inside += group.rows
                    group.admitted.set_result(None)
            del self._waiting[partition]

    def _is_early(self, partition: Partition) -> bool:
        """Return whether rows that are still to arrive go before ``partition``."""
        return self._most_tried_first or partition[0] != self._run or self._waits(partition)

    def _waits(self, partition: Partition) -> bool:
        after_others = self._isolated_last or (
            partition in self._tried and not self._most_tried_first
        )
        return partition[1] != OPEN and after_others and not self.passed

    def _rank(self, partition: Partition) -> tuple[bool, int, int, int]:
        run, isolation_group = partition
        rank = 2 if self._waits(partition) else 1 if isolation_group == OPEN else 0
        most = -self._tried.get(partition, 0) if self._most_tried_first else 0
        return run != self._run, run, rank, most


@dataclass(slots=True, eq=False)
class Group:
    """Rows that are admitted together, as one waiter."""

    admitted: asyncio.Future[None]
    rows: int
    """Places that the group holds, or waits for."""
