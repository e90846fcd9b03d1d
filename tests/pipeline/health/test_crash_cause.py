"""Causes of death, on real processes."""

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

from ace_ray.pipeline.health import crash_cause
from ace_ray.pipeline.health.heartbeat import Death, Kind
from tests.pipeline.conftest import process

SPAWN = multiprocessing.get_context("spawn")


def sleep() -> None:
    time.sleep(600)


@pytest.fixture
def core() -> Iterator[Any]:
    process = SPAWN.Process(target=sleep)
    process.start()
    yield process
    process.kill()
    process.join()


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("SIGKILL", "the engine core was ended by SIGKILL"),
        ("SIGHUP", "the engine core was ended by SIGHUP"),
        ("SIGSEGV", ""),
        ("SIGABRT", ""),
    ],
)
def test_signals_from_outside_are_told_from_crashes(core, name, cause, monkeypatch) -> None:
    os.kill(core.pid, signal.Signals[name])
    before = crash_cause.oom_kills()
    assert crash_cause.outside_cause([core], before) == cause
    # The kernel kills with SIGKILL when memory runs out.
    monkeypatch.setattr(crash_cause, "oom_kills", lambda: before + 1)
    assert crash_cause.outside_cause([core], before) == cause * (name != "SIGKILL")


@pytest.mark.parametrize(("code", "cause"), [(1, ""), (0, "the engine core received SIGTERM")])
def test_exit_code_of_a_core_shows_sigterm(code: int, cause: str) -> None:
    process = SPAWN.Process(target=os._exit, args=(code,))
    process.start()
    assert crash_cause.outside_cause([process], crash_cause.oom_kills()) == cause


def test_stopped_core_is_told_from_a_hanging_one(core, monkeypatch) -> None:
    monkeypatch.setattr(crash_cause, "EXIT_S", 0.1)
    assert crash_cause.outside_cause([core], 0) == ""
    os.kill(core.pid, signal.SIGSTOP)
    while psutil.Process(core.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert crash_cause.outside_cause([core], 0) == "the engine core was stopped by a signal"
    os.kill(core.pid, signal.SIGCONT)


WORKER = """
import os, signal, sys
from ace_ray.pipeline.health.heartbeat import ProcessInfo
from ace_ray.pipeline.health.crash_cause import CrashFile

kind, name = sys.argv[1:]
file = CrashFile(ProcessInfo(kind, "actor", "host", "node", 7, 1.0))
if kind == "checker":
    file.note("row")
os.kill(os.getpid(), getattr(signal, name))
"""


class TestWhyGone:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
        return tmp_path

    def died(self, name: str, kind: Kind = "engine") -> None:
        subprocess.run([sys.executable, "-c", WORKER, kind, name], check=False, capture_output=True)

    def test_crash_leaves_its_trace(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.died("SIGSEGV")
        why = "its process crashed: Fatal Python error: Segmentation fault"
        assert crash_cause.death_of(process(7)) == Death(why)
        assert "most recent call first" in capfd.readouterr().out
        assert not list(folder.iterdir())

    def test_kill_leaves_no_trace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.died("SIGKILL")
        killed = Death("its process was killed", outside=True)
        assert crash_cause.death_of(process(7)) == killed
        assert crash_cause.death_of(process(7)) == killed, "no file is left"
        self.died("SIGKILL")
        monkeypatch.setattr(crash_cause, "oom_kills", lambda: 1 << 30)
        why = "its process was killed because memory ran out"
        assert crash_cause.death_of(process(7)) == Death(why)

    @pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL"])
    def test_checker_names_its_row_and_is_not_killed_from_outside(self, name: str) -> None:
        self.died(name, "checker")
        death = crash_cause.death_of(process(7, kind="checker"))
        assert (death.rows, death.outside) == (["row"], False)

    def test_links_are_not_followed_and_old_files_are_removed(self, folder, capfd) -> None:
        target = folder / "precious"
        target.write_text("x")
        (folder / "ace_ray-crash-9-1.00").symlink_to(target)
        old, new = folder / "ace_ray-crash-1-1.00", folder / "ace_ray-crash-2-1.00"
        for path in (old, new):
            path.write_text("0\n")
        os.utime(old, (1, 1))
        crash_cause.CrashFile(process(9)).note_oom_kills()
        assert target.read_text() == "x"
        assert "cannot write a crash trace" in capfd.readouterr().out
        assert (old.exists(), new.exists()) == (False, True)
