"""Running counts: a bug is the same exception in every row."""

from __future__ import annotations

from typing import Any

from ace_ray.pipeline.actors.coordinator import MOST_BUGS, Coordinator
from ace_ray.pipeline.monitoring.counts import Tally


def ended(status: str) -> tuple[Any, ...]:
    return (0, "toy", "en", status, {"correct": 1.0}, 1, 1)


def told(rows: int, place: str = "KeyError in toy.py:7") -> Coordinator:
    coordinator = Coordinator([])
    for _ in range(rows):
        coordinator.bug("toy", place, "Traceback ...")
        coordinator.rows([ended("infra_error")])
    return coordinator


def tally(coordinator: Coordinator) -> Tally:
    return coordinator.read()


def test_the_same_exception_in_every_row_is_a_bug() -> None:
    found = tally(told(3)).bug(3)
    assert found is not None
    assert found.line == (
        "each of 3 rows ended in the same exception of the code of toy: KeyError in toy.py:7"
    )
    assert tally(told(3)).bug(4) is None


def test_a_row_with_a_verdict_or_another_failure_makes_it_none() -> None:
    for status in ("scored", "infra_error"):
        coordinator = told(3)
        coordinator.rows([ended(status)])
        assert tally(coordinator).bug(1) is None
    coordinator = told(3)
    coordinator.bug("toy", "KeyError in toy.py:8", "Traceback ...")
    coordinator.rows([ended("infra_error")])
    assert tally(coordinator).bug(1) is None
    assert tally(told(0)).bug(1) is None


def test_few_places_are_kept() -> None:
    coordinator = Coordinator([])
    for number in range(3 * MOST_BUGS):
        coordinator.bug("toy", f"KeyError in toy.py:{number}", "x")
    assert len(tally(coordinator).bugs) == MOST_BUGS
