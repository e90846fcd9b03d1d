"""Running counts of a run: progress lines, bugs in a benchmark's code, and Prometheus metrics."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import ray.util.metrics
from ray.exceptions import GetTimeoutError, RayActorError

from ace_ray.pipeline.actors.coordinator import Coordinator
from ace_ray.pipeline.actors.verdicts import MOST_CHARS, report_bug
from ace_ray.pipeline.health.heartbeat import Death
from ace_ray.pipeline.monitoring.metrics import Metrics
from ace_ray.pipeline.monitoring.tally import Progress, RowReport
from tests.pipeline.conftest import judged_row, process

CHECKER, ENGINE = process(kind="checker"), process(actor="a")
STARTED = {"worker": "host:1", "load_s": 41.2, "start_s": {"fetch": 0.1, "process": 28.6}}
NOTICE = "results cannot be stored yet"


def test_progress_tells_how_far_engines_have_started(clock, log_lines) -> None:
    coordinator, progress = Coordinator([]), Progress(5)
    progress.show(coordinator.read())
    for actor, phase in (("a", "weights"), ("b", "cache"), ("c", "weights")):
        coordinator.register_start(process(actor=actor))
        coordinator.update_process(process(actor=actor), phase=phase)
    clock.time_s += 60
    progress.show(coordinator.read())
    waits = ["starting engines ... 0 s", "starting engines ... 60 s (2 weights, 1 cache)"]
    assert log_lines == waits
    coordinator.update_process(ENGINE, facts=STARTED)
    clock.time_s += 60
    for _ in range(2):
        progress.show(coordinator.read())
    ready = "the first engine is ready, 41 s after its process began: fetch 0 s, process 29 s"
    assert log_lines == [*waits, ready, "0/5 rows"]


def test_progress_tells_rows_accuracies_speed_and_failures(clock, log_lines) -> None:
    coordinator = Coordinator([])
    coordinator.register_start(ENGINE)
    coordinator.update_process(ENGINE, facts=STARTED)
    coordinator.note_loaded(0, {})
    clock.time_s += 4
    judged = [judged_row(), judged_row(official=False), judged_row(status="infra_error")]
    coordinator.note_unless_stopped(CHECKER, RowReport(judged=judged, notice=NOTICE))
    coordinator.update_process(ENGINE, death=Death("dead"))
    Progress(5).show(coordinator.read())
    assert log_lines[-1].split(" | ") == [
        *("3/5 rows", "toy en: official 0.500 strict 0.000"),
        *("9 prompt + 15 output tokens, 6 tokens/s", "about 3 s left"),
        *("1 not scored", "1 engine crash(es)", NOTICE),
    ]


def with_bug(rows: int) -> Coordinator:
    coordinator = Coordinator([])
    for _ in range(rows):
        coordinator.count_bug("toy", "KeyError in toy.py:7", "Traceback ...")
        coordinator.note_unless_stopped(
            CHECKER, RowReport(judged=[judged_row(status="infra_error")])
        )
    return coordinator


def test_progress_is_shown_every_minute_though_no_row_ends(monkeypatch, clock, log_lines) -> None:
    coordinator, progress = Coordinator([]), Progress(8, "endpoint worker")
    coordinator.note_unless_stopped(CHECKER, RowReport(judged=[judged_row()]))
    monkeypatch.setattr(time, "time", lambda: -clock.time_s)  # it may be set back
    for _ in range(13):
        progress.show(coordinator.read())
        clock.time_s += 10
    assert len(log_lines) == 3
    progress.show(Coordinator([]).read())
    assert log_lines[-1].startswith("starting endpoint workers ... ")


def test_same_exception_in_every_row_is_a_bug() -> None:
    bug = with_bug(3).read().bug(3)
    assert bug is not None
    assert bug.line.endswith("the same exception in the code of toy: KeyError in toy.py:7")
    assert with_bug(3).read().bug(4) is with_bug(0).read().bug(1) is None
    for status in ("scored", "infra_error"):
        coordinator = with_bug(3)
        coordinator.note_unless_stopped(CHECKER, RowReport(judged=[judged_row(status=status)]))
        assert coordinator.read().bug(1) is None


def test_transient_exceptions_are_not_reported_as_bugs() -> None:
    calls: list[tuple[str, str, str]] = []
    coordinator = SimpleNamespace(
        count_bug=SimpleNamespace(remote=lambda *call: calls.append(call))
    )

    def report(error: Exception) -> None:
        try:
            raise error
        except Exception:  # noqa: BLE001 - any
            report_bug(coordinator, "toy")

    for error in (OSError("full"), MemoryError(), GetTimeoutError("late"), RayActorError()):
        report(error)
    assert calls == []
    report(KeyError("\ud800" + "x" * 10_000))
    ((benchmark, location, text),) = calls
    assert (benchmark, location.partition(" in ")[0]) == ("toy", "KeyError")
    assert "test_tally.py:" in location
    assert len(text) <= MOST_CHARS
    text.encode("ascii")


class Meter:
    """A counter or gauge that keeps its values by tags."""

    meters: dict[str, Meter]

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        self.keys, self.values = tag_keys, defaultdict[tuple[str, ...], float](float)
        Meter.meters[name] = self

    def inc(self, value: float, tags: dict[str, str]) -> None:
        assert value > 0, "Ray refuses it"
        self.values[tuple(tags[key] for key in self.keys)] += value

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.values[tuple(tags[key] for key in self.keys)] = value


Values = Callable[[str], dict[tuple[str, ...], float]]
RUN = ("r1", "m1")
"""The tags of the run that is evaluated."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> tuple[Coordinator, Values]:
    """Return the coordinator of two runs, and the function that reads a metric by tags."""
    Meter.meters = {}
    monkeypatch.setattr(ray.util.metrics, "Counter", Meter)
    monkeypatch.setattr(ray.util.metrics, "Gauge", Meter)
    coordinator = Coordinator([], metrics=lambda: Metrics([("r0", "m0", 0), (*RUN, 5)]))

    def values(name: str) -> dict[tuple[str, ...], float]:
        coordinator.read()
        return dict(Meter.meters[f"ace_ray_{name}"].values)

    return coordinator, values


def test_metrics_count_rows_and_tokens_with_the_tags_of_their_run(measured: Any) -> None:
    coordinator, values = measured
    assert values("rows_planned") == {RUN: 5}
    rows = [judged_row(1), judged_row(1, official=False), judged_row(1, status="infra_error")]
    rows.append(judged_row(0, status="skipped"))
    coordinator.note_unless_stopped(CHECKER, RowReport(1, judged=rows, stored=3))
    scored, failed = ((*RUN, "toy", "en", status) for status in ("scored", "infra_error"))
    assert values("rows") == {("r0", "m0", "toy", "en", "skipped"): 1, scored: 2, failed: 1}
    tokens = values("tokens")
    assert [tokens[(*RUN, "toy", kind)] for kind in ("prompt", "completion")] == [9, 15]
    assert values("rows_stored") == {RUN: 3}
    assert values("accuracy")[(*RUN, "toy", "en", "official")] == 0.5


def test_metrics_show_engines_rows_in_flight_and_a_refusing_store(measured: Any) -> None:
    coordinator, values = measured
    coordinator.register_start(ENGINE)
    coordinator.update_process(ENGINE, facts={})
    coordinator.note_unless_stopped(ENGINE, RowReport(entered=["1", "2", "3"]))
    coordinator.register_start(process(actor="b"))
    coordinator.note_unless_stopped(CHECKER, RowReport(notice=NOTICE))
    gauges = ("engines", "engines_starting", "rows_in_flight", "store_refusing")
    assert [values(name)[RUN] for name in gauges] == [1, 1, 3, 1]
    coordinator.note_unless_stopped(CHECKER, RowReport(1, stored=1))
    coordinator.update_process(ENGINE, death=Death("dead"))
    assert [values(name)[RUN] for name in gauges] == [0, 2, 0, 0]
    assert values("deaths") == {(*RUN, "engine"): 1}
