"""Environments in a limited process: what a call may take is bounded by the kernel.

One process of ours has one such process for each kind of environment, warm and shared by all
attempts. An attempt keeps the log of its operations. When the process is gone, whichever call ended
it, a fresh one replays the log. A call that breaks the limits takes no effect and is answered with
an error, in an episode as in a check; in the log its place is taken by what it costs.
"""

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

TRIES = 3
"""Fresh processes that a request may lose before its row counts as failed."""

Op = tuple[Any, ...]
"""The name of an operation and its arguments, as the process's handler knows them."""


class Host:
    """The process for one kind of environment, started when it is needed.

    Args:
        handler: as of `LimitedProcess`; it answers {"attempt": number, "ops": [...], "forget":
            [number, ...]} with one value an operation.
        hello: the requests that a fresh process is sent first.
    """

    def __init__(self, handler: str, hello: Callable[[], Iterable[Any]]) -> None:
        self._handler, self._hello = handler, hello
        self._process: LimitedProcess | None = None
        self._gone: list[int] = []
        self.lock = threading.RLock()

    def process(self) -> LimitedProcess:
        """A live process that has been greeted. Raises as `LimitedProcess.ask`."""
        if self._process is None or not self._process.alive:
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
        self._gone.append(attempt)  # with the next request

    def end(self) -> None:
        if self._process is not None:
            self._process.end()


_HOSTS: dict[tuple[Hashable, int], Host] = {}
_LOCK = threading.Lock()


def host_of(key: Hashable, make: Callable[[], Host]) -> Host:
    """The host of ``key`` in this process, made at the first call. Raises what ``make`` raises."""
    place = (key, os.getpid())
    with _LOCK:
        if place not in _HOSTS:
            _HOSTS[place] = make()
        return _HOSTS[place]


@atexit.register
def end_processes() -> None:
    """End the processes that this one has started; what needs one again starts it."""
    for host in _HOSTS.values():
        host.end()


class Attempt:
    """Environments that live and end together. Deterministic: the log makes them again.

    A kind of environment says in a subclass which operations make calls, which change something,
    and what a call that breaks the limits is answered.
    """

    _numbers = itertools.count(1)

    def __init__(self, host: Host) -> None:
        self._host = host
        self._number = next(self._numbers)
        self._log: list[Op] = []
        self._serial = 0
        weakref.finalize(self, self._host.forget, self._number)

    def is_call(self, op: Op) -> bool:
        """Whether it makes one call of a tool, and nothing else."""
        raise NotImplementedError

    def changes(self, op: Op) -> bool:
        """Whether the log needs it."""
        raise NotImplementedError

    def broken(self, op: Op, error: LimitBroken) -> Any:
        """What the operation answers that has broken the limits. May `pay`. Raises `SandboxLost`
        where nothing can."""
        raise NotImplementedError

    def do(self, ops: Sequence[Op]) -> list[Any]:
        """What the operations answer. Raises `SandboxLost`, and `UserError` as the handler does."""
        with self._host.lock:
            try:
                answers = self.ask(ops)
            except LimitBroken as error:
                # Other attempts may use the memory of the process; a fresh one has no others.
                if error.time and len(ops) == 1 and self.is_call(ops[0]):
                    return [self.broken(ops[0], error)]
                self._host.end()
                return [self.carefully(op) for op in ops]
            self._log += filter(self.changes, ops)
            return answers

    def carefully(self, op: Op) -> Any:
        """One operation a request, to know which breaks the limits."""
        try:
            (answer,) = self.ask([op])
        except LimitBroken as error:
            return self.broken(op, error)
        self._log += filter(self.changes, [op])
        return answer

    def pay(self, op: Op) -> None:
        """Put ``op`` in the place of one that has broken the limits."""
        self.ask([op])
        self._log.append(op)

    def ask(self, ops: Sequence[Op]) -> list[Any]:
        """What the operations answer; nothing is logged. Raises `LimitBroken`, `SandboxLost`."""
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
        serial = self._host.process().serial
        if serial == self._serial:
            return
        for op in self._log:
            self._host.ask(self._number, [op])
        self._serial = serial
