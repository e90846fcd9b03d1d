"""Signals that this process really receives, and errors that another thread raises."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ace_ray.errors import RunFailed
from ace_ray.util import signals as interrupts_module
from ace_ray.util.signals import Interrupts

BOTH = [signal.SIGINT, signal.SIGTERM]


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
