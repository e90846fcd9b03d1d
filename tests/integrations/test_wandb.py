"""The calls that W&B is sent."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ace_ray.integrations.trackers import Point, Publication, WandBOptions, to_wandb

HEADLINE = "acebench/official/headline"


class Run:
    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.logged: list[Any] = []
        self.steps: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.finished = False
        self.url = "https://host/entity/project/runs/id"
        self.settings = SimpleNamespace(mode="online")
        self.resumed, self.path = True, "entity/project/id"

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.steps[name] = step_metric

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


def test_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []
    module = ModuleType("wandb")

    def init(**asked: Any) -> Run:
        runs.append(Run(asked))
        return runs[-1]

    def api() -> Any:
        held = [{HEADLINE: 1.0, "x/y": 3.0, "train_step": 100, "_step": 0}, {"_runtime": 3}]
        return SimpleNamespace(run=lambda path: SimpleNamespace(scan_history=lambda: iter(held)))

    module.init = init  # type: ignore[attr-defined]
    module.Api = api  # type: ignore[attr-defined]
    module.Settings = lambda **settings: settings  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    points = [Point(100, {HEADLINE: 1.0, "x/y": 3.0}), Point(50, {HEADLINE: 2.0})]
    curve = Publication("key-1", "train", "sweep-1", {"a.b": 1}, {"says": "so"}, points)
    assert to_wandb(WandBOptions(project="p"), curve) == "https://host/entity/project/runs/id"
    (run,) = runs
    asked = run.asked
    assert (asked["id"], asked["resume"], asked["group"]) == ("key-1", "allow", "sweep-1")
    assert (asked["project"], asked["config"]) == ("p", {"a.b": 1})
    assert run.logged == [{HEADLINE: 2.0, "train_step": 50}], "it holds the other"
    assert run.steps == {"train_step": None, HEADLINE: "train_step", "x/y": "train_step"}
    assert run.summary == {HEADLINE: 2.0, "says": "so"}
    assert run.finished
