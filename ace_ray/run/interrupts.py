"""What stops a run from outside: signals, and its own watch. Needs no Ray."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class RunFailed(Exception):
    """The run ended before its rows did. One line; details are in Ray's logs.

    ``resumable``: the same command may well get further later; ``again``: even now.
    """

    def __init__(self, line: str, *, resumable: bool = False, again: bool = False) -> None:
        self.resumable, self.again = resumable, again
        super().__init__(line)


class Interrupts:
    """Turns the first SIGINT or SIGTERM into a wish to stop, and any further one into an end.

    Works from the main thread only; elsewhere signals stay as they are.
    """

    def __init__(self) -> None:
        self.asked = False
        self.drainable = False
        """Whether rows are being evaluated, which can come to an orderly end."""
        self._abort: BaseException | None = None
        self._main = threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def install(self) -> None:
        """Take the signals, for a new pass: again after Ray has taken them at its start."""
        self._abort = None
        if not self._main:
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.signal(number, self._handle)
            self._before.setdefault(number, handler)

    def abort(self, error: BaseException) -> None:
        """Raise ``error`` in the main thread. Called from another one."""
        if self._abort is None:
            self._abort = error
            if self._main:
                # A real signal: it also wakes a main thread that waits.
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGINT)

    def settle(self) -> None:
        """Raise what `abort` was given where no signal could."""
        if self._abort is not None:
            raise self._abort

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._abort is not None:
            raise self._abort
        if self.asked or not self.drainable:
            self.asked = True
            raise KeyboardInterrupt
        self.asked = True
