"""W&B: offline for real where it is installed, else the calls that it is sent."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ace_ray.publishers.base import Point, Publication
from ace_ray.publishers.wandb import WandB, WandBOptions
from tests.track.made import sweep_of, whole

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

    module.init = init  # type: ignore[attr-defined]
    module.Settings = lambda **settings: settings  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setenv("WANDB_BASE_URL", "https://host")
    publisher = WandB(WandBOptions(project="p", entity="e"))
    assert publisher.place().split() == ["https://host", "e", "p"]
    points = [Point(100, {HEADLINE: 1.0, "x/y": 3.0}), Point(50, {HEADLINE: 2.0})]
    whole_curve = Publication("key-1", "train", "sweep-1", {"a.b": 1}, {"says": "so"}, points)
    assert publisher.publish(whole_curve, points[1:]) == "https://host/entity/project/runs/id"
    (run,) = runs
    asked = run.asked
    assert (asked["id"], asked["resume"], asked["group"]) == ("key-1", "allow", "sweep-1")
    assert (asked["project"], asked["entity"], asked["config"]) == ("p", "e", {"a.b": 1})
    assert run.logged == [{HEADLINE: 2.0, "train_step": 50}], "no step=: W&B's only rise"
    assert run.steps == {"train_step": None, HEADLINE: "train_step", "x/y": "train_step"}
    assert run.summary == {"says": "so"}
    assert run.finished


def test_offline(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    for words in ("2 points sent", "nothing new"):
        ended = here("publish", sweep, "--to", "wandb")
        assert ended.code == 0, ended.stderr
        assert words in ended.stdout
    (file,) = tmp_path.rglob("*.wandb")
    logged = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in one.history.item}
        for one in records(file)
        if one.WhichOneof("record_type") == "history"
    ]
    assert [line["train_step"] for line in logged] == [100, 200]
    assert logged[1][HEADLINE] == 100.0


def records(file: Path) -> list[Any]:
    """What an offline run of W&B holds."""
    from wandb.proto import wandb_internal_pb2

    # A log as LevelDB's: blocks of 32 KiB, of parts (checksum, length, which part) of records.
    content, at, found, record = file.read_bytes(), 7, [], b""
    while at + 7 <= len(content):
        left = 32_768 - at % 32_768
        length, part = struct.unpack("<HB", content[at + 4 : at + 7])
        if left < 7 or part == 0:
            at += left
            continue
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):  # whole, or the last part
            found.append(wandb_internal_pb2.Record.FromString(record))
            record = b""
    return found
