"""How many checkers a graph has."""

from __future__ import annotations

from ace_ray.run.checker_pool import BEHIND_S, wanted


def test_one_that_keeps_up_stays_alone() -> None:
    assert wanted(0, 1.0, 1, 8) == 1
    assert wanted(16, BEHIND_S / 16, 1, 8) == 1
    # However many wait, if they take no time.
    assert wanted(10_000, 1e-4, 1, 8) == 1


def test_as_many_as_their_speed_asks_for() -> None:
    assert wanted(30, BEHIND_S / 10, 2, 8) == 3
    assert wanted(300, BEHIND_S / 10, 2, 8) == 4, "twice as many at a time"
    assert wanted(300, BEHIND_S / 10, 8, 12) == 12, "what the cluster holds"
    assert wanted(0, BEHIND_S, 5, 12) == 5, "none ends"
