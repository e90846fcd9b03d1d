"""Protocols of a sandbox, which runs declared tools on the state of one episode.

A `Scenario` is plain Python: synchronous and deterministic, without clock, randomness or I/O. So
replaying its calls restores its state after a crash. An episode uses its scenario through a
`Session`. The scenario is in this process or in a sandbox actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Observation:
    """The answer to a call. ``value`` is a JSON value, or the message of an error.

    ``error`` is "" or the kind of the error. ``unknown_tool``: the tool is not declared.
    ``bad_arguments``: missing, unknown or mistyped arguments; the tool did not run. ``failed``: the
    tool raised an exception, since it reproduces a faulty original."""

    value: Any
    error: str = ""


class Scenario(Protocol):
    """The tools and the state of one episode."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one declared tool. Does not raise an exception, whatever the model requests."""

    def state(self) -> Any:
        """Return a copy of the recorded state, as JSON values."""


@runtime_checkable
class RecallScenario(Protocol):
    """A scenario in which a call may change what the same call, made again, returns."""

    def newest_answers(self, last: int) -> list[Any]:
        """Return the newest answers that are not errors, at most ``last``, in their present form.
        The list is shorter if the scenario has dropped old answers."""


class Session(Protocol):
    """One open episode. Methods raise `SandboxLost` if the episode cannot continue."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation: ...

    async def newest_answers(self, last: int) -> list[Any]:
        """Return the scenario's newest answers, at most ``last``; [] if the scenario is not a
        `RecallScenario`."""

    async def state(self) -> Any: ...

    async def close(self) -> None: ...


class LocalSession:
    """A session in this process, for tests and for single entries outside a run."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        return self._scenario.call(name, arguments)

    async def newest_answers(self, last: int) -> list[Any]:
        scenario = self._scenario
        return scenario.newest_answers(last) if isinstance(scenario, RecallScenario) else []

    async def state(self) -> Any:
        return self._scenario.state()

    async def close(self) -> None:
        return None
