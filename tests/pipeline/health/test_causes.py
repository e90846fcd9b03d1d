"""Why processes died, on real ones."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ace_ray.pipeline.health import causes
from ace_ray.pipeline.health.processes import Kind, ProcessInfo

SPAWN = multiprocessing.get_context("spawn")


def sleep() -> None:
    time.sleep(600)


def leave(code: int) -> None:
    os._exit(code)


@pytest.fixture
def core() -> Iterator[Any]:
    process = SPAWN.Process(target=sleep)
    process.start()
    yield process
    process.kill()
    process.join()


def process_info(pid: int = 1, *, node: str = "node", kind: Kind = "engine") -> ProcessInfo:
    return ProcessInfo(kind, "actor", "host", node, pid, 1.0)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_core_that_a_signal_ended(core: Any, name: str) -> None:
    os.kill(core.pid, signal.Signals[name])
    found = causes.outside_cause([core], causes.oom_kills())
    assert found == f"the engine core was ended by {name}"


def test_a_core_that_another_thread_was_told_of_first() -> None:
    """Its thread has taken the exit code from the kernel, and has not noted it yet."""
    codes = [None, None, None, 0]

    class Core:
        pid = os.getpid()

        def join(self, timeout: float) -> None:
            pass

        @property
        def exitcode(self) -> int | None:
            return codes.pop(0) if len(codes) > 1 else codes[0]

    assert causes.outside_cause([Core()], 0) == "the engine core got SIGTERM"


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"])
def test_a_core_that_crashed(core: Any, name: str) -> None:
    os.kill(core.pid, signal.Signals[name])
    assert causes.outside_cause([core], causes.oom_kills()) == ""


@pytest.mark.parametrize(("code", "why"), [(1, ""), (0, "the engine core got SIGTERM")])
def test_a_core_that_left(code: int, why: str) -> None:
    process = SPAWN.Process(target=leave, args=(code,))
    process.start()
    assert causes.outside_cause([process], causes.oom_kills()) == why


def test_a_core_that_was_killed_as_memory_ran_out(
    core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.kill()
    monkeypatch.setattr(causes, "oom_kills", lambda: 8)
    assert causes.outside_cause([core], 7) == ""
    assert causes.outside_cause([core], 8) == "the engine core was ended by SIGKILL"


def test_a_core_that_is_stopped(core: Any) -> None:
    os.kill(core.pid, signal.SIGSTOP)
    while psutil.Process(core.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert causes.outside_cause([core], 0) == "the engine core was stopped by a signal"
    os.kill(core.pid, signal.SIGCONT)


def test_a_core_that_lives_and_hangs(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "EXIT_S", 0.1)
    assert causes.outside_cause([core], 0) == ""


WORKER = """
import os, signal, sys
from ace_ray.pipeline.health.processes import ProcessInfo
from ace_ray.pipeline.health.causes import CrashFile

file = CrashFile(ProcessInfo("engine", "actor", "host", "node", int(sys.argv[1]), 1.0))
file.note_memory()
os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


class TestPredecessors:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
        return tmp_path

    def died(self, name: str) -> None:
        subprocess.run([sys.executable, "-c", WORKER, "7", name], check=False, capture_output=True)

    def test_one_that_crashed(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.died("SIGSEGV")
        why, outside = causes.why_gone(process_info(7))
        assert (why, outside) == (
            "its process crashed: Fatal Python error: Segmentation fault",
            False,
        )
        assert "most recent call first" in capfd.readouterr().out, "the trace is in the log"
        assert not list(folder.iterdir())

    def test_one_that_was_killed(self) -> None:
        self.died("SIGKILL")
        assert causes.why_gone(process_info(7)) == ("its process was killed", True)

    def test_one_that_the_kernel_killed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.died("SIGKILL")
        monkeypatch.setattr(causes, "oom_kills", lambda: 1 << 30)
        why = "its process was killed as memory ran out"
        assert causes.why_gone(process_info(7)) == (why, False)

    def test_one_that_left_nothing(self) -> None:
        assert causes.why_gone(process_info(8)) == ("its process was killed", True)

    def test_a_checker(self) -> None:
        """Nobody kills one in the milliseconds that it has for a row, three times."""
        assert causes.why_gone(process_info(8, kind="checker")) == ("its process was killed", False)

    def test_a_link_is_not_followed(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        target = folder / "precious"
        target.write_text("x")
        causes._path(process_info(9)).symlink_to(target)
        file = causes.CrashFile(process_info(9))
        file.note_memory()
        assert target.read_text() == "x"
        assert "no trace of a crash can be left" in capfd.readouterr().out

    def test_old_ones_go(self, folder: Path) -> None:
        old, new = folder / "ace_ray-crash-1-1.00", folder / "ace_ray-crash-2-1.00"
        for path in (old, new):
            path.write_text("0\n")
        os.utime(old, (1, 1))
        causes._remove_old()
        assert (old.exists(), new.exists()) == (False, True)
