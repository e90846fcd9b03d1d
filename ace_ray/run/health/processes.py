"""The processes of a run that may die and are started again."""

from __future__ import annotations

import ctypes
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

Kind = Literal["engine", "checker", "writer"]
"""Of a process of a run."""
KINDS: tuple[Kind, ...] = ("engine", "checker", "writer")

NAMES = {"engine": "engine worker", "checker": "checker", "writer": "writer"}


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process of the run. ``actor`` stays the same when Ray restarts it."""

    kind: Kind
    actor: str
    host: str
    node: str
    pid: int
    began: float
    """When the process was created, as its machine has it: a pid may come back."""

    @property
    def name(self) -> str:
        return f"{self.host}:{self.pid}"


def this_process(kind: Kind) -> ProcessInfo:
    """This one, an actor of Ray's."""
    import ray

    context = ray.get_runtime_context()
    process = psutil.Process()
    return ProcessInfo(
        kind,
        context.get_actor_id(),
        socket.gethostname(),
        context.get_node_id(),
        process.pid,
        process.create_time(),
    )


def give_back_memory() -> None:
    """Give what this process has freed back to the system. glibc keeps what lies below anything
    that is still held: after reading a large run that is four times what is left of it."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


class WorkTime:
    """Measures what pieces of work would take a process that never waits for a core: the CPU time
    of the process, and what it waits for in them otherwise. The wall clock says of a machine that
    is short of cores that more processes are needed."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._waited = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around what this thread does for a piece of work, and may wait in."""
        # In this order, and below in the other: a core that is lost between the two is no wait.
        held, wall = _held_core_or_wanted_one_s(), time.perf_counter()
        try:
            yield
        finally:
            passed = time.perf_counter() - wall
            self._waited += max(0.0, passed - (_held_core_or_wanted_one_s() - held))

    def taken_s(self) -> float:
        """Seconds of what was done since the last time this was asked."""
        cpu = time.process_time()
        taken, self._cpu, self._waited = cpu - self._cpu + self._waited, cpu, 0.0
        return taken


def _held_core_or_wanted_one_s() -> float:
    """Seconds in which this thread ran or could have run."""
    try:
        # Nanoseconds on a core, nanoseconds in a run queue, and turns.
        on_core, in_queue, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):  # no Linux, or a kernel that does not count them
        return time.thread_time()
    return (int(on_core) + int(in_queue)) / 1e9
