"""A checkpoint counts once it has stayed as it is for a while."""

from __future__ import annotations

import pytest

from ace_ray.sweep.checkpoints import Checkpoint, Settling


class Looks:
    """`Settling` on a clock of the test's own."""

    def __init__(self, settle_s: float) -> None:
        self.now = 1000.0
        self._settling = Settling(settle_s, lambda: self.now)

    def at(self, seconds: float, *found: Checkpoint) -> list[int]:
        self.now = 1000.0 + seconds
        return [checkpoint.step for checkpoint in self._settling.look(found)]


@pytest.fixture
def looks() -> Looks:
    return Looks(60)


def a(state: str = "1", *, lacks: str = "", step: int = 1) -> Checkpoint:
    return Checkpoint(f"step_{step}", step, f"/run/step_{step}", state, lacks)


def test_what_was_never_seen_has_not_settled(looks: Looks) -> None:
    assert looks.at(0, a()) == []
    assert looks.at(59.9, a()) == []
    assert looks.at(60, a()) == [1]
    assert looks.at(61, a()) == [1]


def test_a_change_begins_anew(looks: Looks) -> None:
    assert looks.at(0, a("1")) == []
    assert looks.at(50, a("2")) == []
    assert looks.at(109, a("2")) == []
    assert looks.at(110, a("2")) == [1]
    assert looks.at(111, a("3")) == []
    assert looks.at(171, a("3")) == [1]


def test_a_change_and_back_is_a_change(looks: Looks) -> None:
    looks.at(0, a("1"))
    looks.at(30, a("2"))
    assert looks.at(60, a("1")) == []
    assert looks.at(120, a("1")) == [1]


def test_what_lacks_something_never_settles(looks: Looks) -> None:
    looks.at(0, a(lacks="a shard is missing"))
    assert looks.at(1000, a(lacks="a shard is missing")) == []
    # The last shard makes another state of it.
    assert looks.at(1001, a("2")) == []
    assert looks.at(1061, a("2")) == [1]


def test_each_for_itself(looks: Looks) -> None:
    looks.at(0, a(step=1))
    looks.at(30, a(step=1), a(step=2))
    assert looks.at(60, a(step=1), a(step=2)) == [1]
    assert looks.at(90, a(step=1), a("2", step=2)) == [1]
    assert looks.at(150, a(step=1), a("2", step=2)) == [1, 2]


def test_without_a_settle_time_the_first_look_counts() -> None:
    assert Looks(0).at(0, a()) == [1]
    assert Looks(0).at(0, a(lacks="x")) == []
