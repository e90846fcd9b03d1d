"""However a process ends, what it has started ends with it. That is spawned by multiprocessing, as
an engine is, and from there once more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ace_ray.util import watchdog

PATIENCE_S = 120.0

# Each process notes itself in a folder. The one that was forked has what the first has open.
SCRIPT = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path

def note(name, pid):
    Path(sys.argv[1], "new").write_text(str(pid))
    Path(sys.argv[1], "new").rename(Path(sys.argv[1], name))

def grandchild():
    from multiprocessing.shared_memory import SharedMemory
    memory = SharedMemory(create=True, size=64)
    Path(sys.argv[1], "memory").write_text(memory.name)
    note("grandchild", os.getpid())
    time.sleep(600)

def child():
    note("child", os.getpid())
    multiprocessing.get_context("spawn").Process(target=grandchild).start()
    time.sleep(600)

if __name__ == "__main__":
    from ace_ray.util.subprocesses import end_with_this_process
    note("before", subprocess.Popen(["sleep", "600"]).pid)
    end_with_this_process()
    forked = os.fork()
    if not forked:
        time.sleep(600)
    note("forked", forked)
    multiprocessing.get_context("spawn").Process(target=child).start()
    note("started", os.getpid())
    sys.stdin.read()
    os._exit(0)
"""


class Family:
    """The process of the script, and those below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pids"
        self.folder.mkdir()
        script = folder / "script.py"
        script.write_text(SCRIPT)
        self.first = subprocess.Popen(
            [sys.executable, str(script), str(self.folder)],
            stdin=subprocess.PIPE,
        )

    def noted(self, name: str) -> int:
        """The process of that name, once there is one."""
        limit = time.monotonic() + PATIENCE_S
        while not (self.folder / name).exists():
            assert time.monotonic() < limit, name
            time.sleep(0.01)
        return int((self.folder / name).read_text())

    def group(self) -> list[psutil.Process]:
        """Those that run in the group of the first."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                mine = os.getpgid(process.pid) == self.first.pid
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def memory(self) -> Path:
        """What one has of the memory that processes share."""
        note = self.folder / "memory"
        return Path("/dev/shm", note.read_text() if note.exists() else "none")

    def watchdogs(self) -> list[psutil.Process]:
        """The child of the first, then its child, once there are both."""
        limit = time.monotonic() + PATIENCE_S
        while True:
            mine = psutil.Process(self.first.pid).children()
            found = [p for p in mine if p.cmdline()[-1:] == [watchdog.__file__]]
            if found and (below := found[0].children()):
                return [*found, *below]
            assert time.monotonic() < limit
            time.sleep(0.01)

    def all_end(self) -> bool:
        limit = time.monotonic() + PATIENCE_S
        while self.group():
            if time.monotonic() > limit:
                return False
            time.sleep(0.01)
        return True


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    made = Family(tmp_path)
    made.noted("started")
    yield made
    for process in made.group():
        process.kill()
    os.kill(made.noted("before"), signal.SIGKILL)
    made.first.wait()


@pytest.mark.parametrize("last", ["started", "child", "grandchild"])
def test_all_that_a_killed_process_has_started_ends(family: Family, last: str) -> None:
    family.noted(last)
    family.first.kill()
    assert family.all_end()
    assert psutil.Process(family.noted("before")).status() != psutil.STATUS_ZOMBIE
    assert not family.memory().exists()


def test_all_ends_with_a_process_that_ends_itself(family: Family) -> None:
    family.noted("grandchild")
    assert len(family.watchdogs()) == 2
    assert family.first.stdin is not None
    family.first.stdin.close()
    assert family.first.wait(PATIENCE_S) == 0
    assert family.all_end()
    assert psutil.Process(family.noted("before")).status() != psutil.STATUS_ZOMBIE


def test_a_watchdog_ends_late(family: Family) -> None:
    """Not by what asks a group to end; and Ray kills the children of a worker that exits."""
    family.noted("grandchild")
    first, second = family.watchdogs()
    for asked in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        second.send_signal(asked)
    first.kill()
    family.first.kill()
    assert family.all_end()


def test_a_watchdog_holds_no_output(family: Family) -> None:
    for process in family.watchdogs():
        names = {n: os.readlink(f"/proc/{process.pid}/fd/{n}") for n in (1, 2)}
        assert names == {1: os.devnull, 2: os.devnull}
        assert process.num_fds() == 3
