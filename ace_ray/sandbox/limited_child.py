"""Answer requests in a limited process, and limit the time and memory of each request.

`ace_ray.sandbox.limited` starts the process. A handler in the process runs untrusted code on
untrusted arguments. After `confine` the process cannot open files or sockets or start processes. So
the handler must import all its modules first."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from ace_ray.errors import UserError
from ace_ray.util.subprocesses import confine, set_limit

# Limits of one call: CPU time, and growth of the address space. The kernel counts complete seconds,
# so a call may take up to one second longer.
CALL_CPU_S = 1
CALL_MEMORY_BYTES = 256 << 20
# Limit on the address space of the process.
PROCESS_MEMORY_BYTES = 1536 << 20
# Exit code after a call that exceeded the memory limit.
OUT_OF_MEMORY = 77
MAX_FRAME_BYTES = 64 << 20

# Kinds of replies: (ANSWERED, value), (MISTAKE, what, where, fix) and (DEFECT, traceback).
ANSWERED, MISTAKE, DEFECT = "answered", "mistake", "defect"

Handler = Callable[[Any], Any]

_HEADER = struct.Struct("!Q")

# Descriptor of /proc/self/statm, the memory size in pages; None on other systems than Linux.
_statm: int | None = None


class FrameTooLarge(Exception):
    """A message of more than `MAX_FRAME_BYTES`."""


def send(connection: socket.socket, value: Any) -> None:
    """Send a JSON value, also with lone surrogates. Raises `FrameTooLarge` if it is too large, and
    `OSError` if the connection fails."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_FRAME_BYTES:
        raise FrameTooLarge(f"a message has {len(raw):,} bytes, which is too large")
    connection.sendall(_HEADER.pack(len(raw)) + raw)


def receive(connection: socket.socket) -> Any:
    """Receive a JSON value. Raises `EOFError` if the connection is closed, `OSError` if it fails,
    and `ValueError` for an invalid value."""
    (size,) = _HEADER.unpack(_read(connection, _HEADER.size))
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"a message has {size:,} bytes, which is too large")
    return json.loads(_read(connection, size).decode("utf-8", "surrogatepass"))


def _read(connection: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    view = memoryview(content)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError("the connection is closed")
        view = view[count:]
    return content


@contextmanager
def call_limits() -> Iterator[None]:
    """Context in which the limits of one call apply. If a call exceeds a limit, the process ends:
    by SIGXCPU, or after a `MemoryError`, since this error may leave an inconsistent state."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    pages = 0 if _statm is None else int(os.pread(_statm, 64, 0).split()[0])
    bound = min(pages * resource.getpagesize() + CALL_MEMORY_BYTES, PROCESS_MEMORY_BYTES)
    if hard != resource.RLIM_INFINITY:
        bound = min(bound, hard)
    _limit_time()
    set_limit(resource.RLIMIT_AS, bound, hard)
    try:
        yield
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    finally:
        set_limit(resource.RLIMIT_AS, hard, hard)


def main(fd: int, handler: str) -> None:
    """Answer requests on the socket ``fd`` until the other side closes it or ends. ``handler``
    names a function, ``module:name``, that returns a `Handler`."""
    global _statm
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    connection = socket.socket(fileno=fd)
    module, _, name = handler.partition(":")
    answer: Handler = getattr(import_module(module), name)()
    with suppress(OSError):  # not Linux
        _statm = os.open("/proc/self/statm", os.O_RDONLY)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stderr.fileno())
    confine()
    while True:
        try:
            request = receive(connection)
            send(connection, _reply(answer, request))
        except (EOFError, OSError):
            os._exit(0)
        except (FrameTooLarge, MemoryError):
            os._exit(OUT_OF_MEMORY)


def _reply(answer: Handler, request: Any) -> list[Any]:
    _limit_time()
    try:
        return [ANSWERED, answer(request)]
    except UserError as error:
        return [MISTAKE, error.what, error.where, error.fix]
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the parent process reports it
        return [DEFECT, traceback.format_exc()[-4000:]]


def _limit_time() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(time.process_time()) + 1 + CALL_CPU_S
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    set_limit(resource.RLIMIT_CPU, soft, hard)
