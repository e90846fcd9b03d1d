"""Why an engine could not start: the root cause, out of what it and its processes printed.

vLLM's engine core and its workers are processes of their own. The one that asked for them learns
"Engine core initialization failed. See root cause above" and no more; the cause is a traceback
among what the others print, each line behind a prefix, and further errors follow from it.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from ace_ray.util.sanitizing import printed

MOST_BYTES = 1 << 20
"""Kept of what is printed during a start: the last of it."""
DRAIN_S = 5.0
"""Longest wait for what was printed before a start ended; a full log may take no more."""
LONGEST = 600
"""Characters of a cause."""

_MESSAGE_LINES = 8
"""Most lines of one error's message that are read."""
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
# Of vLLM's log, level and place included, or of Ray's: (EngineCore pid=12) ERROR 11-24 ...
_PREFIX = re.compile(
    r"\((?:Ray)?([\w.:\[\] -]{1,80}) pid=\d{1,10}(?:, ip=[\w.:-]{1,64})?\)"
    r"( [A-Z]{4,8} \d\d-\d\d [\d:]{8} \[[^\]\n]{1,200}\])? ?"
)
_BETWEEN = "During handling of the above exception"
_MILD = re.compile(r" (?:DEBUG|INFO|WARNING) ")
_ERROR = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit)(?::|\Z)")
_PYDANTIC = re.compile(r"(?:Value|Assertion) error, (.*?)(?: \[type=|\Z)")
_CODE = re.compile(r"'(\w{1,80})': (-?\d{1,5})")
_WRAPPERS = (
    "See root cause above",
    "See stack trace",
    "initialization failed due to",
    "failed to start",
    "EngineCore encountered an issue",
    "EngineDeadError",
    "SystemExit",
    "KeyboardInterrupt",
    "CancelledError",
    "RayTaskError",
    "ActorDiedError",
    "RayActorError",
)
"""Of errors that only say that another process had one."""


def root_cause(text: str, error: BaseException) -> str:
    """One line, bounded and without secrets: why an engine is not there.

    ``error`` is what the process that asked for the engine met, ``text`` what all of them printed.
    """
    met = f"{type(error).__name__}: {error}"
    if not _is_wrapper(met):
        return _shown(met)
    if cause := first_error(text):
        return cause
    ended = ", ".join(f"{name} {_ended(int(code))}" for name, code in _CODE.findall(met))
    return _shown(f"{ended or 'its process ended'}, without an error; it said last: {tail(text)}")


def first_error(text: str) -> str:
    """Find the first error in ``text`` that is not the consequence of another one, of a worker if
    one had any. One line; "" for none."""
    lines = [_parted(line) for line in _COLOURS.sub("", text).splitlines()]
    found: dict[str, list[str]] = {}
    for at, (process, head, line) in enumerate(lines):
        causes = found.setdefault(process, [])
        if line.startswith(_BETWEEN) and causes:
            causes.pop()  # of errors while another was handled the last one counts
        if not _ERROR.match(line) or _is_wrapper(line) or _MILD.search(head):
            continue
        message = [line]
        for _, other, rest in lines[at + 1 : at + _MESSAGE_LINES]:
            if other != head or not rest.strip() or rest.startswith("Traceback"):
                break
            message.append(rest)
        causes.append(" ".join(message))
    of_workers = [cause for name in found if name.startswith("Worker") for cause in found[name]]
    every = of_workers + [cause for causes in found.values() for cause in causes]
    return _shown(next(iter(every), ""))


def tail(text: str, most: int = 4) -> str:
    """The last lines of a log on one line."""
    plain = [_parted(line)[2] for line in _COLOURS.sub("", text).splitlines()]
    lines = [" ".join(line.split())[:300] for line in plain if line.strip()]
    return printed(" | ".join(lines[-most:])) or "it printed nothing"


def _parted(line: str) -> tuple[str, str, str]:
    """(process, prefix, the rest) of a line of a log."""
    match = _PREFIX.match(line)
    return (match[1], match[0], line[match.end() :]) if match else ("", "", line)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}" + " (is memory short?)" * (-code == signal.SIGKILL)


def _shown(cause: str) -> str:
    """``cause`` with what pydantic wraps around a message left out."""
    if validated := _PYDANTIC.search(" ".join(cause.split())):
        cause = validated[1]
    return " ".join(printed(cause, LONGEST).split())


def _is_wrapper(cause: str) -> bool:
    return any(mark in cause for mark in _WRAPPERS)


class OutputCapture:
    """What this process and the children it starts print, while it goes where it went before.

    A context: what was printed within is `text` if an exception ended it. Children keep printing
    through this process for as long as they live. ``read`` gets what is printed within, chunk by
    chunk, under a lock; it must not raise.
    """

    def __init__(self, read: Callable[[bytes], object] = lambda chunk: None) -> None:
        self._read = read
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._open = True
        self._left = threading.Event()
        self._lock = threading.Lock()
        self._pipes: list[tuple[int, int, int]] = []
        """Of each: the descriptor, what it was, and where it is read."""

    def __enter__(self) -> OutputCapture:
        _flush()
        for descriptor in (1, 2):
            source, sink = os.pipe()
            before = os.dup(descriptor)
            os.dup2(sink, descriptor)
            os.close(sink)
            self._pipes.append((descriptor, before, source))
            threading.Thread(
                target=self._pass_on, args=(source, os.dup(before)), daemon=True
            ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _flush()
        until = time.monotonic() + DRAIN_S
        for descriptor, before, source in self._pipes:
            os.dup2(before, descriptor)
            os.close(before)
            # What lies in the pipe was printed within. Its end comes only with the last child's.
            while self._waiting(source) and time.monotonic() < until:
                time.sleep(0.001)
        with self._lock:
            self._open = False
            if kind is None:
                self._kept.clear()  # nobody asks
        self._left.set()

    @property
    def text(self) -> str:
        return b"".join(self._kept).decode("utf-8", "replace")

    def _waiting(self, source: int) -> bool:
        with self._lock:
            (size,) = struct.unpack("i", fcntl.ioctl(source, termios.FIONREAD, b"\0" * 4))
        return bool(size)

    def _pass_on(self, source: int, target: int) -> None:
        while select.select([source], [], [])[0]:
            with self._lock:
                chunk = os.read(source, 1 << 16)
                if self._open:
                    self._keep(chunk)
                    self._read(chunk)
            if not chunk:
                break
            with suppress(OSError):  # whoever reads the log is gone; it is kept all the same
                _write(target, chunk)
        self._left.wait()  # until then it is asked whether something waits here
        os.close(source)
        os.close(target)

    def _keep(self, chunk: bytes) -> None:
        self._kept.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._kept[0]) > MOST_BYTES:
            self._size -= len(self._kept.popleft())


def _write(target: int, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[os.write(target, chunk) :]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # a closed one
            stream.flush()
