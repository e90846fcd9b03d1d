"""Run BFCL's environments in a limited process (`ace_ray.sandbox.replayed_environment`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ace_ray.benchmarks.bfcl.tools.environment import InitialState
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, require_allowed
from ace_ray.errors import SandboxLost, UserError
from ace_ray.sandbox import replayed_environment
from ace_ray.sandbox.limited import LimitBroken, ProcessLost
from ace_ray.sandbox.protocol import Observation
from ace_ray.sandbox.replayed_environment import Host, Op, host_of

_HANDLER = "ace_ray.benchmarks.bfcl.tools.child:make"
_VECTORS = "MemoryAPI_vector"
_UNLOGGED = frozenset(["state", "difference", "shared_changed"])
_UNLOGGED_CALLS = frozenset(["dump", "snapshot", "texts"])


def _host(sources: ToolSources, classes: Sequence[str]) -> Host:
    """Return the `Host` for ``classes``. Raises `UserError` if the classes must not run."""
    handler = f"{_HANDLER}_with_vectors" if _VECTORS in classes else _HANDLER

    def make() -> Host:
        require_allowed(sources)
        return Host(handler, lambda: [{"sources": asdict(sources)}])

    return host_of(("bfcl", sources.sha256, sources.named, handler), make)


def load_classes(sources: ToolSources, names: Sequence[str]) -> None:
    """Check that classes load. Raises `UserError` if a class does not load or must not run."""
    host = _host(sources, names)
    with host.lock:
        try:
            host.process().ask({"load": list(names)})
        except LimitBroken as error:
            problem = f"a class does not load: {error}"
            raise UserError(problem, where=sources.location, fix="name an intact copy") from error
        except ProcessLost as error:
            problem = f"the tool process does not start ({error})"
            raise UserError(problem, where="data", fix="see its output above") from error


class Attempt(replayed_environment.Attempt):
    """A group of environments of BFCL's classes that are created and dropped together."""

    def __init__(self, sources: ToolSources, classes: Sequence[str]) -> None:
        super().__init__(_host(sources, classes))

    def is_call(self, op: Op) -> bool:
        """Return whether an operation is a step with one call."""
        return bool(op[0] == "call" and op[2] == "step" and len(op[3]["texts"]) == 1)

    def is_state_change(self, op: Op) -> bool:
        return op[0] not in _UNLOGGED and not (op[0] == "call" and op[2] in _UNLOGGED_CALLS)

    def run_separately(self, op: Op) -> Any:
        """Run ``op`` as a separate request, to find the call that exceeds the limits. A step with
        several calls becomes one request per call."""
        if op[0] == "call" and op[2] == "step" and len(op[3]["texts"]) > 1:
            singles = [(*op[:3], {"texts": [text]}) for text in op[3]["texts"]]
            return [[self.run_separately(single)[0][0] for single in singles], ""]
        return super().run_separately(op)

    def limit_answer(self, op: Op, error: LimitBroken) -> Any:
        if op[0] == "difference":
            return f"a state that is too large to compare ({error})"
        if op[0] == "state":
            return None  # the row still counts if its state is too large to record
        if op[0] == "call" and op[2] == "texts":
            return [[], ""]  # the calls will fail for lack of embeddings
        if not self.is_call(op):
            raise SandboxLost(f"{' '.join(map(str, op[:3:2]))} failed: {error}")
        self.substitute(("broke", op[1]))
        return [[f"Error during execution: {error}"], ""]


class LimitedEnvironment:
    """An `Environment` in the limited process, as a `Scenario`."""

    def __init__(self, sources: ToolSources, initial_state: InitialState) -> None:
        self._attempt = Attempt(sources, initial_state.classes)
        self._attempt.run_ops([open_op("tools", initial_state)])

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        ((value, error),) = self._attempt.run_ops([("call", "tools", name, dict(arguments))])
        return Observation(value, error)

    def state(self) -> Any:
        """Return the state to record, or None if it is too large."""
        return self._attempt.run_ops([("state", "tools")])[0]


def open_op(name: str, initial_state: InitialState, *, shared: bool = False) -> Op:
    """Return the operation that creates an environment."""
    return ("open", name, asdict(initial_state), shared)


def step_op(name: str, texts: Sequence[str]) -> Op:
    """Return the operation that runs a step. Its result is (results, error), with error ""."""
    return ("call", name, "step", {"texts": list(texts)})
