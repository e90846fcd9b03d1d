"""Protocols of a sandbox: declared tools over the state of one episode.

A `Scenario` is plain Python: synchronous and deterministic, without clock, randomness or I/O. So an
episode can be rebuilt after a crash by replaying its calls. A `Session` is the handle of an episode
to its scenario, in this process or in a sandbox actor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Observation:
    """The answer to a call. ``value`` is a JSON value; for errors, the text of the error.

    ``error`` is "" or the kind of an error. ``unknown_tool``: the tool is not declared.
    ``bad_arguments``: missing, unknown or mistyped arguments; the tool did not run. ``failed``: the
    tool raised, which only happens in scenarios that reproduce a broken original.
    """

    value: Any
    error: str = ""


class Scenario(Protocol):
    """The tools and the state of one episode."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one declared tool. Never raises on any request of a model."""

    def state(self) -> Any:
        """Return a copy of the recorded state, as JSON values."""


@runtime_checkable
class Recalling(Protocol):
    """A scenario whose earlier answers change with later calls."""

    def shown(self, last: int) -> list[Any]:
        """Return the current form of the last ``last`` answers without errors, if still kept."""


class Session(Protocol):
    """One open episode. Raises `SandboxLost` (a `RowError`) when it cannot continue."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation: ...

    async def shown(self, last: int) -> list[Any]:
        """As in `Recalling`; [] for other scenarios."""

    async def state(self) -> Any: ...

    async def close(self) -> None: ...


class LocalSession:
    """A session in this process, for tests and for single entries outside a run."""

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
