"""A server as a child process whose process group cannot outlive this one.

    this process -> guard -> server -> its own children
                          -> watchdog

All below this process are one process group, led by the guard, which a `watchdog` ends: it reads a
pipe from here, and however this process ends, the pipe closes. It is no child of this process
because Ray, when a worker exits, kills that worker's children first. A parent-death signal
would not do: it reaches no grandchildren, and is tied to the thread that starts the child.
"""

from __future__ import annotations

import http.client
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ace_ray.models.start_failure import MOST_BYTES, first_error, tail
from ace_ray.util import watchdog
from ace_ray.util.subprocesses import module_command, module_environment

GRACE_S = 15.0
"""From the request to end until the kill."""
_POLL_S = 0.25
_TAIL_LINES = 6


class ServerFailed(Exception):
    """A server could not be started, or died too often. One line, with the cause out of its log."""


class Server:
    """A server process with all of its children; none of them outlives this process."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, host: str, port: int
    ) -> None:
        self._command, self._env = list(command), dict(env)
        self._host, self._port = host, port
        handle, name = tempfile.mkstemp(prefix="ace_ray-server-", suffix=".log")
        os.close(handle)
        self.log = Path(name)
        """What the server prints; removed by `stop`, kept after a failure."""
        self._begins = 0
        """Where in it the last start begins."""
        self._lock = threading.Lock()
        self._stopping = False
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self, deadline_s: float) -> None:
        """Start the server and wait until its ``/health`` says 200.

        Raises:
            ServerFailed: it ended, was stopped, or was not ready within ``deadline_s``.
        """
        guard = self._launch()
        limit = time.monotonic() + deadline_s
        while not self._is_healthy():
            if guard.poll() is not None:
                self._end(guard)
                raise ServerFailed(self._report("the server ended before it was ready"))
            if time.monotonic() > limit:
                self._end(guard)
                raise ServerFailed(self._report(f"the server was not ready in {deadline_s:g} s"))
            time.sleep(_POLL_S)

    def watch(self, restarts: int, deadline_s: float) -> None:
        """Start the server again whenever it ends; returns once it is stopped.

        Raises:
            ServerFailed: it ended more than ``restarts`` times, or did not come up again.
        """
        try:
            for _ in range(restarts):
                self._wait()
                self.start(deadline_s)
            self._wait()
            raise ServerFailed(self._report(f"the server died {restarts + 1} times", started=True))
        except ServerFailed:
            if not self._stopping:
                raise

    def stop(self) -> None:
        """End the server, its children, and a `start` or `watch` in another thread."""
        with self._lock:
            self._stopping = True
        if self._guard is not None:
            self._end(self._guard)
        self.log.unlink(missing_ok=True)

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopping:
                raise ServerFailed("the server was stopped")
            with self.log.open("ab") as log:
                self._begins = log.tell()
                self._guard = subprocess.Popen(
                    module_command("ace_ray.pipeline.servers.server", *self._command),
                    env=module_environment(self._env),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            return self._guard

    def _wait(self) -> None:
        assert self._guard is not None
        self._guard.wait()
        self._end(self._guard)

    def _end(self, guard: subprocess.Popen[bytes]) -> None:
        """Ask the group to end, then see to it."""
        assert guard.stdin is not None
        guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            guard.wait(GRACE_S + 5)
        # Also when the guard was the one that died. No other group has this id while a member lives
        with suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()

    def _is_healthy(self) -> bool:
        # Not urllib, which would ask the environment's proxy.
        connection = http.client.HTTPConnection(self._host, self._port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _report(self, what: str, *, started: bool = False) -> str:
        with suppress(FileNotFoundError), self.log.open("rb") as file:
            # Of the last start: what ended those before is another matter.
            file.seek(max(self._begins, file.seek(0, os.SEEK_END) - MOST_BYTES))
            text = file.read(MOST_BYTES).decode("utf-8", "replace")
            # One that has started has met requests, and errors that are none of its own.
            cause = "" if started else first_error(text)
            said = cause or tail(text, _TAIL_LINES)
            return f"{what}: {said} (all of it: {socket.gethostname()}:{self.log})"
        return what


def free_port(host: str) -> int:
    """A TCP port that nobody listens at on ``host`` now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def guard(command: Sequence[str]) -> None:
    """Run ``command`` until it ends or stdin closes, then end the whole process group.

    Must lead a process group of its own.
    """
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    if os.fork() == 0:
        _watchdog(server.pid)
    print(f"the server ended with exit code {server.wait()}", flush=True)
    watchdog.end_group()


def _watchdog(server: int) -> None:
    handle = os.pidfd_open(server)
    watchdog.wait()
    with suppress(ProcessLookupError):
        # vLLM's server ends its engine processes itself when asked.
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        select.select([handle], [], [], GRACE_S)
    watchdog.end_group()


if __name__ == "__main__":
    guard(sys.argv[1:])
