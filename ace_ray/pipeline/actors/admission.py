"""Which rows may be in an engine together: those of one run that are not isolated, or one isolation
group."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ace_ray.pipeline.health.isolation import OPEN

ISOLATED_LAST, MOST_TRIED_FIRST = 4, 7
"""Starts since progress from which rows that are not isolated go first; and from which the isolated
row does that has failed most trials, until it has come to its end."""

Partition = tuple[int, int]
"""(run, isolation group)"""


class AdmissionControl:
    """Admits one partition at a time, and of it at most ``most`` rows; a group of more is admitted
    by itself.

    Rows of the run whose weights the engine holds come first, then those of the earliest run, since
    each change of runs changes the weights. Within a run isolated rows come first, in the order in
    which they asked: there are few of them, and always more of the others, behind which they would
    wait until the run's end. One that an engine has died on alone waits until another row has
    passed in this engine, if any other is there. So do all isolated rows when some engines have
    died here one after another; after some more of them, one isolated row after the other comes to
    its end.

    Args:
        run: whose weights the engine holds.
        starts_since_progress: engines that have died here one after another, while no row got
            further.
        arriving: whether the rows of a process before this one are on their way, in any order:
            those of other runs wait for them.
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
        self.passed = False
        """Whether a row has ended in this engine."""
        self._inside = 0
        self._closed = False
        self._partition: Partition | None = None
        self._tried: dict[Partition, int] = {}
        """Isolated rows that engines have died on alone -> how often."""
        self._waiting: OrderedDict[Partition, deque[Group]] = OrderedDict()

    @asynccontextmanager
    async def entered(
        self, partition: Partition, rows: int, *, tried: int = 0
    ) -> AsyncIterator[Group]:
        """Wait until there is room for ``rows`` of ``partition``, and be inside. ``tried``: how
        often an engine has died on it alone."""
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
        """One row of ``group`` leaves room to others: a slow one holds no place but its own.

        The last place is the group's until it has left, so that no other partition comes before.
        """
        self.passed = True
        if group.rows > 1:
            group.rows -= 1
            self._inside -= 1
            self._admit()

    def arrived(self) -> None:
        """What was on its way is here, or does not come."""
        self._arriving = False
        self._admit()

    def close(self) -> None:
        """Let all in that wait or come, without a place: they are to see that nothing begins."""
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
                    # Counted here: no other may be admitted before its own step.
                    self._partition, self._run = partition, partition[0]
                    self._inside += group.rows
                    group.admitted.set_result(None)
            del self._waiting[partition]

    def _is_early(self, partition: Partition) -> bool:
        """Whether others that are to arrive go before ``partition``."""
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
    """Rows that are admitted together."""

    admitted: asyncio.Future[None]
    rows: int
    """Places that it holds, or needs to come in."""
