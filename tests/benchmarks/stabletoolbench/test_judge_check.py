"""A judge measured against labels."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.protocol import Player, Stage
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench import judge
from ace_ray.errors import UserError
from ace_ray.records import Completion, Sampling, Verdict

LABELS = [
    {"query_id": 1, "query": "How far is Vega?", "answer": "25 light years.", "label": "solved"},
    {"query_id": 2, "query": "How hot is it?", "answer": "Warm, I guess.", "label": "Unsure"},
    {"query_id": 2, "query": "How hot is it?", "answer": "I am sorry.", "label": "Unsolved"},
]


class Judge:
    """Solved for all that has a number in it, else Unsolved."""

    async def chat(self, messages: Any, *_: Any, **__: Any) -> Completion:
        said = "Solved" if "light years" in messages[-1]["content"] else "Unsolved"
        return Completion(json.dumps({"reason": "x", "status": said}), prompt_tokens=3)


@dataclass
class Row:
    category: str
    id: str
    verdicts: dict[str, Verdict]
    status: str = "scored"
    language: str = "en"
    group: str = ""
    sample: int = 0


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(map(json.dumps, LABELS)))
    return path


def test_how_far_a_judge_agrees(labels: Path) -> None:
    benchmark = make_benchmark("stabletoolbench_judge", {"labels": str(labels)})
    rows = []
    for entry in benchmark.entries():
        stage = Stage(Player(Judge(), Sampling()))
        episode = asyncio.run(benchmark.run_episode(entry, stage))
        rows.append(Row(entry.category, entry.id, dict(benchmark.check(entry, episode))))
    assert [row.verdicts["strict"].valid for row in rows] == [True, False, True]
    summary = benchmark.summarize([*rows, Row("Solved", "9", {}, "infra_error")], 0.0)
    assert summary["agreement"]["accuracy"] == pytest.approx(2 / 3)
    assert summary["agreement"]["judge_errors"] == 1
    assert summary["table"]["lines"][1] == ["Unsure", "0", "0", "1"]
    assert "66.7 %" in summary["comparable"]


def test_the_temperature_is_the_judges(labels: Path) -> None:
    asked: list[Sampling] = []

    class Noting(Judge):
        async def chat(self, messages: Any, sampling: Sampling, *_: Any, **__: Any) -> Completion:
            asked.append(sampling)
            return await super().chat(messages)

    for given, wanted in (({}, judge.SAMPLING.temperature), ({"temperature": 0.9}, 0.9)):
        benchmark = make_benchmark("stabletoolbench_judge", {"labels": str(labels), **given})
        stage = Stage(Player(Noting(), Sampling()))
        asyncio.run(benchmark.run_episode(benchmark.entries()[0], stage))
        assert {sampling.temperature for sampling in asked} == {wanted}
        assert benchmark.identity()["protocol"]["temperature"] == wanted
        asked.clear()


def test_what_is_resolved_makes_the_same_benchmark(labels: Path) -> None:
    one = make_benchmark("stabletoolbench_judge", {"labels": str(labels), "votes": 2})
    again = make_benchmark("stabletoolbench_judge", one.resolved())
    assert again.identity() == one.identity()
    assert all(one.prompt(entry)[0]["content"] for entry in one.entries())


@pytest.mark.parametrize(
    ("text", "part"),
    [("", "blank"), ('{"query_id": 1}', "has no query"), ("[", "labels.jsonl")],
)
def test_bad_labels_are_one_line(labels: Path, text: str, part: str) -> None:
    labels.write_text(text)
    with pytest.raises(UserError, match=part):
        make_benchmark("stabletoolbench_judge", {"labels": str(labels)})
