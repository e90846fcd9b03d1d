"""What a pass tells Prometheus, with Ray's meters replaced by ones that remember."""

from __future__ import annotations

import re
from typing import Any

import pytest
import ray.util.metrics

from ace_ray.pipeline.actors.coordinator import Coordinator
from ace_ray.pipeline.health.processes import ProcessInfo
from ace_ray.pipeline.monitoring import metrics
from ace_ray.pipeline.monitoring.metrics import PREFIX, RUN_TAGS, SPECS, Metrics

Series = tuple[tuple[str, str], ...]


class Meter:
    """Keeps the values of each set of tags; as strict about tags as Ray's."""

    made: dict[str, Meter]

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description.endswith(".")
        self.keys = tag_keys
        self.values: dict[Series, float] = {}
        self.runs: set[tuple[tuple[str, str], float]] = set()
        Meter.made[name] = self

    def _series(self, tags: dict[str, str]) -> Series:
        every = tags
        assert set(every) == set(self.keys)
        assert all(isinstance(value, str) for value in every.values())
        return tuple(sorted((k, v) for k, v in tags.items() if k not in RUN_TAGS))

    def inc(self, value: float, tags: dict[str, str]) -> None:
        assert value > 0, "Ray refuses it"
        series = self._series(tags)
        self.runs.add(((tags["run_id"], tags["model"]), value))
        self.values[series] = self.values.get(series, 0) + value

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.runs.add(((tags["run_id"], tags["model"]), value))
        self.values[self._series(tags)] = value


@pytest.fixture(autouse=True)
def meters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Meter]:
    Meter.made = {}
    monkeypatch.setattr(ray.util.metrics, "Counter", Meter)
    monkeypatch.setattr(ray.util.metrics, "Gauge", Meter)
    return Meter.made


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator([], metrics=lambda: Metrics([("run-1", "model-1", 40)]))


def row(status: str = "scored", official: Any = True, strict: Any = False, **over: Any) -> Any:
    benchmark, language = over.get("benchmark", "toy"), over.get("language", "en")
    return (
        over.get("run", 0),
        benchmark,
        language,
        status,
        {"official": official, "strict": strict} if official is not None else {},
        over.get("prompt", 3),
        5,
    )


def process(kind: Any = "engine", actor: str = "a", pid: int = 1) -> ProcessInfo:
    return ProcessInfo(kind, actor, "host", "node", pid, 1.0)


def value(meters: dict[str, Meter], name: str, **tags: str) -> float:
    return meters[f"{PREFIX}{name}"].values[tuple(sorted(tags.items()))]


def test_names_are_prometheus_names_and_unique() -> None:
    names = [spec.name for spec in SPECS]
    assert len(set(names)) == len(names)
    for spec in SPECS:
        assert re.fullmatch(rf"{PREFIX}[a-z_]+", spec.name)
        # Ray appends it to counters; a second one would stand in the scraped name.
        assert not spec.name.endswith("_total")
        assert spec.scraped.startswith(f"ray_{PREFIX}")
        assert spec.scraped.endswith("_total") == (spec.kind == "counter")
        assert not set(spec.tags) & {*RUN_TAGS, "row_id", "id"}
    every = {item for item in vars(metrics).values() if isinstance(item, metrics.Spec)}
    assert every == set(SPECS)


def test_every_metric_is_tagged_with_its_run(
    coordinator: Coordinator, meters: dict[str, Meter]
) -> None:
    assert len(meters) == len(SPECS)
    coordinator.rows([row()])
    coordinator.stored(0, 1)
    coordinator.read()
    for meter in meters.values():
        assert meter.keys[:2] == RUN_TAGS
        assert {run for run, _ in meter.runs} <= {("run-1", "model-1")}
    assert meters[f"{PREFIX}rows_stored"].runs


def test_runs_of_a_lane_have_their_own_tags(meters: dict[str, Meter]) -> None:
    coordinator = Coordinator(
        [], metrics=lambda: Metrics([("r0", "m0", 0), ("r1", "m1", 5), ("r2", "m2", 6)])
    )
    coordinator.read()
    assert meters[f"{PREFIX}rows_planned"].runs == {(("r1", "m1"), 5)}
    coordinator.rows([row(run=1), row(run=2)])
    coordinator.stored(1, 1)
    coordinator.read()
    assert meters[f"{PREFIX}rows"].runs == {(("r1", "m1"), 1), (("r2", "m2"), 1)}
    assert meters[f"{PREFIX}rows_stored"].runs == {(("r1", "m1"), 1)}
    assert (("r2", "m2"), 6) in meters[f"{PREFIX}rows_planned"].runs


def test_rows_are_counted_by_their_end(coordinator: Coordinator, meters: dict[str, Meter]) -> None:
    coordinator.rows([row(), row("infra_error", None, None), row(language="zh"), row(prompt=0)])
    coordinator.rows([row("quarantined", None, None)])
    coordinator.rows([])
    english = {"benchmark": "toy", "language": "en"}
    assert value(meters, "rows", **english, status="scored") == 2
    assert value(meters, "rows", **english, status="infra_error") == 1
    assert value(meters, "rows", **english, status="quarantined") == 1
    assert value(meters, "rows", benchmark="toy", language="zh", status="scored") == 1
    assert value(meters, "tokens", benchmark="toy", kind="prompt") == 12
    assert value(meters, "tokens", benchmark="toy", kind="completion") == 25


def test_gauges_follow_the_coordinator(coordinator: Coordinator, meters: dict[str, Meter]) -> None:
    coordinator.starting(process(actor="a"))
    coordinator.starting(process(actor="b"))
    coordinator.ready(process(actor="a"), {})
    coordinator.starting(process("checker", actor="c"))
    coordinator.ready(process("checker", actor="c"), {})
    coordinator.enter(process(actor="a"), ["1", "2", "3"])
    coordinator.enter(process("checker", actor="c"), ["4"])
    coordinator.notice("results cannot be stored yet: no luck")
    coordinator.read()
    shown = {
        name: value(meters, name) for name in ("engines", "engines_starting", "rows_in_flight")
    }
    assert shown == {"engines": 1, "engines_starting": 1, "rows_in_flight": 3}
    assert value(meters, "rows_planned") == 40
    assert value(meters, "store_refusing") == 1
    coordinator.leave(process(actor="a"), ["1", "2"])
    coordinator.notice("")
    coordinator.read()
    assert value(meters, "rows_in_flight") == 1
    assert value(meters, "store_refusing") == 0
    coordinator.dying(process(actor="a"), "dead", None)
    coordinator.read()
    assert value(meters, "rows_in_flight") == 0
    assert value(meters, "engines") == 0


def test_accuracy_is_of_scored_rows_only(
    coordinator: Coordinator, meters: dict[str, Meter]
) -> None:
    coordinator.rows([row(), row(official=False), row(), row(), row("infra_error", None, None)])
    coordinator.rows([row(language="zh", official=False)])
    coordinator.read()
    english = {"benchmark": "toy", "language": "en"}
    assert value(meters, "accuracy", **english, rules="official") == 0.75
    assert value(meters, "accuracy", **english, rules="strict") == 0.0
    assert value(meters, "accuracy", benchmark="toy", language="zh", rules="official") == 0.0
    assert len(meters[f"{PREFIX}accuracy"].values) == 4
