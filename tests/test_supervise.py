"""The command's process above the driver: signals, exit codes, and a driver that is killed."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.limits import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there is a child process")

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """A command in a process group of its own, whose driver does ``body``."""
    started: list[subprocess.Popen[str]] = []

    def begin(body: str) -> subprocess.Popen[str]:
        script = (
            "import os, signal, sys, time\n"
            "from ace_ray.util.signals import run_supervised\n"
            "def work():\n"
            f"{textwrap.indent(textwrap.dedent(body), '    ')}\n"
            "print('before')\n"
            "sys.exit(run_supervised(work))\n"
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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(signal.Signals(number).name))
    print("ready", flush=True)
    while not asked:
        time.sleep(0.01)
    time.sleep(0.3)
    print(*asked)
    return 75
"""


@pytest.mark.parametrize(
    ("body", "code", "output", "error"),
    [
        ("print('in')\nreturn 0", 0, "before\nin\n", ""),
        ("raise SystemExit(2)", 2, "before\n", ""),
        ("raise ValueError('a defect')", 1, "before\n", "ValueError: a defect"),
        # The returned code stays valid if the process is killed later.
        ("import atexit\natexit.register(os._exit, 9)\nreturn 0", 0, "before\n", ""),
    ],
    ids=["return", "exit", "exception", "killed later"],
)
def test_exit_code_and_exception_of_the_driver_are_the_command_s(start, body, code, output, error):
    process = start(body)
    printed, wrong = process.communicate(timeout=60)
    assert process.returncode == code
    assert printed == output
    assert wrong.count(error) == 1 if error else wrong == ""


def test_killed_driver_ends_in_one_line_and_can_be_resumed(start: Start) -> None:
    ends = {"exit code 1": "os._exit(1)", "signal 9": "os.kill(os.getpid(), signal.SIGKILL)"}
    for how, end in ends.items():
        process = start(end)
        _, wrong = process.communicate(timeout=60)
        assert process.returncode == 75
        message = f"ace-ray: the driver ended ({how}); the same command continues this run\n"
        assert wrong == message


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_the_driver_once_and_it_ends_with_the_command(start, number) -> None:
    process = start(WAITS)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["before\n", "ready\n"]
    (driver,) = psutil.Process(process.pid).children()
    if number == signal.SIGKILL:
        process.kill()
        until(lambda: not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE)
    else:
        os.killpg(process.pid, number)
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output) == (75, f"{number.name}\n")
