"""Handle requests in the process that runs the tool classes (`ace_ray.sandbox.limited_child`).

The classes come from the user's copy of bfcl-eval and run only in this process. The process keeps
the environments of many attempts. An attempt's environments are created and dropped together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ace_ray.benchmarks.bfcl.tools.environment import (
    Environment,
    InitialState,
    Shared,
    difference,
    has_shared_changes,
    open_environment,
)
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, load_class
from ace_ray.benchmarks.bfcl.tools.standins import NAMES
from ace_ray.sandbox.limited_child import call_limits

# Modules that Python would otherwise import during a call, when files cannot be opened any more.
_LATE = ("_strptime", "encodings.idna", "linecache", "locale", "mpmath.ctx_mp")


@dataclass
class _Attempt:
    environments: dict[str, Environment] = field(default_factory=dict)
    shared: Shared = field(default_factory=dict)


class Tools:
    """Handles three requests. {"sources": ...} sets the sources. {"load": [class, ...]} loads
    classes. {"attempt": number, "ops": [...], "forget": [number, ...]} drops the attempts in
    "forget", and returns the result of each operation in "ops" (methods `op_*`)."""

    def __init__(self) -> None:
        self._sources = ToolSources()
        self._attempts: dict[int, _Attempt] = {}

    def __call__(self, request: Mapping[str, Any]) -> Any:
        if "sources" in request:
            self._sources = ToolSources(**request["sources"])
            return None
        if "load" in request:
            for name in request["load"]:
                with call_limits():
                    load_class(self._sources, name)
            return None
        for number in request["forget"]:
            self._attempts.pop(number, None)
        attempt = self._attempts.setdefault(request["attempt"], _Attempt())
        # The limits apply to all operations together. If they are exceeded, the caller sends the
        # operations again one by one.
        with call_limits():
            return [_OPERATIONS[op[0]](self, attempt, *op[1:]) for op in request["ops"]]

    def op_open(
        self, attempt: _Attempt, name: str, initial_state: Mapping[str, Any], shared: bool
    ) -> None:
        """Create the environment ``name``. ``shared``: share objects with the other environments of
        the attempt (see `Shared`)."""
        state = InitialState(**initial_state)
        memo = attempt.shared if shared else None
        attempt.environments[name] = open_environment(self._sources, state, memo)

    def op_call(
        self, attempt: _Attempt, name: str, call: str, arguments: Mapping[str, Any]
    ) -> list[Any]:
        """Pass a call to the environment ``name``. Return [value, error] of its observation."""
        observation = attempt.environments[name].call(call, arguments)
        return [observation.value, observation.error]

    def op_broke(self, attempt: _Attempt, name: str) -> None:
        """Charge CPU time to the environment ``name`` for a call that exceeded a limit."""
        attempt.environments[name].charge_call()

    def op_state(self, attempt: _Attempt, name: str) -> Any:
        return attempt.environments[name].state()

    def op_difference(self, attempt: _Attempt, ours: str, theirs: str) -> str:
        boxes = attempt.environments
        return difference(boxes[ours].instances, boxes[theirs].instances)

    def op_shared_changed(self, attempt: _Attempt) -> bool:
        return has_shared_changes(attempt.shared)


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    name.removeprefix("op_"): member for name, member in vars(Tools).items() if name[:3] == "op_"
}


def make() -> Tools:
    """Return the handler for `ace_ray.sandbox.limited_child.main`."""
    for name in (*NAMES, *_LATE):
        if name == "numpy":
            continue
        with suppress(ImportError):  # load_class reports a missing mpmath
            import_module(name)
    return Tools()


def make_with_vectors() -> Tools:
    """Return a handler that supports vector memories. It imports numpy, which takes long."""
    import_module("numpy")
    return make()
