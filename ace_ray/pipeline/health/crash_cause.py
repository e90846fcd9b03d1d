"""Find out why a process died, and whether the cause was external.

A preempted node, an operator's kill and a signal from another process are external: rows are not
the cause. A row may be the cause of an exception, a crash, a hang or a lack of memory. A crash
leaves a trace, SIGKILL does not. So the death of an engine without a trace counts as external. The
death of a checker does not (`death_of`)."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast

import psutil

from ace_ray.models.core_process import NO_SERVER
from ace_ray.pipeline.health.heartbeat import NAMES, Death, ProcessInfo
from ace_ray.util import log

# Time to wait for the exit of an engine core that no longer answers.
EXIT_S = 60.0

# Age at which an unread `CrashFile` is removed.
KEEP_S = 7 * 24 * 3600.0

# Length of a `CrashFile`'s note.
NOTE_CHARS = 64

_PREFIX = "ace_ray-crash-"

# Signals that programs do not send to themselves. The kernel sends SIGKILL when memory runs out.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class CrashFile:
    """A file that tells the successor of this process, on the same node, why the process died. The
    first line is a note; a crash adds its trace (`faulthandler`). An engine worker notes the number
    of out-of-memory kills before the rows in flight began; a checker notes the row it judges."""

    def __init__(self, process: ProcessInfo) -> None:
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            # The process of an old file had no successor, because its run ended.
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > KEEP_S:
                    path.unlink()
        self.oom_kills = oom_kills()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # O_EXCL follows no link
        self._file: TextIO | None = None
        try:
            self._file = os.fdopen(os.open(_path(process), flags, 0o600), "w")
        except OSError as error:  # e.g. a full disk; the cause of a crash then counts as external
            log.warning(f"cannot write a crash trace: {error}")
            return
        self.note("" if process.kind == "checker" else str(self.oom_kills))
        faulthandler.enable(self._file, all_threads=False)

    def note(self, text: str) -> None:
        """Replace the note by ``text``, at most `NOTE_CHARS` characters."""
        if self._file is not None:
            self._file.seek(0)
            self._file.write(f"{text:{NOTE_CHARS}}\n")
            self._file.flush()

    def note_oom_kills(self) -> None:
        """Note the number of out-of-memory kills so far. Later kills may have hit this process."""
        self.oom_kills = oom_kills()
        self.note(str(self.oom_kills))


NODE_GONE = Death("its node is gone", outside=True)
KILLED = Death("its process was killed", outside=True)


def death_of(process: ProcessInfo) -> Death:
    """Return why ``process``, which ran on this node, died without a message. Remove its
    `CrashFile`."""
    from ace_ray.cluster.ray_internals import worker_log

    return _cause_of(process)._replace(log=worker_log(process.pid))


def _cause_of(process: ProcessInfo) -> Death:
    path = _path(process)
    try:
        note, _, trace = path.read_text(errors="replace").partition("\n")
        path.unlink()
    except OSError:
        return KILLED
    note, trace = note.strip(), trace.strip()
    is_checker = process.kind == "checker"
    rows = ([note] if note else []) if is_checker else None
    if trace:
        log.error(f"{NAMES[process.kind]} {process.name} crashed:", traceback=trace)
        return Death(f"its process crashed: {trace.splitlines()[0]}", rows=rows)
    if not is_checker and note.isdigit() and oom_kills() > int(note):
        return Death("its process was killed because memory ran out")
    # A check takes milliseconds, so external kills do not hit the same row repeatedly.
    return KILLED._replace(outside=not is_checker, rows=rows)


def outside_cause(cores: Sequence[Any], oom_before: int) -> str:
    """Return the external cause that ended or stopped an engine core, or "" if no cause is found.

    Args:
        cores: the `multiprocessing.Process`es of an engine that has stopped answering.
        oom_before: `oom_kills` before the rows in flight began."""
    end = time.monotonic() + EXIT_S
    for core in cores:
        with suppress(psutil.Error):
            top = psutil.Process(core.pid)
            processes = top, *top.children(recursive=True)
            if any(process.status() == psutil.STATUS_STOPPED for process in processes):
                return "the engine core was stopped by a signal"
        code = _exit_code(core, end)
        if code == 0:
            return "the engine core received SIGTERM"
        if code == NO_SERVER:
            return "the fork server of the engine core was ended"
        if code is None or -code not in FROM_OUTSIDE:
            continue
        if -code == signal.SIGKILL and oom_kills() > oom_before:
            continue
        return f"the engine core was ended by {signal.Signals(-code).name}"
    return ""


def _exit_code(core: Any, end: float) -> int | None:
    """Return the exit code of ``core``; None if it still runs at ``end`` (`time.monotonic`)."""
    # Poll, because a thread of vLLM also waits for the core, and may note the code a moment later
    # than `join` returns here.
    while (code := core.exitcode) is None and (remaining_s := end - time.monotonic()) > 0:
        core.join(remaining_s)
        time.sleep(0.01)
    return cast("int | None", code)


def oom_kills() -> int:
    """Return the number of out-of-memory kills that the kernel counts in this container or on this
    machine; 0 if the number is unknown."""
    for counters in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with suppress(OSError, ValueError):
            for line in Path(counters).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _path(process: ProcessInfo) -> Path:
    return Path(tempfile.gettempdir(), f"{_PREFIX}{process.pid}-{process.began:.2f}")
