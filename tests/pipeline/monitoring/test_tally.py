"""Running counts of a run: progress lines, bugs in a benchmark's code, and Prometheus metrics."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import ray.util.metrics
from ray.exceptions import GetTimeoutError, RayActorError

from ace_ray.pipeline.actors.coordinator import Coordinator
from ace_ray.pipeline.actors.verdicts import MOST_CHARS, report_bug
from ace_ray.pipeline.health.heartbeat import Death, Kind, ProcessInfo
from ace_ray.pipeline.monitoring.metrics import PREFIX, Metrics
from ace_ray.pipeline.monitoring.tally import LOG_EVERY_S, Progress, RowReport, Tally


def process(kind: Kind, actor: str) -> ProcessInfo:
    return ProcessInfo(kind, actor, "host", "node", 1, 1.0)


CHECKER = process("checker", "c")


def row(run: int = 0, language: str = "en", status: str = "scored", official: Any = True) -> Any:
    scores = {"official": official, "strict": False} if status == "scored" else {}
    return (run, "toy", language, status, scores, 3, 5)


def test_progress_tells_start_rows_accuracy_and_failures(log_lines: list[str]) -> None:
    tally = Tally()
    view = Progress(5)
    assert view.line(tally) == "starting engines ... 0 s"
    tally.phases = Counter({"cache": 1, "weights": 3})
    assert view.line(tally) == "starting engines ... 0 s (3 weights, 1 cache)"
    tally.workers = [{"load_s": 41.2, "start_s": {"fetch": 0.1, "process": 28.6}}] * 2
    view.show(tally)
    view.show(tally)
    ready = "the first engine is ready after 41 s: fetch 0 s, process 29 s"
    assert log_lines == [ready, "0/5 rows"]
    tally.add([row(), row(official=False), row(status="infra_error")])
    tally.deaths, tally.notice = ["host:1"], "results cannot be stored yet"
    tally.counts_of(0).ready_at, tally.counts_of(0).last_row_at = 100.0, 104.0
    assert view.line(tally) == (
        "3/5 rows | toy en: official 0.500 strict 0.000 | 9 prompt + 15 output tokens, "
        "6 tokens/s | about 3 s left | "
        "1 not scored | 1 engine crash(es) | results cannot be stored yet"
    )


def with_bug(rows: int) -> Coordinator:
    coordinator = Coordinator([])
    for _ in range(rows):
        coordinator.count_bug("toy", "KeyError in toy.py:7", "Traceback ...")
        coordinator.accept(CHECKER, RowReport(judged=[row(status="infra_error")]))
    return coordinator


def test_progress_goes_on_after_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
) -> None:
    wall = time.time()
    progress = Progress(8)
    progress.show(Tally())
    monkeypatch.setattr(time, "time", lambda: wall - 3600)
    later = time.monotonic() + LOG_EVERY_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    progress.show(Tally())
    assert len(log_lines) == 2


def test_same_exception_in_every_row_is_a_bug() -> None:
    bug = with_bug(3).read().bug(3)
    assert bug is not None
    assert bug.line == (
        "each of 3 rows failed with the same exception in the code of toy: KeyError in toy.py:7"
    )
    assert with_bug(3).read().bug(4) is with_bug(0).read().bug(1) is None
    for status in ("scored", "infra_error"):
        coordinator = with_bug(3)
        coordinator.accept(CHECKER, RowReport(judged=[row(status=status)]))
        assert coordinator.read().bug(1) is None


def test_transient_exceptions_are_not_reported_as_bugs() -> None:
    calls: list[tuple[str, str, str]] = []
    coordinator = SimpleNamespace(bug=SimpleNamespace(remote=lambda *call: calls.append(call)))

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
    assert "test_counts.py:" in location
    assert len(text) <= MOST_CHARS
    text.encode("ascii")


class Meter:
    """A counter or gauge that keeps its values by tags."""

    meters: dict[str, Meter]

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        self.keys, self.values = tag_keys, defaultdict[tuple[str, ...], float](float)
        Meter.meters[name.removeprefix(PREFIX)] = self

    def inc(self, value: float, tags: dict[str, str]) -> None:
        assert value > 0, "Ray refuses it"
        self.values[tuple(tags[key] for key in self.keys)] += value

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.values[tuple(tags[key] for key in self.keys)] = value


def test_metrics_follow_the_coordinator_with_the_tags_of_their_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Meter.meters = {}
    monkeypatch.setattr(ray.util.metrics, "Counter", Meter)
    monkeypatch.setattr(ray.util.metrics, "Gauge", Meter)
    coordinator = Coordinator([], metrics=lambda: Metrics([("r0", "m0", 0), ("r1", "m1", 5)]))

    def values(name: str) -> dict[tuple[str, ...], float]:
        coordinator.read()
        return dict(Meter.meters[name].values)

    run = ("r1", "m1")
    assert values("rows_planned") == {run: 5}
    rows = [row(1), row(1, official=False), row(1, status="infra_error")]
    coordinator.accept(CHECKER, RowReport(1, judged=rows, stored=3))
    scored, failed = ((*run, "toy", "en", status) for status in ("scored", "infra_error"))
    assert values("rows") == {scored: 2, failed: 1}
    assert values("tokens") == {(*run, "toy", "prompt"): 9, (*run, "toy", "completion"): 15}
    assert values("rows_stored") == {run: 3}
    assert values("accuracy")[(*run, "toy", "en", "official")] == 0.5
    engine = process("engine", "a")
    coordinator.register_start(engine)
    coordinator.update_process(engine, facts={})
    coordinator.accept(engine, RowReport(entered=["1", "2", "3"]))
    coordinator.register_start(process("engine", "b"))
    coordinator.accept(CHECKER, RowReport(notice="results cannot be stored yet"))
    gauges = ("engines", "engines_starting", "rows_in_flight", "store_refusing")
    assert [values(name)[run] for name in gauges] == [1, 1, 3, 1]
    coordinator.accept(CHECKER, RowReport(1, stored=1))
    coordinator.update_process(engine, death=Death("dead"))
    assert [values(name)[run] for name in gauges] == [0, 2, 0, 0]
    assert values("deaths") == {(*run, "engine"): 1}
