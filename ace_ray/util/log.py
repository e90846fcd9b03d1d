"""Write the log lines of commands, as text or as JSON.

Text lines go to stdout, or to the console of `use_console`. JSON lines go to stderr, one object per
line, so that stdout contains only results. Level and format are environment variables, so that
child processes and the actors of a local Ray use them too. ``ace-ray``'s log options set them."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rich.console import Console

from ace_ray.util.sanitizing import print_line, sanitize_line

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_LEVEL, _FORMAT = "ACE_RAY_LOG_LEVEL", "ACE_RAY_LOG_FORMAT"
# Maximum characters of a message, and of a traceback.
LONGEST = 8_000
# Maximum lines of this process that are kept for `lines_since`: a day of progress lines.
MOST_LINES = 10_000

_log = logging.getLogger("ace_ray")
# Fields that are added to every line of this process, such as the run id.
_common_fields: dict[str, Any] = {}
# Console of text lines; None: stdout.
_console: Console | None = None
# (`time.monotonic`, JSON line) of the latest lines of this process.
_history: deque[tuple[float, str]] = deque(maxlen=MOST_LINES)


def _write(level: int, text: str, /, *, on_stderr: bool = False, **fields: Any) -> None:
    """Log a line. JSON lines show ``fields``; text lines show only the field ``traceback``."""
    _add_handlers()
    console = Console(stderr=True) if on_stderr else _console
    _log.log(level, "%s", text, extra={"fields": fields, "console": console})


debug = partial(_write, logging.DEBUG)
info = partial(_write, logging.INFO)
warning = partial(_write, logging.WARNING)
error = partial(_write, logging.ERROR)
# On stderr, since stdout may contain results.
caution = partial(_write, logging.WARNING, on_stderr=True)
complain = partial(_write, logging.ERROR, on_stderr=True)


@contextmanager
def use_console(console: Console | None) -> Iterator[None]:
    """Print text lines on ``console`` (None: stdout) in this process until the context ends."""
    global _console
    before, _console = _console, console
    try:
        yield
    finally:
        _console = before


@contextmanager
def quiet() -> Iterator[Console]:
    """Print only warnings and errors, on stderr, in this process and its children until the context
    ends, unless the environment sets a log level. Yield the console."""
    has_level, console = _LEVEL in os.environ, Console(stderr=True)
    os.environ.setdefault(_LEVEL, "warning")
    try:
        with use_console(console):
            yield console
    finally:
        if not has_level:
            del os.environ[_LEVEL]


def lines_since(began: float) -> list[str]:
    """Return the JSON lines of level info and above that this process has logged since ``began``
    (`time.monotonic`), also those that the terminal hides; the last `MOST_LINES` at most."""
    return [line for at, line in list(_history) if at >= began]


def note(text: str, level: str = "error") -> None:
    """Add a line to the result of `lines_since`. Do not print the line."""
    _history.append((time.monotonic(), _json(time.time(), level, _log.name, text, {})))


def configure(level: str | None = None, form: str | None = None) -> None:
    """Set level and format for this process and its children. None keeps the current value."""
    for name, value in ((_LEVEL, level), (_FORMAT, form)):
        if value is not None:
            os.environ[name] = value
    _add_handlers()
    _log.setLevel(min(_level(), logging.INFO))


def environment() -> dict[str, str]:
    """Return the environment variables that set this level and format on other machines."""
    return {name: os.environ[name] for name in (_LEVEL, _FORMAT) if name in os.environ}


def is_json() -> bool:
    return os.environ.get(_FORMAT) == "json"


def is_enabled(level: int) -> bool:
    return level >= _level()


def fail(*texts: str) -> None:
    """Log on stderr why the command fails. At level debug, also log the traceback."""
    prefix = "" if is_json() else "ace-ray: "
    trace = traceback.format_exc() if sys.exc_info()[0] and is_enabled(logging.DEBUG) else ""
    for number, text in enumerate(texts):
        complain(prefix + text, traceback="" if number else trace)


@contextmanager
def common_fields(**fields: Any) -> Iterator[None]:
    """Add ``fields`` to all lines of this process until the context ends."""
    global _common_fields
    before, _common_fields = _common_fields, {**_common_fields, **fields}
    try:
        yield
    finally:
        _common_fields = before


def print_result(text: str, *, level: str = "info", **fields: Any) -> None:
    """Print a result on stdout at any log level: ``text``, or a JSON line with ``fields``."""
    line = _json(time.time(), level, _log.name, text, fields) if is_json() else sanitize_line(text)
    print(line, flush=True)


class _History(logging.Handler):
    """Keeps the lines of this process for `lines_since`."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _history.append((time.monotonic(), _json_line(record)))
        except Exception:  # noqa: BLE001 - a line that cannot be kept must not end a run
            self.handleError(record)


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if not is_enabled(record.levelno):  # `_History` also keeps lines that are not printed
            return
        try:
            if is_json():
                sys.stderr.write(_json_line(record) + "\n")
                sys.stderr.flush()
                return
            # Records of plain loggers go to stderr, as Python does by default.
            default = Console(stderr=not hasattr(record, "console"))
            console = getattr(record, "console", None) or default
            print_line(console, record.getMessage())
            for line in _clean_trace(_fields_of(record).get("traceback", "")).splitlines():
                print_line(console, line)
            console.file.flush()
        except Exception:  # noqa: BLE001 - a line that cannot be written must not end a run
            self.handleError(record)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[0] is not None:
        fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
    return fields


def _json_line(record: logging.LogRecord) -> str:
    level = logging.getLevelName(min(record.levelno, logging.ERROR)).lower()
    fields = _fields_of(record)
    return _json(record.created, level, record.name, record.getMessage(), fields)


def _json(at: float, level: str, logger: str, message: str, fields: Mapping[str, Any]) -> str:
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    line = {
        "time": moment.replace("+00:00", "Z"),
        "level": level,
        "logger": logger,
        "message": message,
        **_common_fields,
        **fields,
    }
    trace = line.pop("traceback", "")
    line = {name: _sanitize_field(value) for name, value in line.items()}
    return json.dumps(line | ({"traceback": _clean_trace(trace)} if trace else {}))


def _sanitize_field(value: Any) -> Any:
    """Return a field as a JSON value, without secrets and control characters."""
    if isinstance(value, Mapping):
        return {sanitize_line(str(key)): _sanitize_field(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_sanitize_field(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | None) else sanitize_line(str(value), LONGEST)


def _clean_trace(text: str) -> str:
    """Return the last `LONGEST` characters of a traceback, which contain the exception."""
    return "\n".join(map(sanitize_line, text.rstrip().splitlines()))[-LONGEST:]


def _level() -> int:
    return logging.getLevelNamesMapping().get(os.environ.get(_LEVEL, "info").upper(), logging.INFO)


def _add_handlers() -> None:
    """Add our handlers. If the calling program has added handlers to the logger ``ace_ray``, those
    print the lines, at the program's level."""
    if not _log.handlers:
        _log.addHandler(_LogHandler())
        _log.propagate = False
        _log.setLevel(min(_level(), logging.INFO))
    if not any(isinstance(handler, _History) for handler in _log.handlers):
        _log.addHandler(_History())
    root = logging.getLogger()
    if is_json() and not any(isinstance(handler, _LogHandler) for handler in root.handlers):
        # Otherwise Python prints warnings of other packages as text.
        root.addHandler(_LogHandler())
        logging.captureWarnings(True)
