"""What stops a run from outside: signals, and its own watch. Needs no Ray."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

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
