"""BFCL's environments in a limited process (`ace_ray.sandbox.attempts`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ace_ray.benchmarks.bfcl.tools.environment import InitialState
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, require_allowed
from ace_ray.errors import SandboxLost, UserError
from ace_ray.sandbox import attempts
from ace_ray.sandbox.attempts import Host, Op, host_of
from ace_ray.sandbox.limited import LimitBroken, ProcessLost
from ace_ray.sandbox.protocol import Observation

_HANDLER = "ace_ray.benchmarks.bfcl.tools.child:make"
_VECTORS = "MemoryAPI_vector"
_UNLOGGED = frozenset(["state", "difference", "shared_changed"])
_UNLOGGED_CALLS = frozenset(["dump", "snapshot", "texts"])


def _host(sources: ToolSources, classes: Sequence[str]) -> Host:
    """Raises `UserError` for sources that must not run here."""
    handler = f"{_HANDLER}_with_vectors" if _VECTORS in classes else _HANDLER

    def make() -> Host:
        require_allowed(sources)
        return Host(handler, lambda: [{"sources": asdict(sources)}])

    return host_of(("bfcl", sources.sha256, sources.named, handler), make)


def load_classes(sources: ToolSources, names: Sequence[str]) -> None:
    """Check that the classes load. Raises `UserError` if one does not, or must not."""
    host = _host(sources, names)
    with host.lock:
        try:
            host.process().ask({"load": list(names)})
        except LimitBroken as error:
            raise UserError(
                f"a class does not load: {error}", where=sources.where, fix="give an intact copy"
            ) from error
        except ProcessLost as error:
            raise UserError(
                f"the process of tools does not start ({error})",
                where="data",
                fix="see what it printed above",
            ) from error


class Attempt(attempts.Attempt):
    """Environments of BFCL's classes that live and end together."""

    def __init__(self, sources: ToolSources, classes: Sequence[str]) -> None:
        super().__init__(_host(sources, classes))

    def is_call(self, op: Op) -> bool:
        return _is_call(op)

    def changes(self, op: Op) -> bool:
        return op[0] not in _UNLOGGED and not (op[0] == "call" and op[2] in _UNLOGGED_CALLS)

    def carefully(self, op: Op) -> Any:
        """Run one operation per request, and one call of a step."""
        if op[0] == "call" and op[2] == "step" and len(op[3]["texts"]) > 1:
            singles = [(*op[:3], {"texts": [text]}) for text in op[3]["texts"]]
            return [[self.carefully(single)[0][0] for single in singles], ""]
        return super().carefully(op)

    def broken(self, op: Op, error: LimitBroken) -> Any:
        if op[0] == "difference":
            return f"what takes too much to compare ({error})"
        if op[0] == "state":
            return None  # a model may make one that takes too much to record; its row still counts
        if op[0] == "call" and op[2] == "texts":
            return [[], ""]  # their calls will find no embedding
        if not _is_call(op):
            raise SandboxLost(f"{' '.join(map(str, op[:3:2]))} of a toolbox: {error}")
        self.pay(("broke", op[1]))
        shown = f"Error during execution: {error}"
        return [[shown], ""]


def _is_call(op: Op) -> bool:
    """Tell whether an operation makes one call of a tool."""
    return bool(op[0] == "call" and op[2] == "step" and len(op[3]["texts"]) == 1)


class LimitedEnvironment:
    """An `Environment` in the limited process, as a `Scenario`."""

    def __init__(self, sources: ToolSources, initial_state: InitialState) -> None:
        self._attempt = Attempt(sources, initial_state.classes)
        self._attempt.do([opened("tools", initial_state)])

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        ((value, error),) = self._attempt.do([("call", "tools", name, dict(arguments))])
        return Observation(value, error)

    def state(self) -> Any:
        """Return the recorded state, None if it is too large."""
        return self._attempt.do([("state", "tools")])[0]


def opened(name: str, initial_state: InitialState, *, shared: bool = False) -> Op:
    """Make the operation that opens an environment."""
    given = {
        "names": initial_state.names,
        "initial_config": initial_state.initial_config,
        "long_context": initial_state.long_context,
    }
    return ("open", name, given, shared)


def step(name: str, texts: Sequence[str]) -> Op:
    """Make the operation that runs the calls of a step; its value is (results, "")."""
    return ("call", name, "step", {"texts": list(texts)})
