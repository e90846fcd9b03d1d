"""Run untrusted code in a separate process with limits that the kernel enforces.

A `LimitedProcess` answers JSON requests one after another. It does not inherit this process's
environment, files or threads, and ends when this process ends. It also ends when a request exceeds
the limits (`ace_ray.sandbox.limited_child`), so its users must be able to rebuild its state."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import ace_ray
from ace_ray.errors import UserError
from ace_ray.sandbox.limited_child import (
    ANSWERED,
    CALL_CPU_S,
    CALL_MEMORY_BYTES,
    MISTAKE,
    OUT_OF_MEMORY,
    FrameTooLarge,
    receive,
    send,
)

# Timeout for an answer, including the start of the process. It is far above the limits of a call,
# so a process that exceeds it was stopped or did not get CPU time.
ANSWER_S = 60.0
_END_S = 10.0
# Signals that end a process after an error or an exceeded limit.
_BROKEN = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE)
_PACKAGES = str(Path(ace_ray.__file__).parents[1])
_KEPT = ("LD_LIBRARY_PATH", "TZ")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from ace_ray.sandbox.limited_child import main; main(int(sys.argv[1]), sys.argv[2])"
)


class LimitBroken(Exception):
    """The request needs more than `CALL_CPU_S` or `CALL_MEMORY_BYTES`.

    ``time``: whether the time limit was exceeded. If not, the cause may also be memory that
    earlier requests have used."""

    def __init__(self, *, time: bool = False) -> None:
        self.time = time
        # One message for all limits: which limit is exceeded first may depend on the machine.
        super().__init__(
            f"the call takes more than {CALL_CPU_S} s or {CALL_MEMORY_BYTES >> 20} MiB"
        )


class ProcessLost(Exception):
    """The process ended or hangs, but not because a request exceeded the limits."""


class LimitedProcess:
    """A process that answers requests with ``handler`` (``module:name`` of a function that returns
    a `Handler`). Only one thread at a time may use it."""

    def __init__(self, handler: str) -> None:
        self._owner = os.getpid()
        self._socket, theirs = socket.socketpair()
        with theirs:
            # An editable installation is not in sys.path, so its folder is added.
            paths = json.dumps([*(os.path.abspath(path) for path in sys.path if path), _PACKAGES])
            fd = str(theirs.fileno())
            # Sets have the same order in every process, and numpy starts no threads.
            fixed = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
            self._process = subprocess.Popen(
                # Ignore the environment, the user's site packages and `.pth` files.
                [sys.executable, "-P", "-s", "-S", "-c", _START, fd, handler, paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=environment | fixed,
                cwd="/",
                process_group=0,
            )

    @property
    def is_alive(self) -> bool:
        """Whether the process may still answer. False in forks of the process that started it."""
        return self._owner == os.getpid() and self._socket.fileno() >= 0

    def ask(self, request: Any) -> Any:
        """Send a request and return the answer of the handler.

        Raises:
            LimitBroken: the request exceeded the limits, which ended the process; or the request
                is too large to be sent.
            ProcessLost: the process ended or hangs for another reason.
            UserError: the handler raised this error.
            RuntimeError: the handler raised another exception; the message is its traceback."""
        try:
            self._socket.settimeout(ANSWER_S)
            send(self._socket, request)
            reply = receive(self._socket)
        except FrameTooLarge:  # before anything was sent
            raise LimitBroken from None
        except TimeoutError:
            self.end()
            raise ProcessLost(f"no answer within {ANSWER_S:g} s") from None
        except (EOFError, OSError, ValueError, RecursionError) as error:
            raise self._exit_error(error) from None
        except BaseException:  # interrupted: the answer may arrive later
            self.end()
            raise
        kind, *values = reply
        if kind == ANSWERED:
            return values[0]
        if kind == MISTAKE:
            problem, location, fix = values
            raise UserError(problem, where=location, fix=fix)
        raise RuntimeError(f"in the tool process: {values[0]}")

    def end(self) -> None:
        """End the process now. In a fork of its parent process, only close the connection."""
        self._socket.close()
        if self._owner == os.getpid() and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _exit_error(self, error: Exception) -> Exception:
        try:
            code = self._process.wait(_END_S if isinstance(error, (EOFError, OSError)) else 0)
        except subprocess.TimeoutExpired:
            code = None
        self.end()
        if code == OUT_OF_MEMORY or code in [-number for number in _BROKEN]:
            return LimitBroken(time=code == -signal.SIGXCPU)
        return ProcessLost(f"exit code {code}" if code is not None else f"{error}")
