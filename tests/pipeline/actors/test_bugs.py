"""Which exceptions of a row say something of the benchmark's code."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.models.reasoning import split_think
from ace_ray.pipeline.actors.judging import MOST_CHARS, report_bug


def told(raises: Callable[[], Any]) -> list[tuple[str, str, str]]:
    """What the coordinator is told of the exception of ``raises``."""
    calls: list[tuple[str, str, str]] = []
    coordinator = SimpleNamespace(bug=SimpleNamespace(remote=lambda *call: calls.append(call)))
    try:
        raises()
    except Exception:  # noqa: BLE001 - any
        report_bug(coordinator, "toy")
    return calls


def missing() -> None:
    raise KeyError("\ud800" + "x" * 10_000)


def test_an_exception_of_its_own_is_told_with_its_place() -> None:
    ((benchmark, place, text),) = told(missing)
    assert benchmark == "toy"
    assert place.startswith("KeyError in ")
    assert "test_bugs.py:" in place
    assert len(text) <= MOST_CHARS
    text.encode("ascii")


def test_one_in_a_library_that_it_calls_is_told_too() -> None:
    ((_, place, _),) = told(lambda: json.loads("{"))
    assert place.startswith("JSONDecodeError in ")


@pytest.mark.parametrize(
    "error", [OSError("full"), TimeoutError(), ConnectionError(), MemoryError()]
)
def test_what_the_machine_raises_may_pass(error: Exception) -> None:
    def raises() -> None:
        raise error

    assert told(raises) == []


def test_what_the_cluster_raises_may_pass() -> None:
    from ray.exceptions import GetTimeoutError, RayActorError

    for error in (GetTimeoutError("late"), RayActorError()):

        def raises(error: Exception = error) -> None:
            raise error

        assert told(raises) == []


def test_what_a_model_raises_may_pass() -> None:
    assert told(lambda: split_think(3)) == []  # type: ignore[arg-type]
