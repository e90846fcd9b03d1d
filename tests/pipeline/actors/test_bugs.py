"""Which exceptions of a row are reported as a bug in the benchmark's code."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import GetTimeoutError, RayActorError

from ace_ray.models.reasoning import split_think
from ace_ray.pipeline.actors.judging import MOST_CHARS, report_bug


def reported(raises: Callable[[], Any]) -> list[tuple[str, str, str]]:
    """Return what the coordinator is told about the exception of ``raises``."""
    calls: list[tuple[str, str, str]] = []
    coordinator = SimpleNamespace(bug=SimpleNamespace(remote=lambda *call: calls.append(call)))
    try:
        raises()
    except Exception:  # noqa: BLE001 - any
        report_bug(coordinator, "toy")
    return calls


def raising(error: Exception) -> Callable[[], Any]:
    def raises() -> None:
        raise error

    return raises


def test_exceptions_of_the_benchmark_and_its_libraries_are_reported_with_their_place() -> None:
    ((benchmark, place, text),) = reported(raising(KeyError("\ud800" + "x" * 10_000)))
    assert benchmark == "toy"
    assert place.startswith("KeyError in ")
    assert "test_bugs.py:" in place
    assert len(text) <= MOST_CHARS
    text.encode("ascii")
    ((_, place, _),) = reported(lambda: json.loads("{"))
    assert place.startswith("JSONDecodeError in ")


@pytest.mark.parametrize(
    "raises",
    [
        raising(OSError("full")),
        raising(MemoryError()),
        raising(GetTimeoutError("late")),
        raising(RayActorError()),
        lambda: split_think(3),  # type: ignore[arg-type]
    ],
    ids=["machine", "memory", "cluster", "actor", "model"],
)
def test_transient_exceptions_are_not_reported(raises: Callable[[], Any]) -> None:
    assert reported(raises) == []
