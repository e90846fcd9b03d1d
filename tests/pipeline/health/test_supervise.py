"""The command's process and the driver below it: signals, exit codes, ends that nobody chose."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there is a child process")

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """A command in a process group of its own, whose driver does ``body``."""
    started: list[subprocess.Popen[str]] = []

    def begin(body: str) -> subprocess.Popen[str]:
        script = (
            "import os, signal, sys, time\n"
            "from ace_ray.pipeline.health.signals import supervised\n"
            "def work():\n"
            f"{textwrap.indent(textwrap.dedent(body), '    ')}\n"
            "print('before')\n"
            "sys.exit(supervised(work))\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


WAITS = """
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append("term"))
    signal.signal(signal.SIGINT, lambda *_: asked.append("int"))
    print("ready", flush=True)
    while not asked:
        time.sleep(0.01)
    time.sleep(0.3)
    print(*asked)
    return 75
"""


@pytest.mark.parametrize("code", [0, 1, 3, 75])
def test_its_exit_code_is_the_commands(start: Start, code: int) -> None:
    process = start(f"print('in')\nreturn {code}")
    said, wrong = process.communicate(timeout=60)
    assert (process.returncode, said, wrong) == (code, "before\nin\n", "")


def test_what_it_raises_is_told_once(start: Start) -> None:
    process = start("raise SystemExit(2)")
    assert process.communicate(timeout=60) == ("before\n", "")
    assert process.returncode == 2
    process = start("raise ValueError('a defect')")
    _, wrong = process.communicate(timeout=60)
    assert process.returncode == 1
    assert wrong.count("ValueError: a defect") == 1


@pytest.mark.parametrize(
    ("end", "how"),
    [("os._exit(1)", "exit code 1"), ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9")],
)
def test_an_end_by_another_hand_can_be_resumed(start: Start, end: str, how: str) -> None:
    process = start(end)
    _, wrong = process.communicate(timeout=60)
    assert process.returncode == 75
    said = f"ace-ray: the driver was ended ({how}); the same command continues this run\n"
    assert wrong == said


def test_what_was_concluded_stays_whatever_comes_after(start: Start) -> None:
    process = start("import atexit\natexit.register(os._exit, 9)\nreturn 0")
    assert process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("to", [os.kill, os.killpg])
def test_a_signal_arrives_once(
    start: Start, number: signal.Signals, to: Callable[[int, int], None]
) -> None:
    process = start(WAITS)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["before\n", "ready\n"]
    to(process.pid, number)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (75, "term\n" if number == signal.SIGTERM else "int\n")


def test_it_dies_with_the_command(start: Start) -> None:
    process = start(WAITS)
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        pass
    (driver,) = psutil.Process(process.pid).children()
    process.kill()
    until = time.monotonic() + 30
    while driver.is_running() and driver.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.01)
