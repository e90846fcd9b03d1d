"""Limits of processor time, for what hostile texts must not take, and of waiting for a state."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CPU_S = 3.0
"""For a short text: a linear pattern takes a thousandth of it."""


class OutOfTime(BaseException):
    """Not to be caught by what is tested."""


@contextmanager
def cpu_limit(name: str, seconds: float = CPU_S) -> Iterator[None]:
    """Raises after so much of this process's CPU time; `re` looks for signals while it searches."""

    def interrupt(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except OutOfTime:
        raise AssertionError(f"{name} took more than {seconds:g} s of CPU time") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def until(condition: Callable[[], Any], seconds: float = 600) -> Any:
    """Wait until ``condition`` is true, and return it."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it never happens"
        time.sleep(0.005)
    return value
