"""The processes of a run that Ray restarts when they die, and their heartbeats.

A heartbeat is a thread that works even if the process's other threads hang. The thread reports to
the coordinator, whose answer says when the run must stop. If pending work makes no progress, the
thread ends the process, which Ray restarts. An exception would end the run."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, NoReturn

import psutil

from ace_ray.util import log
from ace_ray.util.sanitizing import one_line

BEAT_S = 2.0  # between two heartbeats
LONGEST_WHY = 1000  # characters of the reason why a process ends

# Kind of a process of a run. A "role" process has the engine of a user simulator or a judge.
Kind = Literal["engine", "role", "checker", "writer"]
KINDS: tuple[Kind, ...] = ("engine", "role", "checker", "writer")

NAMES = {"engine": "engine worker", "role": "role engine", "checker": "checker", "writer": "writer"}


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process of the run. When Ray restarts it, the new process has the same ``actor``."""

    kind: Kind
    actor: str
    host: str
    node: str
    pid: int
    began: float
    """Result of `began_at`. It distinguishes processes with the same pid."""

    @property
    def name(self) -> str:
        return f"{self.host}:{self.pid}"


class Death(NamedTuple):
    """Why a process has died, or ends itself."""

    why: str
    outside: bool = False
    """Whether the cause is external (`ace_ray.pipeline.health.crash_cause`)."""
    rows: Sequence[str] | None = None
    """Ids of the rows in flight; None: the rows that the process has reported before."""
    log: Sequence[str] = ()
    """Last lines of the process's log."""


class EngineLoad(NamedTuple):
    """Rows in flight at an engine worker, totals of its ended model calls and their tokens, and
    ``running``, the calls in its engine."""

    rows: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    running: int = 0


def this_process(kind: Kind) -> ProcessInfo:
    """Return the `ProcessInfo` of this process, which must be a Ray actor."""
    import ray

    context = ray.get_runtime_context()
    process = psutil.Process()
    return ProcessInfo(
        kind,
        context.get_actor_id(),
        socket.gethostname(),
        context.get_node_id(),
        process.pid,
        began_at(process),
    )


def began_at(process: psutil.Process) -> float:
    """Return the seconds from boot to the start of ``process``, also after the clock was set."""
    return float(round(-psutil.boot_time() + process.create_time(), 2))


def give_back_memory() -> None:
    """Return freed memory to the operating system, since glibc often keeps it. After a large run
    was read, glibc would keep four times the memory that the run needs."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


@dataclass(eq=False)
class Heartbeat:
    """The heartbeat thread of one process. The thread calls the given functions."""

    coordinator: Any
    """Actor handle of the run's `Coordinator`."""
    process: ProcessInfo
    _: KW_ONLY
    stall_timeout_s: float
    """Seconds without progress after which the process ends itself."""
    busy_since: Callable[[], float | None]
    """Returns the time of the last progress (`time.monotonic`), or None if no work is pending."""
    rows_at_work: Callable[[], Sequence[str] | None] = lambda: None
    """Returns the ids of the rows in flight, or None as in `Death.rows`."""
    outside: Callable[[], str] = lambda: ""
    """Returns the external cause of a stall, or "". Called before the process ends itself."""
    on_drain: Callable[[float], None] | None = None
    """Called once when the process must end its work; receives the seconds left."""
    load: Callable[[], EngineLoad | None] = lambda: None
    """Returns the engine's load for the progress line; None if there is no engine."""

    def __post_init__(self) -> None:
        threading.Thread(target=self._loop, name="heartbeat", daemon=True).start()

    def _loop(self) -> None:
        import ray

        while True:
            time.sleep(min(BEAT_S, self.stall_timeout_s / 4))
            # Separately: a process without heartbeats is killed, whatever else fails in it.
            for step in (self._end_if_stalled, self._beat):
                try:
                    step()
                except ray.exceptions.RayError:
                    continue  # the driver ends a graph without a coordinator
                except Exception:  # noqa: BLE001 - the thread must go on
                    log.error("a heartbeat failed", traceback=traceback.format_exc())

    def _end_if_stalled(self) -> None:
        since = self.busy_since()
        silent = 0.0 if since is None else time.monotonic() - since
        if silent > self.stall_timeout_s:
            why = f"no answer for {silent:.0f} s (timeout {self.stall_timeout_s:g} s)"
            die(self.coordinator, self.process, why, self.outside(), self.rows_at_work())

    def _beat(self) -> None:
        import ray

        answer = self.coordinator.update_process.remote(self.process, load=self.load())
        if (remaining_s := ray.get(answer, timeout=30)) is not None and self.on_drain is not None:
            self.on_drain(remaining_s)
            self.on_drain = None


def die(
    coordinator: Any,
    process: ProcessInfo,
    why: str,
    outside: str = "",
    rows: Sequence[str] | None = None,
) -> NoReturn:
    """Report the reason ``why`` to the coordinator and the log, and end this process and all its
    children. ``outside``: the cause if it is external, or "". ``rows``: as in `Death`."""
    why = one_line(f"{why} ({outside})" if outside else why, LONGEST_WHY)
    log.error(f"the {NAMES[process.kind]} {process.name} stops: {why}")
    import ray

    from ace_ray.cluster.ray_internals import worker_log

    try:
        death = Death(why, bool(outside), rows, worker_log(process.pid))
        ray.get(coordinator.update_process.remote(process, death=death), timeout=10)
    except Exception:  # noqa: BLE001 - a broken process must end in any case
        log.error("the coordinator could not be reached")
    end_children()
    os._exit(1)  # after `exit_actor` Ray would not retry the tasks


def end_children() -> None:
    """Kill all descendants of this process. A suspended engine core would outlive its parent."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
