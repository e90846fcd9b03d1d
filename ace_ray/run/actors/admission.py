"""Who may be in an engine together: rows of one run that nothing is known of, or one group of
suspects."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ace_ray.run.health.isolation import OPEN

DOUBTFUL, STUBBORN = 4, 7
"""Fruitless engines after which rows that nothing is known of go before suspects; and after which
the suspect does that has failed most trials, until it has come to its end."""

Group = tuple[int, int]
"""(run, group of suspects)"""


class Gate:
    """Lets in one group at a time, and of it at most ``most`` rows; a party of more goes in by
    itself.

    Rows of the run whose weights the engine holds come first, then those of the earliest run, since
    each change of runs changes the weights. Within a run suspects come first, in the order in which
    their groups asked: there are few of them, and always more rows that nothing is known of, behind
    which they would wait until the run's end. One that an engine has died on alone waits until
    another row has passed in this engine, if any other is there. So do all suspects when some
    engines have died here one after another; after some more of them, one suspect after the other
    comes to its end.

    Args:
        run: whose weights the engine holds.
        fruitless: engines that have died here one after another, while no row got further.
        arriving: whether the rows of a process before this one are on their way, in any order:
            those of other runs wait for them.
    """

    def __init__(
        self,
        most: int,
        *,
        run: int | None = None,
        fruitless: int = 0,
        arriving: bool = False,
    ) -> None:
        self._most = most
        self._run = run
        self._doubtful = DOUBTFUL <= fruitless < STUBBORN
        self._stubborn = fruitless >= STUBBORN
        self._arriving = arriving
        self.passed = False
        """Whether a row has ended in this engine."""
        self._inside = 0
        self._group: Group | None = None
        self._tried: dict[Group, int] = {}
        """Suspects that engines have died on alone -> how often."""
        self._waiting: OrderedDict[Group, deque[Party]] = OrderedDict()

    @asynccontextmanager
    async def entered(self, group: Group, rows: int, *, tried: int = 0) -> AsyncIterator[Party]:
        """Wait until there is room for ``rows`` of ``group``, and be inside. ``tried``: how often
        an engine has died on it alone."""
        party = Party(asyncio.get_running_loop().create_future(), rows)
        if tried:
            self._tried[group] = tried
        self._waiting.setdefault(group, deque()).append(party)
        self._admit()
        try:
            await party.come
        except asyncio.CancelledError:
            if party.come.done() and not party.come.cancelled():
                self._leave(party)  # it had been let in
            else:
                self._forget(group, party)
            raise
        try:
            yield party
        finally:
            self._leave(party)

    def row_ended(self, party: Party) -> None:
        """One row of ``party`` leaves room to others: a slow one holds no place but its own.

        The last place is the party's until it has left, so that no other group comes in before.
        """
        self.passed = True
        if party.rows > 1:
            party.rows -= 1
            self._inside -= 1
            self._admit()

    def arrived(self) -> None:
        """What was on its way is here, or does not come."""
        self._arriving = False
        self._admit()

    def _leave(self, party: Party) -> None:
        self._inside -= party.rows
        party.rows = 0
        self._admit()

    def _forget(self, group: Group, party: Party) -> None:
        parties = self._waiting.get(group, deque())
        if party in parties:
            parties.remove(party)
            if not parties:
                del self._waiting[group]
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            group = min(self._waiting, key=self._rank)
            if self._arriving and self._is_early(group):
                return
            parties = self._waiting[group]
            if self._inside and group != self._group:
                return
            while parties:
                if self._inside and self._inside + parties[0].rows > self._most:
                    return
                party = parties.popleft()
                if not party.come.cancelled():
                    # Counted here: between now and its own step nobody else may come in.
                    self._group, self._run = group, group[0]
                    self._inside += party.rows
                    party.come.set_result(None)
            del self._waiting[group]

    def _is_early(self, group: Group) -> bool:
        """Whether others that are to arrive go before ``group``."""
        return self._stubborn or group[0] != self._run or self._waits(group)

    def _waits(self, group: Group) -> bool:
        doubted = self._doubtful or (group in self._tried and not self._stubborn)
        return group[1] != OPEN and doubted and not self.passed

    def _rank(self, group: Group) -> tuple[bool, int, int, int]:
        run, suspects = group
        rank = 2 if self._waits(group) else 1 if suspects == OPEN else 0
        most = -self._tried.get(group, 0) if self._stubborn else 0
        return run != self._run, run, rank, most


@dataclass(slots=True, eq=False)
class Party:
    """Rows that come in together."""

    come: asyncio.Future[None]
    rows: int
    """Places that it holds, or needs to come in."""
