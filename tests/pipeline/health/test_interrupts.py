"""Signals that are really sent to this process, and the run's own health monitor."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ace_ray.errors import RunFailed
from ace_ray.pipeline.health import signals as interrupts_module
from ace_ray.pipeline.health.signals import Interrupts

BOTH = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[dict[int, Any]]:
    """What a signal finds outside of `Interrupts`: a note. Put back whatever a test does."""
    before = {number: signal.getsignal(number) for number in BOTH}
    mine: dict[int, Any] = {number: lambda number, frame: None for number in BOTH}
    for number, handler in mine.items():
        signal.signal(number, handler)
    yield mine
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int, seen: Callable[[], bool] = lambda: False) -> None:
    """Send the signal and wait for its effect, an exception or ``seen``."""
    os.kill(os.getpid(), number)
    until = time.monotonic() + 5
    while not seen() and time.monotonic() < until:
        time.sleep(0.001)
    assert seen(), "the signal had no effect"


def joined() -> None:
    thread = threading.Thread(target=time.sleep, args=(30,), daemon=True)
    thread.start()
    thread.join()


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_a_wish(number: int) -> None:
    with Interrupts() as interrupts:
        interrupts.drainable = True
        assert not interrupts.asked
        send(number, lambda: interrupts.asked)
        interrupts.settle()


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("second", BOTH)
def test_the_second_one_ends_at_once(
    first: int, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts_module, "ONCE_S", 0.0)
    with Interrupts() as interrupts:
        interrupts.drainable = True
        send(first, lambda: interrupts.asked)
        with pytest.raises(KeyboardInterrupt):
            send(second)
        with pytest.raises(KeyboardInterrupt):
            send(first)


@pytest.mark.parametrize("drainable", [True, False])
def test_one_that_comes_by_two_ways_is_one(drainable: bool) -> None:
    with Interrupts() as interrupts:
        interrupts.drainable = drainable
        with contextlib.nullcontext() if drainable else pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM, lambda: interrupts.asked)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


@pytest.mark.parametrize("number", BOTH)
def test_where_nothing_can_be_drained_the_first_one_ends(number: int) -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            send(number)
        assert interrupts.asked


@pytest.mark.parametrize("ending", ["ends", "fails"])
def test_handlers_are_restored(handlers: dict[int, Any], ending: str) -> None:
    interrupts = Interrupts()
    try:
        with interrupts:
            assert all(signal.getsignal(n) != handlers[n] for n in BOTH)
            if ending == "fails":
                raise ValueError
    except ValueError:
        pass
    assert {n: signal.getsignal(n) for n in BOTH} == handlers
    assert not interrupts.asked


def test_signals_that_others_took_meanwhile_are_taken_back(handlers: dict[int, Any]) -> None:
    """Ray installs handlers of its own when it starts."""
    taken: list[int] = []
    with Interrupts() as interrupts:
        for number in BOTH:
            signal.signal(number, lambda number, frame: taken.append(number))
        interrupts.install()
        interrupts.install()
        interrupts.drainable = True
        send(signal.SIGTERM, lambda: interrupts.asked)
        assert taken == []
    assert {n: signal.getsignal(n) for n in BOTH} == handlers, "not those of the others"


@pytest.mark.parametrize(
    "wait",
    [
        lambda: threading.Event().wait(30),
        lambda: time.sleep(30),
        lambda: joined(),
    ],
    ids=["event", "sleep", "join"],
)
def test_an_abort_wakes_a_main_thread_that_waits(wait: Callable[[], Any]) -> None:
    failure = RunFailed("the coordinator is gone", again=True)
    with Interrupts() as interrupts:
        interrupts.drainable = True
        timer = threading.Timer(0.05, interrupts.abort, [failure])
        began = time.monotonic()
        timer.start()
        with pytest.raises(RunFailed, match="the coordinator is gone") as caught:
            wait()
        assert caught.value is failure
        assert time.monotonic() - began < 20, "it was not woken"
        assert not interrupts.asked, "nobody asked for it"
        timer.join()


def test_an_abort_may_be_an_interrupt() -> None:
    """What the health monitor does when a drain takes too long, or nothing is in flight."""
    with Interrupts() as interrupts:
        interrupts.drainable = True
        send(signal.SIGINT, lambda: interrupts.asked)
        threading.Timer(0.05, interrupts.abort, [KeyboardInterrupt()]).start()
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(30)


def test_the_first_abort_counts() -> None:
    with Interrupts() as interrupts:

        def twice() -> None:
            interrupts.abort(RunFailed("first"))
            interrupts.abort(RunFailed("second"))

        threading.Timer(0.05, twice).start()
        with pytest.raises(RunFailed, match="first"):
            threading.Event().wait(30)


def test_an_abort_that_was_swallowed_comes_at_the_end() -> None:
    """A signal's exception may be raised, and lost, inside somebody's callback."""
    with Interrupts() as interrupts:
        swallowed = False
        threading.Timer(0.05, interrupts.abort, [RunFailed("lost")]).start()
        try:
            threading.Event().wait(30)
        except RunFailed:
            swallowed = True
        assert swallowed
        with pytest.raises(RunFailed, match="lost"):
            interrupts.settle()


def test_an_abort_ends_one_pass_and_not_the_next() -> None:
    """`RunFailed(again=True)` is caught and followed by another pass, with the same Interrupts."""
    with Interrupts() as interrupts:
        for line in ("pass 1", "pass 2"):
            interrupts.install()
            interrupts.drainable = True
            threading.Timer(0.05, interrupts.abort, [RunFailed(line, again=True)]).start()
            with pytest.raises(RunFailed, match=line):
                threading.Event().wait(1)
            interrupts.drainable = False
            interrupts.forget()
        # A third one goes well, until somebody asks it to stop.
        interrupts.install()
        interrupts.drainable = True
        interrupts.settle()
        send(signal.SIGINT, lambda: interrupts.asked)


def test_elsewhere_than_in_the_main_thread_signals_stay_as_they_are(
    handlers: dict[int, Any],
) -> None:
    found: dict[str, Any] = {}

    def elsewhere() -> None:
        with Interrupts() as interrupts:
            interrupts.install()
            interrupts.drainable = True
            found["handlers"] = {n: signal.getsignal(n) for n in BOTH}
            interrupts.abort(RunFailed("no engine"))
            try:
                interrupts.settle()
            except RunFailed as error:
                found["raised"] = str(error)
            found["asked"] = interrupts.asked

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(10)
    assert found == {"handlers": handlers, "raised": "no engine", "asked": False}
    assert {n: signal.getsignal(n) for n in BOTH} == handlers
