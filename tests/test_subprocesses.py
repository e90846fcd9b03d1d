"""Child processes end with their parent, and import nothing from the current folder, which may
belong to somebody else."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from ace_ray.util import watchdog
from ace_ray.util.subprocesses import module_command, module_environment
from tests.limits import until

PACKAGE = Path(__file__).resolve().parents[1] / "ace_ray"

# Each process writes its id into a folder. The forked process has the same open files as the first.
SCRIPT = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path

def note(name, text):
    Path(sys.argv[1], "new").write_text(str(text))
    Path(sys.argv[1], "new").rename(Path(sys.argv[1], name))

def grandchild():
    from multiprocessing.shared_memory import SharedMemory
    memory = SharedMemory(create=True, size=64)
    note("memory", memory.name)
    note("grandchild", os.getpid())
    time.sleep(600)

def child():
    note("child", os.getpid())
    multiprocessing.get_context("spawn").Process(target=grandchild).start()
    time.sleep(600)

if __name__ == "__main__":
    from ace_ray.util.subprocesses import start_watchdog
    note("before", subprocess.Popen(["sleep", "600"]).pid)
    start_watchdog()
    forked = os.fork()
    if not forked:
        time.sleep(600)
    multiprocessing.get_context("spawn").Process(target=child).start()
    note("started", os.getpid())
    time.sleep(600)
"""


class Family:
    """The process of the script, and the processes below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pids"
        self.folder.mkdir()
        script = folder / "script.py"
        script.write_text(SCRIPT)
        command = [sys.executable, str(script), str(self.folder)]
        self.first = subprocess.Popen(command)

    def noted(self, name: str) -> str:
        return str(until((self.folder / name).exists) and (self.folder / name).read_text())

    def group(self) -> list[psutil.Process]:
        """Return the processes in the group of the first."""
        processes = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                mine = os.getpgid(process.pid) == self.first.pid
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
        return processes

    def watchdogs(self) -> list[psutil.Process]:
        """Return the child of the first that watches, and its child."""

        def find_both() -> list[psutil.Process]:
            mine = psutil.Process(self.first.pid).children()
            dogs = [p for p in mine if p.cmdline()[-1:] == [watchdog.__file__]]
            return [*dogs, *dogs[0].children()] if dogs and dogs[0].children() else []

        return list(until(find_both))

    def check_ended(self) -> None:
        until(lambda: not self.group())
        before = psutil.Process(int(self.noted("before")))
        assert before.status() != psutil.STATUS_ZOMBIE, "it was started before the watchdog"
        if (self.folder / "memory").exists():
            assert not Path("/dev/shm", self.noted("memory")).exists()


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    members = Family(tmp_path)
    members.noted("started")
    yield members
    for process in members.group():
        process.kill()
    os.kill(int(members.noted("before")), signal.SIGKILL)
    members.first.wait()


@pytest.mark.parametrize("last", ["started", "grandchild"])
def test_all_processes_end_with_a_killed_process(family: Family, last: str) -> None:
    family.noted(last)
    family.first.kill()
    family.check_ended()


def test_a_watchdog_ignores_signals_and_has_no_output(family: Family) -> None:
    family.noted("grandchild")
    first, second = family.watchdogs()
    for process in (first, second):
        names = {n: os.readlink(f"/proc/{process.pid}/fd/{n}") for n in (1, 2)}
        assert names == {1: os.devnull, 2: os.devnull}
        assert process.num_fds() == 3
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        second.send_signal(number)
    first.kill()  # as Ray kills the children of a worker that exits
    family.first.kill()
    family.check_ended()


@pytest.mark.nightly
@pytest.mark.parametrize("module", ["models.gguf", "models.reference", "sweep.lane"])
def test_modules_of_the_current_folder_are_not_imported(tmp_path, monkeypatch, module) -> None:
    folder, mark = tmp_path / "checkpoint", tmp_path / "mark"
    folder.mkdir()
    for name in ("struct", "json", "transformers", "torch", "ace_ray"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w'); raise SystemExit(3)")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f"{PACKAGE.parent}{os.pathsep}")
    # Each module ends by itself: the file does not exist.
    command = module_command(f"ace_ray.{module}", "no-such-file", "out")
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
    result = subprocess.run(command, env=module_environment(), text=True, check=False, **streams)
    assert not mark.exists(), result.stderr
    assert "No module named" not in result.stderr


def test_every_child_process_is_started_in_this_way() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if '"-m"' in path.read_text(encoding="utf-8")]
    assert [path.name for path in files] == ["subprocesses.py"]
    assert "-P" in module_command("any")
