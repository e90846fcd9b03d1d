"""Handle signals that stop a run, and supervise the driver from the command's own process.

The command's process starts the driver as a child process in a session of its own. Terminals,
``timeout`` and job managers send a signal to all processes of a command. If Ray's processes
received the signal, they would end, and the rows in flight would be lost. So the command's process
passes it on to the driver only. The command's process also reports a driver that was killed, for
example by the kernel, or by Ray's C++ code (exit code 1) because the raylet or the GCS is gone."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from ace_ray.errors import INCOMPLETE
from ace_ray.util import log

_PR_SET_PDEATHSIG = 1
_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_RAISED = "raised"


TIME_LIMIT = "the time limit was reached before an engine was ready"
REMIND_S = 30.0
# Signals within this time count as one. A signal to all processes with the command's name reaches
# the driver twice: directly, and through the command's process.
ONCE_S = 1.0


class Interrupts:
    """Handles SIGINT and SIGTERM. While rows are evaluated (``drainable``), the first signal lets
    rows in flight end. The second signal, and any signal at other times, ends the run at once.

    Works only in the main thread; in other threads it does not change the handlers."""

    def __init__(self) -> None:
        self.is_interrupted = False
        # Whether rows are being evaluated, so that a stop can wait for rows in flight.
        self.drainable = False
        self._abort: BaseException | None = None
        self._woken_at = 0.0
        self._signal_at = 0.0
        self._timer = threading.Timer(0.0, self._interrupt_main)
        self._main = threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def install(self) -> None:
        """Install the handlers. Call this again after Ray's start, which replaces the handlers."""
        if not self._main:
            return
        for number in _PASSED_ON:
            handler = signal.signal(number, self._handle)
            self._before.setdefault(number, handler)

    def abort(self, error: BaseException) -> None:
        """Raise ``error`` in the main thread. Call it from another thread."""
        if self._abort is None:
            self._abort = error
            self._interrupt_main()

    def abort_at(self, end: float | None) -> None:
        """End the run with a `KeyboardInterrupt` at the time ``end`` (seconds of `time.monotonic`).
        A later call replaces the time; None removes it."""
        self._timer.cancel()
        if end is not None:
            stop, wait_s = KeyboardInterrupt(TIME_LIMIT), max(0.0, end - time.monotonic())
            self._timer = threading.Timer(wait_s, self.abort, [stop])
            self._timer.daemon = True
            self._timer.start()

    def repeat_abort(self) -> None:
        """Raise the error of `abort` again after `REMIND_S`, in case other code has caught it."""
        if self._abort is not None and time.monotonic() - self._woken_at > REMIND_S:
            self._interrupt_main()

    def raise_pending(self) -> None:
        """Raise the error of `abort`, if any. Call it if the work has ended without this error."""
        error, self._abort = self._abort, None
        if error is not None:
            raise error

    def cancel_abort(self) -> None:
        """Drop the error of `abort`, so that it is not raised after the work has ended."""
        self._timer.cancel()
        self._abort = None

    def _interrupt_main(self) -> None:
        self._woken_at = time.monotonic()
        if self._main:
            # Only a real signal interrupts a main thread that waits.
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._abort is not None:
            raise self._abort
        if self.is_interrupted and time.monotonic() - self._signal_at < ONCE_S:
            return
        first, self.is_interrupted = not self.is_interrupted, True
        self._signal_at = time.monotonic()
        if not (first and self.drainable):
            raise KeyboardInterrupt


@contextmanager
def signals_to(ask: Callable[[int], None]) -> Iterator[None]:
    """On each SIGINT or SIGTERM in this context, call ``ask`` with the signal's number.

    Has no effect outside the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = _PASSED_ON if is_main else ()
    before = {number: signal.signal(number, lambda n, frame: ask(n)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_supervised(work: Callable[[], int]) -> int:
    """Run ``work`` in a child process. This function returns in both processes.

    In the child it returns the result of ``work``, or raises its exception. In the command's
    process it returns the child's exit code, or `INCOMPLETE` if the child was killed. Call it
    before any thread starts. On other systems than Linux, and outside the main thread, it runs
    ``work`` without a child."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    source, sink = os.pipe()
    # Block signals until the child exists and can receive them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child == 0:
        os.close(source)
        os.setsid()
        die_with(parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        outcome = _RAISED
        try:
            code = work()
            outcome = str(code)
        finally:
            os.write(sink, outcome.encode())
            os.close(sink)
        return code
    os.close(sink)
    return _supervise_child(child, source)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when ``parent`` ends. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(INCOMPLETE)


def _supervise_child(child: int, source: int) -> int:
    def forward_signal(number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    with signals_to(forward_signal):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        _, status = os.waitpid(child, 0)
    with os.fdopen(source) as pipe:
        outcome = pipe.read()
    code = os.waitstatus_to_exitcode(status)
    if outcome.isdigit():  # the code is valid even if the child was killed afterwards
        return int(outcome)
    if outcome == _RAISED and code >= 0:
        return code
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    log.fail(f"the driver ended ({how}); the same command continues this run")
    return INCOMPLETE
