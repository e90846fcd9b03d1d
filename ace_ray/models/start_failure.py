"""Find the cause of a failed engine start in the output of its processes.

vLLM's engine core and its workers are separate processes. Their parent only gets the error "Engine
core initialization failed. See root cause above". The cause is a traceback in the output of the
other processes. Later errors may result from the cause."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ace_ray.errors import EngineNotStarted, UserError
from ace_ray.util.sanitizing import sanitize_line

# Maximum bytes of output that are kept. Older output is dropped.
MOST_BYTES = 1 << 20
# Maximum wait for the output of children that outlive a failed start.
DRAIN_S = 2.0
# Maximum characters of a cause.
LONGEST = 600

# Maximum lines of an error message.
_MESSAGE_LINES = 8
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
# Prefix of a log line of vLLM, with level and location, or of Ray: (EngineCore pid=12) ERROR ...
_PREFIX = re.compile(
    r"\((?:Ray)?[\w.:\[\] -]{1,80} pid=\d{1,10}(?:, ip=[\w.:-]{1,64})?\)"
    r"( [A-Z]{4,8} \d\d-\d\d [\d:]{8} \[[^\]\n]{1,200}\])? ?"
)
_BETWEEN = "During handling of the above exception"
_MILD = re.compile(r" (?:DEBUG|INFO|WARNING) ")
_ERROR = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit)(?::|\Z)")
# Texts of errors that only report an error in another process.
_WRAPPERS = re.compile(
    "See root cause above|See stack trace|initialization failed due to|failed to start"
    "|EngineCore encountered an issue|EngineDeadError|SystemExit|KeyboardInterrupt"
    "|CancelledError|RayTaskError|ActorDiedError|RayActorError|EOFError: unexpected EOF"
)


def root_cause(text: str, error: BaseException) -> str:
    """Return the cause of a failed start on one line, cut at `LONGEST`, without secrets.

    ``error``: the exception in the parent process. ``text``: the output of all processes."""
    raised = f"{type(error).__name__}: {error}"
    if not _WRAPPERS.search(raised):
        return _cause_line(raised)
    if cause := first_error(text):
        return cause
    killed = " (-9: killed, out of memory?)" * bool(re.search(r": -9\b", raised))
    return _cause_line(f"{raised}{killed}; last output: {tail(text)}")


def first_error(text: str) -> str:
    """Return the first error in ``text`` that no other error caused, on one line, or ""."""
    lines = _split_prefix(text)
    causes: list[str] = []
    for number, (prefix, line) in enumerate(lines, 1):
        if line.startswith(_BETWEEN):
            causes = causes[:-1]  # count the error that was raised during handling
        if _ERROR.match(line) and not _WRAPPERS.search(line) and not _MILD.search(prefix):
            message = [line]
            for source, part in lines[number : number + _MESSAGE_LINES - 1]:
                if source != prefix or not part.strip() or part.startswith("Traceback"):
                    break
                message.append(part)
            causes.append(" ".join(message))
    return _cause_line(causes[0]) if causes else ""


def tail(text: str) -> str:
    """Return the last four lines of a log, joined on one line."""
    lines = [" ".join(line.split())[:300] for _, line in _split_prefix(text) if line.strip()]
    return sanitize_line(" | ".join(lines[-4:])) or "no output"


def _split_prefix(text: str) -> list[tuple[str, str]]:
    """Split each line of a log into its prefix and the rest."""
    lines = _COLOURS.sub("", text).splitlines()
    ends = [match.end() if (match := _PREFIX.match(line)) else 0 for line in lines]
    return [(line[:end], line[end:]) for line, end in zip(lines, ends, strict=True)]


def _cause_line(cause: str) -> str:
    """Return ``cause`` on one line, without the input that pydantic adds to a message."""
    return " ".join(sanitize_line(" ".join(cause.split()).partition(" [type=")[0], LONGEST).split())


class _Output:
    """Output of a start. ``read`` is called with each chunk."""

    def __init__(self, read: Callable[[bytes], object]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._captured = b""
        self._is_open = True

    def pass_on(self, source: int, target: int) -> None:
        """Copy the pipe ``source`` to ``target`` until its writers have ended. Close both."""
        while chunk := os.read(source, 1 << 16):
            with self._lock:
                if self._is_open:
                    self._captured = (self._captured + chunk)[-MOST_BYTES:]
                    self._read(chunk)
            with suppress(OSError):  # the log cannot be written; the output is kept anyway
                while chunk:
                    chunk = chunk[os.write(target, chunk) :]
        os.close(source)
        os.close(target)

    def close(self) -> str:
        """Capture no more output. Return the captured output."""
        with self._lock:
            text, self._captured, self._is_open = self._captured, b"", False
        return text.decode("utf-8", "replace")


@contextmanager
def capture_start(read: Callable[[bytes], object] = lambda chunk: None) -> Iterator[None]:
    """Context of an engine start, which captures and still prints the output of this process and
    its new children. Children that outlive the context still print through this process.

    ``read`` is called with each chunk of captured output, under a lock, and must not raise an
    exception. Any exception in the context but `UserError` becomes `EngineNotStarted` with the root
    cause."""
    _flush()
    output = _Output(read)
    originals = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    threads = []
    for descriptor, original in originals.items():
        source, sink = os.pipe()
        os.dup2(sink, descriptor)
        os.close(sink)
        thread = threading.Thread(target=output.pass_on, args=(source, original), daemon=True)
        threads.append(thread)
        thread.start()
    try:
        try:
            yield
        finally:
            _flush()
            for descriptor, original in originals.items():
                os.dup2(original, descriptor)
    except UserError:
        raise
    except Exception as error:
        for thread in threads:
            thread.join(DRAIN_S)
        raise EngineNotStarted(root_cause(output.close(), error)) from error
    finally:
        output.close()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the stream may be closed
            stream.flush()
