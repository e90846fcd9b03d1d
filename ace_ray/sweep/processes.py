"""Run lanes as processes: start them as resources allow, signal them, pass on their lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ace_ray.sweep.machine import device_names
from ace_ray.sweep.packing import Lane
from ace_ray.util.subprocesses import module_command, module_environment


class LaneProcess:
    """A running lane. ``devices``: the GPUs visible to it; None if the cluster assigns them.
    ``room``: the size that the cluster should then have."""

    def __init__(
        self,
        lane: Lane,
        runs: list[dict[str, Any]],
        devices: list[int] | None,
        *,
        say: Callable[[str], None] | None,
        room: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Start the process. ``runs`` and ``room``: see `ace_ray.sweep.lane`. ``say`` receives the
        lane's lines; without it they go to the terminal unchanged."""
        self.lane, self.devices = lane, devices
        self.stopping = False
        """Whether a signal was sent to it."""
        self._folder = tempfile.TemporaryDirectory(prefix="ace_ray-lane-")
        self._events = Path(self._folder.name, "events.jsonl")
        spec = Path(self._folder.name, "spec.json")
        parts = {"runs": runs, "events": str(self._events), "parent": os.getpid(), **room}
        spec.write_text(json.dumps(parts), encoding="utf-8")
        env = module_environment()
        if devices is not None:
            env["CUDA_VISIBLE_DEVICES"] = device_names(devices)
        self._process = subprocess.Popen(
            module_command("ace_ray.sweep.lane", str(spec)),
            env=env,
            stdout=subprocess.PIPE if say else None,
            stderr=subprocess.STDOUT if say else None,
            text=True,
            errors="replace",
            # Ctrl-C comes from the sweep, once.
            start_new_session=True,
        )
        self._listener: threading.Thread | None = None
        if say:
            self._listener = threading.Thread(target=self._pass_on, args=(say,), daemon=True)
            self._listener.start()

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> None:
        """Wait until it ends, at most ``seconds``."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def signal(self, number: signal.Signals) -> None:
        self.stopping = True
        if self.code is None:
            self._process.send_signal(number)

    def events(self) -> list[dict[str, Any]]:
        """Return the lane's reports on its runs so far."""
        try:
            lines = self._events.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def close(self) -> None:
        """Remove the files of an ended lane and pass on its last lines."""
        if self._listener is not None:
            # With an end: a process that it left behind may keep the pipe open.
            self._listener.join(timeout=5)
        self._folder.cleanup()

    def _pass_on(self, say: Callable[[str], None]) -> None:
        assert self._process.stdout is not None  # a pipe, because there is a reader
        for line in self._process.stdout:
            say(line.rstrip("\n"))


@contextmanager
def signals_to(ask: Callable[[int], None]) -> Iterator[None]:
    """Pass SIGINT and SIGTERM to ``ask``, from the main thread."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda n, frame: ask(n))
    try:
        yield
    finally:
        for taken, handler in before.items():
            signal.signal(taken, handler)
