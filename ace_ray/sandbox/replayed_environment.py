"""Run environments in a limited process: the kernel limits the time and memory of a call.

Each ace_ray process has one limited process per kind of environment. An `Attempt` is a group of
environments for an episode or a check. All attempts share the limited process. An attempt keeps a
log of its operations. If the limited process ends, a new process replays the log. A call that
exceeds the limits has no effect and returns an error. `Attempt.substitute` may log another
operation in place of such a call."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from ace_ray.errors import SandboxLost
from ace_ray.sandbox.limited import LimitBroken, LimitedProcess, ProcessLost

# Maximum attempts to run a request, each in a new process, before its row fails.
TRIES = 3

# An operation for the handler in the limited process: its name and arguments.
Op = tuple[Any, ...]


class Host:
    """The limited process for one kind of environment, started on demand.

    Args:
        handler: handler of the `LimitedProcess`. For a request {"attempt": number, "ops": [...],
            "forget": [number, ...]} it returns one value per operation in "ops".
        hello: returns the first requests to a new process."""

    def __init__(self, handler: str, hello: Callable[[], Iterable[Any]]) -> None:
        self._handler, self._hello = handler, hello
        self._process: LimitedProcess | None = None
        self._gone: list[int] = []
        self.lock = threading.RLock()

    def process(self) -> LimitedProcess:
        """Return the process, started if needed. Raises the errors of `LimitedProcess.ask`."""
        if self._process is None or not self._process.is_alive:
            self._process = LimitedProcess(self._handler)
            self._gone.clear()
            for request in self._hello():
                self._process.ask(request)
        return self._process

    def ask(self, attempt: int, ops: Sequence[Op]) -> list[Any]:
        gone, self._gone = self._gone, []
        answers: list[Any] = self.process().ask({"attempt": attempt, "ops": ops, "forget": gone})
        return answers

    def forget(self, attempt: int) -> None:
        self._gone.append(attempt)  # sent with the next request

    def end(self) -> None:
        if self._process is not None:
            self._process.end()


_HOSTS: dict[tuple[Hashable, int], Host] = {}
_LOCK = threading.Lock()


def host_of(key: Hashable, make: Callable[[], Host]) -> Host:
    """Return the host for ``key`` in this process. The first call creates it with ``make``."""
    host_key = (key, os.getpid())
    with _LOCK:
        if host_key not in _HOSTS:
            _HOSTS[host_key] = make()
        return _HOSTS[host_key]


@atexit.register
def end_processes() -> None:
    """End all limited processes that this process has started. They restart on demand."""
    for host in _HOSTS.values():
        host.end()


class Attempt:
    """Environments that are created and dropped together, with a log that restores their state.

    A subclass for a kind of environment defines which operations are calls, which operations change
    state, and the answer to a call that exceeds the limits."""

    _numbers = itertools.count(1)

    def __init__(self, host: Host) -> None:
        self._host = host
        self._number = next(self._numbers)
        self._log: list[Op] = []
        self._restored: LimitedProcess | None = None
        """The process that has the state of the log."""
        weakref.finalize(self, self._host.forget, self._number)

    def is_call(self, op: Op) -> bool:
        """Return whether ``op`` is exactly one tool call."""
        raise NotImplementedError

    def is_state_change(self, op: Op) -> bool:
        """Return whether ``op`` changes state, so that it must be logged."""
        raise NotImplementedError

    def limit_answer(self, op: Op, error: LimitBroken) -> Any:
        """Return an answer to ``op``, which exceeded the limits. May call `substitute`. Raises
        `SandboxLost` if the subclass defines no such answer for this kind of operation."""
        raise NotImplementedError

    def run_ops(self, ops: Sequence[Op]) -> list[Any]:
        """Run operations and return their answers. Raises `SandboxLost` if the process ends again
        and again, and `UserError` if the handler raises it."""
        with self._host.lock:
            try:
                answers = self.ask(ops)
            except LimitBroken as error:
                # Other attempts may have used the memory. A new process has only this attempt.
                if error.time and len(ops) == 1 and self.is_call(ops[0]):
                    return [self.limit_answer(ops[0], error)]
                self._host.end()
                return [self.run_separately(op) for op in ops]
            self._log += filter(self.is_state_change, ops)
            return answers

    def run_separately(self, op: Op) -> Any:
        """Run ``op`` as a separate request, to find the operation that exceeds the limits."""
        try:
            (answer,) = self.ask([op])
        except LimitBroken as error:
            return self.limit_answer(op, error)
        self._log += filter(self.is_state_change, [op])
        return answer

    def substitute(self, op: Op) -> None:
        """Run and log ``op`` instead of an operation that exceeded the limits."""
        self.ask([op])
        self._log.append(op)

    def ask(self, ops: Sequence[Op]) -> list[Any]:
        """Run operations without logging them. Raises `LimitBroken` if they exceed the limits, and
        `SandboxLost` if the process ends for another reason `TRIES` times."""
        failure: Exception | None = None
        for _ in range(TRIES):
            try:
                self._restore()
            except (LimitBroken, ProcessLost) as error:  # retry: the log is within the limits
                failure = error
                continue
            try:
                return self._host.ask(self._number, ops)
            except ProcessLost as error:
                failure = error
        raise SandboxLost(f"the tool process was lost {TRIES} times ({failure})")

    def _restore(self) -> None:
        """Replay the log if the process is new."""
        process = self._host.process()
        if process is not self._restored:
            for op in self._log:
                self._host.ask(self._number, [op])
            self._restored = process
