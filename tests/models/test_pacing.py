"""When an endpoint is asked, and when no more."""

from __future__ import annotations

import pytest

from ace_ray.models.pacing import Breaker, Pacer, backoff_s, retry_after_s


def test_turns_are_evenly_spaced_and_held_when_asked() -> None:
    pacer = Pacer(120)
    assert [pacer.reserve(10.0) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert pacer.reserve(100.0) == 0.0
    pacer.hold(100.0, 7.0)
    assert pacer.reserve(100.0) == 7.0
    unlimited = Pacer(None)
    assert [unlimited.reserve(1.0) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_the_breaker() -> None:
    clock = [0.0]
    breaker = Breaker(limit=2, cooldown_s=10, clock=lambda: clock[0])
    breaker.failed()
    breaker.answered()
    breaker.failed()
    assert not breaker.is_open
    breaker.failed()
    assert breaker.is_open
    clock[0] = 11
    assert breaker.on_trial
    breaker.failed()
    assert breaker.is_open
    clock[0] = 22
    breaker.answered()
    assert not breaker.on_trial
    assert not breaker.is_open


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 0),
        ("3", 3),
        ("1.5", 1.5),
        ("-4", 0),
        ("nan", 0),
        ("inf", 0),
        ("1e999", 0),
        ("soon", 0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90),
        ("Thu, 01 Jan 99999 00:00:00 GMT", 0),
    ],
)
def test_retry_after(header: str, seconds: float) -> None:
    assert retry_after_s(header, now=10.0) == seconds


def test_backoff_doubles_up_to_a_limit() -> None:
    assert 0.5 <= backoff_s(1) <= 1.0
    assert 4.0 <= backoff_s(4) <= 8.0
    assert 30.0 <= backoff_s(100) <= 60.0
