"""What a sandbox is: declared tools over the state of one episode.

A `Scenario` is plain Python: synchronous, deterministic, no clock, no randomness, no I/O. That is
what lets an episode be rebuilt after a death by replaying the calls it has made. A `Session` is an
episode's handle to a scenario that lives somewhere: in this process, or in a sandbox actor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Observation:
    """What a call answered. ``value`` is a JSON value; for errors, the text of the error.

    ``error`` is "" or why there is no answer: ``unknown_tool`` (no such tool is declared),
    ``bad_arguments`` (missing, unknown or mistyped ones; the tool did not run) or ``failed`` (the
    tool itself raised, which only scenarios that reproduce a broken original do).
    """

    value: Any
    error: str = ""


class Scenario(Protocol):
    """The tools and the state of one episode."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one declared tool. Never raises, whatever a model asked for."""

    def state(self) -> Any:
        """The recorded state: JSON values, a copy."""


@runtime_checkable
class Recalling(Protocol):
    """A scenario whose answers may show what later calls change."""

    def shown(self, last: int) -> list[Any]:
        """What the last ``last`` answers without an error show now, as far as they are kept."""


class Session(Protocol):
    """One open episode. Raises `SandboxLost` (a `RowError`) when it cannot go on."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation: ...

    async def shown(self, last: int) -> list[Any]:
        """See `Recalling`; of any other scenario nothing."""

    async def state(self) -> Any: ...

    async def close(self) -> None: ...


class LocalSession:
    """A session in this process: for tests, and to evaluate one entry outside a run."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        return self._scenario.call(name, arguments)

    async def shown(self, last: int) -> list[Any]:
        return self._scenario.shown(last) if isinstance(self._scenario, Recalling) else []

    async def state(self) -> Any:
        return self._scenario.state()

    async def close(self) -> None:
        return None
