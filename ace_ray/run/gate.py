"""Who may be in an engine together: rows of one run that nothing is known of, or one group of
suspects."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

Group = tuple[int, int]
"""(run, group of suspects)"""


class Gate:
    """Lets in one group at a time, and of it at most ``most`` rows; a block of more goes in by
    itself. The earliest run comes first, since each change of runs changes the weights; within a
    run it is the order in which the groups first asked."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside = 0
        self._group: Group | None = None
        self._waiting: OrderedDict[Group, deque[_Turn]] = OrderedDict()

    @asynccontextmanager
    async def entered(self, group: Group, rows: int) -> AsyncIterator[None]:
        """Wait until there is room for ``rows`` of ``group``, and be inside."""
        turn = _Turn(asyncio.get_running_loop().create_future(), rows)
        self._waiting.setdefault(group, deque()).append(turn)
        self._admit()
        try:
            await turn.come
        except asyncio.CancelledError:
            if turn.come.done() and not turn.come.cancelled():
                self._leave(rows)  # it had been let in
            else:
                self._forget(group, turn)
            raise
        try:
            yield
        finally:
            self._leave(rows)

    def _forget(self, group: Group, turn: _Turn) -> None:
        turns = self._waiting.get(group, deque())
        if turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[group]
            self._admit()

    def _leave(self, rows: int) -> None:
        self._inside -= rows
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            group = min(self._waiting, key=lambda waiting: waiting[0])
            turns = self._waiting[group]
            if self._inside and group != self._group:
                return
            while turns:
                if self._inside and self._inside + turns[0].rows > self._most:
                    return
                turn = turns.popleft()
                if not turn.come.cancelled():
                    # Counted here: between now and its own step nobody else may come in.
                    self._group = group
                    self._inside += turn.rows
                    turn.come.set_result(None)
            del self._waiting[group]


@dataclass(frozen=True, slots=True)
class _Turn:
    come: asyncio.Future[None]
    rows: int
