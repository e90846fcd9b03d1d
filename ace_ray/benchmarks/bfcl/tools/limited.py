"""Environments in a limited process: what a call may take is bounded by the kernel.

One process of ours has one such process for each set of classes, warm and shared by all attempts.
An attempt keeps the log of its operations. When the process is gone, whichever call ended it, a
fresh one replays the log. A call that breaks the limits takes no effect and is answered with an
error, in an episode as in a check; in the log its place is taken by its cost.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ace_ray.benchmarks.bfcl.tools.environment import InitialState
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, require_allowed
from ace_ray.errors import SandboxLost, UserError
from ace_ray.sandbox.limited import LimitBroken, LimitedProcess, ProcessLost
from ace_ray.sandbox.protocol import Observation

TRIES = 3
"""Fresh processes that a request may lose before its row counts as failed."""

Op = tuple[Any, ...]
"""The name of an operation and its arguments, see `ace_ray.benchmarks.bfcl.tools.child`."""

_HANDLER = "ace_ray.benchmarks.bfcl.tools.child:make"
_VECTORS = "MemoryAPI_vector"
_UNLOGGED = frozenset(["state", "difference", "shared_changed"])
_UNLOGGED_CALLS = frozenset(["dump", "snapshot", "texts"])


class _Host:
    """The process for one set of sources, started when it is needed."""

    def __init__(self, sources: ToolSources, handler: str) -> None:
        self._sources, self._handler = sources, handler
        self._process: LimitedProcess | None = None
        self._gone: list[int] = []
        self.lock = threading.RLock()

    def process(self, *, newcomer: bool = False) -> LimitedProcess:
        """A live process that knows the sources; for a ``newcomer`` one that has not grown large.
        Raises as `LimitedProcess.ask`."""
        if newcomer and self._process is not None and self._process.heavy:
            self._process.end()
        if self._process is None or not self._process.alive:
            self._process = LimitedProcess(self._handler)
            self._gone.clear()
            self._process.ask({"sources": asdict(self._sources)})
        return self._process

    def ask(self, attempt: int, ops: Sequence[Op]) -> list[Any]:
        gone, self._gone = self._gone, []
        answers: list[Any] = self.process().ask({"attempt": attempt, "ops": ops, "forget": gone})
        return answers

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.alive else None

    def forget(self, attempt: int) -> None:
        self._gone.append(attempt)  # with the next request

    def end(self) -> None:
        if self._process is not None:
            self._process.end()


_HOSTS: dict[tuple[str, bool, str, int], _Host] = {}
_LOCK = threading.Lock()


@atexit.register
def end_processes() -> None:
    """End the processes that this one has started; what needs one again starts it."""
    for host in _HOSTS.values():
        host.end()


def processes() -> list[int]:
    """The ids of those that live."""
    pids = [host.pid for host in _HOSTS.values()]
    return [pid for pid in pids if pid is not None]


def _host(sources: ToolSources, classes: Sequence[str]) -> _Host:
    """Raises `UserError` for sources that must not run here."""
    handler = f"{_HANDLER}_with_vectors" if _VECTORS in classes else _HANDLER
    key = (sources.sha256, sources.named, handler, os.getpid())
    with _LOCK:
        if key not in _HOSTS:
            require_allowed(sources)
            _HOSTS[key] = _Host(sources, handler)
        return _HOSTS[key]


def load_classes(sources: ToolSources, names: Sequence[str]) -> None:
    """Find out whether the classes load. Raises `UserError`: one does not, or must not."""
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


class Attempt:
    """Environments that live and end together. Deterministic: the log makes them again."""

    _numbers = itertools.count(1)

    def __init__(self, sources: ToolSources, classes: Sequence[str]) -> None:
        self._host = _host(sources, classes)
        self._number = next(self._numbers)
        self._log: list[Op] = []
        self._serial = 0
        weakref.finalize(self, self._host.forget, self._number)

    def do(self, ops: Sequence[Op]) -> list[Any]:
        """What the operations answer. Raises `SandboxLost`; `UserError` as `open_environment`."""
        with self._host.lock:
            try:
                answers = self._ask(ops)
            except LimitBroken as error:
                # Other attempts may use the memory of the process; a fresh one has no others.
                if error.time and len(ops) == 1 and _is_call(ops[0]):
                    return [self._broken(ops[0], error)]
                self._host.end()
                return [self._carefully(op) for op in ops]
            self._log += filter(_changes, ops)
            return answers

    def _carefully(self, op: Op) -> Any:
        """One operation, and of a step one call, a request, to know which breaks the limits."""
        if op[0] == "call" and op[2] == "step" and len(op[3]["texts"]) > 1:
            singles = [(*op[:3], {"texts": [text]}) for text in op[3]["texts"]]
            return [[self._carefully(single)[0][0] for single in singles], ""]
        try:
            (answer,) = self._ask([op])
        except LimitBroken as error:
            return self._broken(op, error)
        self._log += filter(_changes, [op])
        return answer

    def _broken(self, op: Op, error: LimitBroken) -> Any:
        if op[0] == "difference":
            return f"what takes too much to compare ({error})"
        if op[0] == "state":
            return None  # a model may make one that takes too much to record; its row still counts
        if op[0] == "call" and op[2] == "texts":
            return [[], ""]  # their calls will find no embedding
        if not _is_call(op):
            raise SandboxLost(f"{' '.join(map(str, op[:3:2]))} of a toolbox: {error}")
        text = op[3]["text"] if op[2] == "execute" else op[3]["texts"][0]
        paid = ("broke", op[1], len(text))
        self._ask([paid])
        self._log.append(paid)
        shown = f"Error during execution: {error}"
        return [shown if op[2] == "execute" else [shown], ""]

    def _ask(self, ops: Sequence[Op]) -> list[Any]:
        failure: Exception | None = None
        for _ in range(TRIES):
            try:
                self._restore()
            except (LimitBroken, ProcessLost) as error:  # what has passed once breaks no limit
                failure = error
                continue
            try:
                return self._host.ask(self._number, ops)
            except ProcessLost as error:
                failure = error
        raise SandboxLost(f"the process of tools was lost {TRIES} times ({failure})")

    def _restore(self) -> None:
        """Make the environments again where the process is another one than before."""
        if self._host.process().serial == self._serial:
            return
        serial = self._host.process(newcomer=True).serial
        for op in self._log:
            self._host.ask(self._number, [op])
        self._serial = serial


def _is_call(op: Op) -> bool:
    """Whether it makes one call of a tool."""
    if op[0] != "call":
        return False
    return op[2] == "execute" or (op[2] == "step" and len(op[3]["texts"]) == 1)


def _changes(op: Op) -> bool:
    return op[0] not in _UNLOGGED and not (op[0] == "call" and op[2] in _UNLOGGED_CALLS)


class LimitedEnvironment:
    """A `Environment` in the limited process, as a `Scenario`."""

    def __init__(self, sources: ToolSources, initial_state: InitialState) -> None:
        self._attempt = Attempt(sources, initial_state.classes)
        self._attempt.do([opened("tools", initial_state)])

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        ((value, error),) = self._attempt.do([("call", "tools", name, dict(arguments))])
        return Observation(value, error)

    def state(self) -> Any:
        """None where it takes too much to record."""
        return self._attempt.do([("state", "tools")])[0]


def opened(name: str, initial_state: InitialState, *, shared: bool = False) -> Op:
    """The operation that opens an environment."""
    given = {
        "names": initial_state.names,
        "initial_config": initial_state.initial_config,
        "long_context": initial_state.long_context,
    }
    return ("open", name, given, shared)


def step(name: str, texts: Sequence[str]) -> Op:
    """The operation that makes the calls of a step; its value is (results, "")."""
    return ("call", name, "step", {"texts": list(texts)})
