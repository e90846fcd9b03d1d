"""Signals that stop a run, and the command's own process above the driver. Needs no Ray.

The driver is a child in a session of its own. A signal to all processes of the command, as
terminals, ``timeout`` and job managers send it, reaches the driver alone, and once: Ray's processes
would take it as their end, and that of the rows in flight. And an end that the driver did not
choose (Ray ends one whose raylet or GCS is gone from its own C++ code, with exit code 1; the kernel
ends one for its memory) is told from a failure.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from ace_ray.errors import INCOMPLETE
from ace_ray.util import log

_PR_SET_PDEATHSIG = 1
_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_RAISED = "raised"


REMIND_S = 30.0
ONCE_S = 1.0
"""Within which signals are one: sent to all processes that bear the command's name, it comes to the
driver directly, and once more by way of the command."""


class Interrupts:
    """Turns the first SIGINT or SIGTERM into a wish to stop, and any further one into an end.

    Works from the main thread only; elsewhere signals stay as they are.
    """

    def __init__(self) -> None:
        self.asked = False
        self.drainable = False
        """Whether rows are being evaluated, which can come to an orderly end."""
        self._abort: BaseException | None = None
        self._woken_at = 0.0
        self._asked_at = 0.0
        self._main = threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def install(self) -> None:
        """Take the signals; again after Ray has taken them at its start."""
        if not self._main:
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.signal(number, self._handle)
            self._before.setdefault(number, handler)

    def abort(self, error: BaseException) -> None:
        """Raise ``error`` in the main thread. Called from another one."""
        if self._abort is None:
            self._abort = error
            self._wake()

    def remind(self) -> None:
        """Raise it again if that was long ago: code in between may have caught it."""
        if self._abort is not None and time.monotonic() - self._woken_at > REMIND_S:
            self._wake()

    def settle(self) -> None:
        """The end of what `abort` ends: raise what it was given where no signal could."""
        error, self._abort = self._abort, None
        if error is not None:
            raise error

    def forget(self) -> None:
        """The end of what `abort` ends, by another error."""
        self._abort = None

    def _wake(self) -> None:
        self._woken_at = time.monotonic()
        if self._main:
            # A real signal: it also wakes a main thread that waits.
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._abort is not None:
            raise self._abort
        if self.asked and time.monotonic() - self._asked_at < ONCE_S:
            return
        first, self.asked, self._asked_at = not self.asked, True, time.monotonic()
        if not (first and self.drainable):
            raise KeyboardInterrupt


def supervised(work: Callable[[], int]) -> int:
    """What ``work`` returns, an exit code, done in a child process.

    In the child this returns and raises what ``work`` does. In the command's process it returns the
    child's exit code, `INCOMPLETE` where the child was ended from outside. No other thread may
    have been started. Off Linux, and off the main thread, ``work`` is done right here.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    told, tell = os.pipe()
    # None may come before there is a child to pass it on to.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child == 0:
        os.close(told)
        os.setsid()
        die_with(parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        return _telling(work, tell)
    os.close(tell)
    return _waited_for(child, told)


def die_with(parent: int) -> None:
    """Be killed when ``parent`` is, however that ends. Linux only; elsewhere this outlives it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(INCOMPLETE)


def _telling(work: Callable[[], int], tell: int) -> int:
    outcome = _RAISED
    try:
        code = work()
        outcome = str(code)
    finally:
        os.write(tell, outcome.encode())
        os.close(tell)
    return code


def _waited_for(child: int, told: int) -> int:
    def pass_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    try:
        _, status = os.waitpid(child, 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with os.fdopen(told) as pipe:
        outcome = pipe.read()
    code = os.waitstatus_to_exitcode(status)
    if outcome.isdigit():  # whatever became of it afterwards
        return int(outcome)
    if outcome == _RAISED and code >= 0:
        return code
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    log.fail(f"the driver was ended ({how}); the same command continues this run")
    return INCOMPLETE
