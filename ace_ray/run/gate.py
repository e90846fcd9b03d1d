"""Who may be in an engine together: rows that nothing is known of, or one group of suspects."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ace_ray.run.suspects import OPEN


class Gate:
    """Lets in one group at a time, in the order in which the groups first asked."""

    def __init__(self) -> None:
        self._inside = 0
        self._group = OPEN
        self._waiting: OrderedDict[int, list[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def entered(self, group: int = OPEN) -> AsyncIterator[None]:
        """Wait until only ``group`` is inside, and be inside."""
        if self._inside and (self._waiting or self._group != group):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(group, []).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._forget(group, turn)
                raise
        else:
            self._group = group
            self._inside += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        self._inside -= 1
        while not self._inside and self._waiting:
            self._group, turns = self._waiting.popitem(last=False)
            for turn in turns:
                if not turn.cancelled():
                    # Counted here: between now and its own step nobody else may come in.
                    self._inside += 1
                    turn.set_result(None)

    def _forget(self, group: int, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self._leave()  # it had been let in
            return
        turns = self._waiting.get(group, [])
        if turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[group]
