"""The processes of a run that may die and are started again."""

from __future__ import annotations

import ctypes
import socket
from dataclasses import dataclass
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
