"""What the time of an engine worker goes into: the states of a sweep's ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

State = Literal["load", "warm_up", "generation", "tool", "idle"]
STATES: tuple[State, ...] = ("load", "warm_up", "generation", "tool", "idle")


class Clock:
    """Counts seconds by state: ``load`` while weights come in, ``warm_up`` while they are probed,
    ``generation`` while the engine owes answers, ``tool`` while rows are at work and it owes none
    (sandboxes, other models), ``idle`` while there is no row."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since = now()
        self._preparing: State | None = None
        self._rows = self._calls = 0
        self._spent: dict[State, float] = dict.fromkeys(STATES, 0.0)

    def preparing(self, state: State | None) -> None:
        """The engine is being loaded or warmed up until this is called with None."""
        self._count()
        self._preparing = state

    @contextmanager
    def row(self) -> Iterator[None]:
        self._count()
        self._rows += 1
        try:
            yield
        finally:
            self._count()
            self._rows -= 1

    @contextmanager
    def call(self) -> Iterator[None]:
        self._count()
        self._calls += 1
        try:
            yield
        finally:
            self._count()
            self._calls -= 1

    def read(self) -> dict[str, float]:
        """Seconds by state since the last `restart`."""
        self._count()
        return {state: round(seconds, 3) for state, seconds in self._spent.items()}

    def restart(self) -> None:
        """Count for another run from now on."""
        self._count()
        self._spent = dict.fromkeys(STATES, 0.0)

    def _count(self) -> None:
        now = self._now()
        self._spent[self._state()] += now - self._since
        self._since = now

    def _state(self) -> State:
        if self._preparing is not None:
            return self._preparing
        if self._calls:
            return "generation"
        return "tool" if self._rows else "idle"
