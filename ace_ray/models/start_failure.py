"""Find the root cause of a failed engine start in the output of its processes.

vLLM's engine core and its workers are separate processes. Their parent only gets the error "Engine
core initialization failed. See root cause above". The cause is a traceback in the output of the
other processes. Each line of the traceback has a prefix. Later errors may result from the cause."""

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

# Maximum bytes of output that are kept. Older output is dropped.
MOST_BYTES = 1 << 20
# Maximum wait for remaining output after a start, since the log's pipe may be full.
DRAIN_S = 5.0
# Maximum characters of a cause.
LONGEST = 600

# Maximum lines of an error message.
_MESSAGE_LINES = 8
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
# Prefix of a log line of vLLM, with level and location, or of Ray: (EngineCore pid=12) ERROR ...
_PREFIX = re.compile(
    r"\((?:Ray)?([\w.:\[\] -]{1,80}) pid=\d{1,10}(?:, ip=[\w.:-]{1,64})?\)"
    r"( [A-Z]{4,8} \d\d-\d\d [\d:]{8} \[[^\]\n]{1,200}\])? ?"
)
_BETWEEN = "During handling of the above exception"
_MILD = re.compile(r" (?:DEBUG|INFO|WARNING) ")
_ERROR = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit)(?::|\Z)")
_PYDANTIC = re.compile(r"(?:Value|Assertion) error, (.*?)(?: \[type=|\Z)")
_CODE = re.compile(r"'(\w{1,80})': (-?\d{1,5})")
# Texts of errors that only report an error in another process.
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


def root_cause(text: str, error: BaseException) -> str:
    """Return the cause of a failed start on one line, cut at `LONGEST`, without secrets.

    ``error``: the exception in the parent process. ``text``: the output of all processes."""
    met = f"{type(error).__name__}: {error}"
    if not _is_wrapper(met):
        return _shown(met)
    if cause := first_error(text):
        return cause
    ended = ", ".join(f"{name} {_ended(int(code))}" for name, code in _CODE.findall(met))
    return _shown(f"{ended or 'its process ended'} without an error; last output: {tail(text)}")


def first_error(text: str) -> str:
    """Return the first error in ``text`` that is not the result of another error, or "".

    Errors of workers take precedence. The result is one line."""
    lines = [_parted(line) for line in _COLOURS.sub("", text).splitlines()]
    found: dict[str, list[str]] = {}
    for at, (process, head, line) in enumerate(lines):
        causes = found.setdefault(process, [])
        if line.startswith(_BETWEEN) and causes:
            causes.pop()  # count the error that was raised during handling
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
    """Return the last ``most`` lines of a log, joined on one line."""
    plain = [_parted(line)[2] for line in _COLOURS.sub("", text).splitlines()]
    lines = [" ".join(line.split())[:300] for line in plain if line.strip()]
    return printed(" | ".join(lines[-most:])) or "no output"


def _parted(line: str) -> tuple[str, str, str]:
    """Split a line of a log into (process, prefix, rest)."""
    match = _PREFIX.match(line)
    return (match[1], match[0], line[match.end() :]) if match else ("", "", line)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}" + " (out of memory?)" * (-code == signal.SIGKILL)


def _shown(cause: str) -> str:
    """Return ``cause`` on one line, without the text that pydantic adds to a message."""
    if validated := _PYDANTIC.search(" ".join(cause.split())):
        cause = validated[1]
    return " ".join(printed(cause, LONGEST).split())


def _is_wrapper(cause: str) -> bool:
    return any(mark in cause for mark in _WRAPPERS)


class OutputCapture:
    """Context that captures and still prints the output of this process and its new children.

    If an exception ends the context, `text` is the captured output. Children that outlive the
    context still print through this process. ``read`` is called with each chunk of captured output,
    under a lock, and must not raise an exception."""

    def __init__(self, read: Callable[[bytes], object] = lambda chunk: None) -> None:
        self._read = read
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._open = True
        self._left = threading.Event()
        self._lock = threading.Lock()
        # (descriptor, copy of the original, read end of the pipe), for stdout and stderr.
        self._pipes: list[tuple[int, int, int]] = []

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
            # Capture the output that is still in the pipe. Children may keep the pipe open.
            while self._waiting(source) and time.monotonic() < until:
                time.sleep(0.001)
        with self._lock:
            self._open = False
            if kind is None:
                self._kept.clear()  # the output is only needed after a failure
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
            with suppress(OSError):  # the log cannot be written; the output is kept anyway
                _write(target, chunk)
        self._left.wait()  # `_waiting` still reads this pipe
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
        with suppress(OSError, ValueError, AttributeError):  # the stream may be closed
            stream.flush()
