"""A judge measured against labels."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.headline import scores_of
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.judge import asking
from ace_ray.errors import UserError
from ace_ray.storage.rows import metrics_of
from ace_ray.types import Sampling, canonical_json
from tests.benchmarks.scored_row import scored_row
from tests.scripted_model import Request, ScriptedModel

LABELS = [
    {"query_id": 1, "query": "How far is Vega?", "answer": "25 light years.", "label": "solved"},
    {"query_id": 2, "query": "How hot is it?", "answer": "Warm, I guess.", "label": "Unsure"},
    {"query_id": 2, "query": "How hot is it?", "answer": "I am sorry.", "label": "Unsolved"},
]


def judged(request: Request) -> str:
    """Solved for all that has a number in it, else Unsolved."""
    said = "Solved" if "light years" in request.prompt else "Unsolved"
    return json.dumps({"reason": "x", "status": said})


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(map(json.dumps, LABELS)))
    return path


def test_how_far_a_judge_agrees(labels: Path) -> None:
    benchmark = make_benchmark("stabletoolbench_judge", {"labels": str(labels)})
    rows = []
    for entry in benchmark.entries():
        context = EpisodeContext(RoleModel(ScriptedModel(judged), Sampling()))
        episode = asyncio.run(benchmark.run(entry, context))
        verdicts = {
            rules: replace(verdict, metrics=metrics_of(canonical_json(verdict.metrics)))
            for rules, verdict in benchmark.verdicts(entry, episode).items()
        }  # as a run stores and reads them
        rows.append(scored_row(entry.category, entry.id, verdicts))
    assert [row.verdicts["strict"].valid for row in rows] == [True, False, True]
    summary = benchmark.summarize([*rows, scored_row("Solved", "9", {}, "infra_error")], 0.0)
    assert summary["agreement"]["accuracy"] == pytest.approx(2 / 3)
    assert summary["agreement"]["judge_errors"] == 1
    assert summary["table"]["lines"][1] == ["Unsure", "0", "0", "1"]
    assert "66.7 %" in summary["comparable"]
    (score,) = scores_of(type(benchmark), summary, headline=True)["official"]
    assert score.estimate is not None
    assert score.estimate.value == pytest.approx(2 / 3)
    assert "further_tables" not in summary
    again = [replace(row, sample=1) for row in rows]
    (layout,) = benchmark.summarize([*rows, *again], 0.0)["further_tables"]
    assert layout["lines"][-1] == ["Unsolved", "strict", "1", "2", *["100.0 % [20.7, 100.0]"] * 2]


@pytest.mark.parametrize(
    ("given", "drawn"),
    [
        (Sampling(), asking.SAMPLING),
        (Sampling(max_tokens=64, seed=5), Sampling(0.2, max_tokens=64, seed=5)),
        (Sampling(max_tokens=4096), Sampling(0.2, max_tokens=4096)),
        (
            Sampling(0.9, top_p=0.5, top_k=20, stop=("</s>",)),
            Sampling(0.2, top_p=0.5, top_k=20, max_tokens=1000, stop=("</s>",)),
        ),
    ],
)
def test_the_judge_draws_as_the_config_says(labels: Path, given: Sampling, drawn: Sampling) -> None:
    (asked,) = questions(labels, given)
    assert replace(asked, seed=drawn.seed, schema="") == drawn
    assert json.loads(asked.schema)["required"] == ["reason", "answer_status"]


def test_a_row_is_tried_again_with_other_seeds(labels: Path) -> None:
    seeds = [questions(labels, Sampling(), attempt)[0].seed for attempt in (1, 1, 2, 3)]
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 3


def questions(labels: Path, given: Sampling, attempt: int = 1) -> list[Sampling]:
    """How the judge of the first label was asked."""
    model = ScriptedModel(judged)
    benchmark = make_benchmark("stabletoolbench_judge", {"labels": str(labels)})
    context = EpisodeContext(RoleModel(model, given), attempt=attempt)
    asyncio.run(benchmark.run(benchmark.dataset()[0], context))
    return [request.sampling for request in model.asked]


def chained(path: Path, nodes: int) -> Path:
    """A file of labels whose second answer is a chain of so many nodes."""
    opened, closed = '[{"role": "assistant", "message": "x", "next": ' * nodes, "}]" * nodes
    answer = f'{{"final_answer": "x", "answer_details": {opened}[]{closed}}}'
    row = f'{{"query_id": 3, "query": "q", "label": "Unsolved", "answer": {answer}}}'
    path.write_text(f"{json.dumps(LABELS[0])}\n{row}\n")
    return path


def test_a_label_with_a_long_chain_travels(tmp_path: Path) -> None:
    path = chained(tmp_path / "labels.jsonl", 400)
    benchmark = make_benchmark("stabletoolbench_judge", {"labels": str(path)})
    entry = pickle.loads(pickle.dumps(benchmark.dataset()[1]))
    benchmark = pickle.loads(pickle.dumps(benchmark))
    assert benchmark.identity()
    assert benchmark.prompt(entry)
    episode = asyncio.run(
        benchmark.run(entry, EpisodeContext(RoleModel(ScriptedModel(judged), Sampling())))
    )
    assert episode.output == "Unsolved", "it does not end in Finish"


@pytest.mark.parametrize("nodes", [450, 5_000])
def test_a_label_that_is_nested_too_deeply_is_named_by_its_line(tmp_path: Path, nodes: int) -> None:
    path = chained(tmp_path / "labels.jsonl", nodes)
    with pytest.raises(UserError, match="too deeply") as found:
        make_benchmark("stabletoolbench_judge", {"labels": str(path)})
    assert f"{path}:2: " in str(found.value)


def test_what_is_resolved_makes_the_same_benchmark(labels: Path) -> None:
    one = make_benchmark("stabletoolbench_judge", {"labels": str(labels), "votes": 2})
    again = make_benchmark("stabletoolbench_judge", one.resolved())
    assert again.identity() == one.identity()
    assert all(one.prompt(entry)[0]["content"] for entry in one.entries())


@pytest.mark.parametrize(
    ("text", "part"),
    [("", "is empty"), ('{"query_id": 1}', "has no query"), ("[", "labels.jsonl")],
)
def test_bad_labels_are_one_line(labels: Path, text: str, part: str) -> None:
    labels.write_text(text)
    with pytest.raises(UserError, match=part):
        make_benchmark("stabletoolbench_judge", {"labels": str(labels)})
