"""Signals that a command receives, errors of other threads, and a driver that is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from ace_ray.errors import RunFailed
from ace_ray.util import signals as interrupts_module
from ace_ray.util.signals import Interrupts
from tests.limits import until

BOTH = [signal.SIGINT, signal.SIGTERM]
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[dict[int, Any]]:
    """Install handlers that do nothing, and restore the earlier ones after the test."""
    before = {number: signal.getsignal(number) for number in BOTH}
    mine: dict[int, Any] = {number: lambda number, frame: None for number in BOTH}
    for number, handler in mine.items():
        signal.signal(number, handler)
    yield mine
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int, condition: Callable[[], bool] = lambda: False) -> None:
    """Send the signal and wait for its effect, an exception or ``condition``."""
    os.kill(os.getpid(), number)
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)
    assert condition(), "the signal had no effect"


@pytest.mark.parametrize(("first", "second"), [BOTH, BOTH[::-1]])
def test_first_signal_is_a_request_and_the_second_one_ends(first, second, monkeypatch) -> None:
    monkeypatch.setattr(interrupts_module, "ONCE_S", 0.0)
    with Interrupts() as interrupts:
        interrupts.drainable = True
        assert not interrupts.is_interrupted
        send(first, lambda: interrupts.is_interrupted)
        interrupts.raise_pending()
        for number in (second, first):
            with pytest.raises(KeyboardInterrupt):
                send(number)


@pytest.mark.parametrize("drainable", [True, False])
def test_signal_that_arrives_twice_counts_once(drainable: bool) -> None:
    with Interrupts() as interrupts:
        interrupts.drainable = drainable
        # If no rows can be drained, the first signal ends the run.
        with contextlib.nullcontext() if drainable else pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM, lambda: interrupts.is_interrupted)
        assert interrupts.is_interrupted
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def test_handlers_are_taken_back_from_others_and_restored(handlers: dict[int, Any]) -> None:
    """Ray installs handlers of its own when it starts."""
    numbers: list[int] = []
    with contextlib.suppress(ValueError), Interrupts() as interrupts:
        for number in BOTH:
            signal.signal(number, lambda number, frame: numbers.append(number))
        interrupts.install()
        interrupts.install()
        interrupts.drainable = True
        send(signal.SIGTERM, lambda: interrupts.is_interrupted)
        assert numbers == []
        raise ValueError
    assert {n: signal.getsignal(n) for n in BOTH} == handlers


@pytest.mark.parametrize("error", [RunFailed("the coordinator is gone"), KeyboardInterrupt()])
def test_abort_wakes_a_waiting_main_thread(error: BaseException) -> None:
    with Interrupts() as interrupts:
        interrupts.drainable = True

        def twice() -> None:
            interrupts.abort(error)
            interrupts.abort(RunFailed("a later error"))

        timer = threading.Timer(0.05, twice)
        timer.start()
        with pytest.raises(type(error)) as caught:
            threading.Event().wait(30)
        assert caught.value is error
        assert not interrupts.is_interrupted
        timer.join()


@pytest.fixture
def start() -> Iterator[Start]:
    """A command in a process group of its own, whose driver does ``body``."""
    if sys.platform != "linux":
        pytest.skip("only there is a child process")
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
