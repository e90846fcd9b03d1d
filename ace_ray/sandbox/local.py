"""A session in this process: for tests, and to evaluate one entry outside a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.sandbox.protocol import Observation, Recalling, Scenario


class LocalSession:
    """A `Session` around a scenario, without Ray."""

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
