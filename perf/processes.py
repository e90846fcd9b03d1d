"""Processes of a running driver by kind, their CPU time and their memory."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from time import time

import numpy as np
import psutil

MIB = 1 << 20
TITLES = {
    "engine": "(EngineWorker)",
    "checker": "(Checker)",
    "writer": "(Writer)",
    "sandbox": "ray::SandboxActor",
    "coordinator": "ray::Coordinator",
    "core": "EngineCore",
}
"""Kind -> part of its process title. ``core`` is vLLM's, in an engine worker's fork server."""
FORK_SERVER = "multiprocessing.forkserver"
"""In the titles of the server and of a core that has not given itself one (setproctitle)."""

_NAMES = {"raylet": "raylet", "gcs_server": "gcs"}


def family(pid: int) -> dict[str, list[psutil.Process]]:
    """Kind -> the descendants of ``pid``, oldest first; all other processes are ``other``."""
    groups: dict[str, list[psutil.Process]] = {}
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return groups
    for process in children:
        try:
            groups.setdefault(kind(process), []).append(process)
        except psutil.Error:
            continue
    return {name: sorted(group, key=psutil.Process.create_time) for name, group in groups.items()}


def kind(process: psutil.Process) -> str:
    if (name := process.name()) in _NAMES:
        return _NAMES[name]
    title = " ".join(process.cmdline())
    if FORK_SERVER in title and (parent := process.parent()):
        return "core" if FORK_SERVER in " ".join(parent.cmdline()) else "other"
    return next((process_kind for process_kind, part in TITLES.items() if part in title), "other")


def end(process: psutil.Process) -> bool:
    """SIGKILL, if it still runs. psutil tells it from another one with the same id."""
    try:
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            process.kill()
            return True
    except psutil.Error:
        pass
    return False


class Watch:
    """CPU time and memory of the descendants of ``root``, sampled, by kind.

    ``command`` is the process of an ``ace-ray`` command: with its first child it is the driver.
    """

    def __init__(self, root: int, command: int) -> None:
        self._root, self._command = root, command
        self._cpu: dict[tuple[int, float], tuple[str, float]] = {}
        """Process -> its kind and seconds; those that have ended count on."""
        self._at: list[float] = []
        self._seconds: list[defaultdict[str, float]] = []
        self._private: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        """Kind -> (time, bytes of its largest process that no other process shares)."""
        self.peaks: Counter[str] = Counter()
        """Kind -> most processes at a time."""

    def sample(self) -> None:
        sampled_at = time()
        for name, group in self._processes().items():
            sizes = []
            for process in group:
                try:
                    times, memory = process.cpu_times(), process.memory_info()
                    key = (process.pid, process.create_time())
                except psutil.Error:
                    continue
                self._cpu[key] = (name, times.user + times.system)
                sizes.append(memory.rss - memory.shared)
            self._private[name].append((sampled_at, max(sizes, default=0)))
            self.peaks[name] = max(self.peaks[name], len(sizes))
        total: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self._cpu.values():
            total[name] += seconds
        self._at.append(sampled_at)
        self._seconds.append(total)

    def _processes(self) -> dict[str, list[psutil.Process]]:
        groups = family(self._root)
        try:
            command = psutil.Process(self._command)
            groups["driver"] = [command, *command.children()[:1]]
        except psutil.Error:
            groups["driver"] = []
        ours = {process.pid for process in groups["driver"]}
        strays = [process for process in groups.get("other", []) if process.pid not in ours]
        return {**groups, "other": strays}

    def cores(self, name: str) -> float:
        """CPU seconds of a kind in a second, since the sample before the last."""
        if len(self._at) < 3:
            return math.inf
        spent = self._seconds[-1][name] - self._seconds[-3][name]
        return float(spent / (self._at[-1] - self._at[-3]))

    def spent(self, name: str, began: float, ended_at: float) -> float:
        """CPU seconds of a kind between two times."""
        seconds = [total[name] for total in self._seconds]
        first, last = np.interp([began, ended_at], self._at, seconds)
        return float(last - first)

    def largest(self, name: str, began: float, ended_at: float) -> float:
        """MiB of the largest process of a kind between two times; 0 without one."""
        sizes = [size for at, size in self._private[name] if began <= at <= ended_at]
        return float(max(sizes, default=0)) / MIB

    def table(self, began: float, ended_at: float, rows: int) -> Iterator[str]:
        """A line for each kind: what ``rows`` rows between two times took, and whether it grew."""
        yield "| process | at most | CPU ms a row | private MiB, second quarter | last | at most |"
        yield "|---|---|---|---|---|---|"
        quarter = (ended_at - began) / 4
        for name in sorted(self.peaks, key=lambda name: -self.spent(name, began, ended_at)):
            yield (
                f"| {name} | {self.peaks[name]} "
                f"| {1000 * self.spent(name, began, ended_at) / rows:.2f} "
                f"| {self.largest(name, began + quarter, began + 2 * quarter):.0f} "
                f"| {self.largest(name, ended_at - quarter, ended_at):.0f} "
                f"| {self.largest(name, 0.0, math.inf):.0f} |"
            )
