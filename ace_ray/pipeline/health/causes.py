"""Why a process died: of itself, or of a cause outside of it.

A preempted node, an operator's kill and a signal from outside say nothing about the rows that were
at work; an exception, a crash, a hang and a lack of memory may be a row's doing. What nothing
explains counts as from outside: SIGKILL leaves no trace, a crash does.
"""

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

from ace_ray.pipeline.health.processes import ProcessInfo
from ace_ray.util import log

EXIT_S = 60.0
"""Longest wait for an engine core that answers no more to be gone."""

KEEP_S = 7 * 24 * 3600.0
"""Age at which an unread `CrashFile` is removed."""

_PREFIX = "ace_ray-crash-"

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""No program gives itself one of these; the kernel gives SIGKILL when memory runs out."""


class CrashFile:
    """What this process leaves for its successor on the same node: the trace of a crash
    (`faulthandler`), and how often the kernel had killed for want of memory before."""

    def __init__(self, process: ProcessInfo) -> None:
        _remove_old()
        self._path = _path(process)
        self.oom_kills = oom_kills()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file: TextIO | None = None
        try:
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "w")
        except OSError as error:  # a full disk: then a crash counts as a kill from outside
            log.say(log.warning(f"no trace of a crash can be left: {error}"))
            return
        self.note_memory()
        faulthandler.enable(self._file, all_threads=False)

    def note_memory(self) -> None:
        """Kills for want of memory before now are none of this process's."""
        self.oom_kills = oom_kills()
        if self._file is not None:
            self._file.seek(0)
            self._file.write(f"{self.oom_kills:20d}\n")
            self._file.flush()


NODE_GONE = "its node is gone", True
KILLED = "its process was killed", True


def why_gone(process: ProcessInfo) -> tuple[str, bool]:
    """Why ``process``, of this node, is gone and said nothing; and whether the cause lies outside
    of it. Removes its `CrashFile`.

    A check takes milliseconds: an outside kill does not hit it on one row again and again."""
    if process.kind != "engine":
        return "its process was killed", False
    path = _path(process)
    try:
        before, _, trace = path.read_text(errors="replace").partition("\n")
        path.unlink()
    except OSError:
        return KILLED
    if trace.strip():
        log.say(log.error(f"the engine worker {process.name} crashed:", traceback=trace))
        return f"its process crashed: {trace.strip().splitlines()[0]}", False
    if before.strip().isdigit() and oom_kills() > int(before):
        return "its process was killed as memory ran out", False
    return KILLED


def outside_cause(cores: Sequence[Any], oom_before: int) -> str:
    """What ended or stopped an engine core from outside; "": nothing shows that.

    Args:
        cores: the `multiprocessing.Process`es of an engine that answers no more.
        oom_before: `oom_kills` before the rows at work began.
    """
    end = time.monotonic() + EXIT_S
    for core in cores:
        if stopped := _stopped(core.pid):
            return stopped
        code = _exit_code(core, end)
        if code == 0:
            return "the engine core got SIGTERM"
        if code is None or -code not in FROM_OUTSIDE:
            continue
        if -code == signal.SIGKILL and oom_kills() > oom_before:
            continue
        return f"the engine core was ended by {signal.Signals(-code).name}"
    return ""


def _exit_code(core: Any, end: float) -> int | None:
    """None: it is still there at ``end`` (`time.monotonic`).

    vLLM's own thread waits for the core, too. Of two threads that do, `join` and `exitcode` of one
    say nothing until the other has noted what it was told.
    """
    while (code := core.exitcode) is None and (left := end - time.monotonic()) > 0:
        core.join(left)
        time.sleep(0.01)
    return cast("int | None", code)


def _stopped(pid: int | None) -> str:
    """That the process or one below it is stopped; "" if none is."""
    with suppress(psutil.Error):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            if process.status() == psutil.STATUS_STOPPED:
                return "the engine core was stopped by a signal"
    return ""


def oom_kills() -> int:
    """How often the kernel has killed a process of this container, or of this machine, for want of
    memory; 0 where it does not say."""
    for counters in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with suppress(OSError, ValueError):
            for line in Path(counters).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _path(process: ProcessInfo) -> Path:
    return Path(tempfile.gettempdir(), f"{_PREFIX}{process.pid}-{process.began:.2f}")


def _remove_old() -> None:
    """Files of processes that ended with their run, which had no successor."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime > KEEP_S:
                path.unlink()
