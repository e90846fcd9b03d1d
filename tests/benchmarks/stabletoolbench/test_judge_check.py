"""A judge measured against people's labels."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.headline import scores_of
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.converted import final_text
from ace_ray.benchmarks.stabletoolbench.judge import asking
from ace_ray.benchmarks.stabletoolbench.judge_check import agreement, read_labels
from ace_ray.errors import UserError
from ace_ray.storage.rows import metrics_of
from ace_ray.types import Entry, Episode, Sampling, canonical_json
from tests.benchmarks.scored_row import scored_row
from tests.scripted_model import Request, ScriptedModel

TEXTS = {"25 light years.": "solved", "Far, I guess.": "Unsure", "No.": "Unsolved"}
LABELS = [
    {"query_id": number, "query": "How far is Vega?", "answer": text, "label": label}
    for number, (text, label) in enumerate(TEXTS.items())
]


def judged(request: Request) -> str:
    said = "Solved" if "light years" in request.prompt else "Unsolved"
    return json.dumps({"reason": "x", "status": said})


def checked(path: Path, *rows: Any) -> Any:
    path.write_text("\n".join(map(json.dumps, rows or LABELS)))
    return make_benchmark("stabletoolbench_judge", {"labels": str(path)})


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return tmp_path / "labels.jsonl"


def episode_of(benchmark: Any, entry: Entry, judge: Any = None, **more: Any) -> Episode:
    role = RoleModel(judge or ScriptedModel(judged), more.pop("sampling", Sampling()))
    found: Episode = asyncio.run(benchmark.run(entry, EpisodeContext(role, **more)))
    return found


def test_a_judge_is_compared_with_people(labels: Path) -> None:
    benchmark = checked(labels)
    rows = []
    for entry in benchmark.entries():
        verdicts = {
            rules: replace(verdict, metrics=metrics_of(canonical_json(verdict.metrics)))
            for rules, verdict in benchmark.verdicts(entry, episode_of(benchmark, entry)).items()
        }  # as a run stores and reads them
        rows.append(scored_row(entry.category, entry.id, verdicts))
    assert [row.verdicts["strict"].valid for row in rows] == [True, False, True]
    summary = benchmark.summarize([*rows, scored_row("Solved", "9", {}, "infra_error")], 0.0)
    assert summary["agreement"]["judge_errors"] == 1
    assert summary["table"]["lines"][1] == ["Unsure", "0", "0", "1"]
    assert "66.7 %" in summary["comparable"]
    (score,) = scores_of(type(benchmark), summary, headline=True)["official"]
    assert score.estimate is not None
    assert score.estimate.value == pytest.approx(2 / 3)
    again = [replace(row, sample=1) for row in rows]
    (layout,) = benchmark.summarize([*rows, *again], 0.0)["further_tables"]
    assert layout["lines"][-1] == ["Unsolved", "strict", "1", "2", *["100.0 % [20.7, 100.0]"] * 2]
    same = make_benchmark("stabletoolbench_judge", benchmark.resolved())
    assert same.identity() == benchmark.identity()


def test_the_judge_draws_as_the_config_says(labels: Path) -> None:
    benchmark = checked(labels)
    for given, drawn in (
        (Sampling(), asking.SAMPLING),
        (Sampling(0.9, max_tokens=64, seed=5), Sampling(0.2, max_tokens=64, seed=5)),
    ):
        model = ScriptedModel(judged)
        for attempt in (1, 1, 2):  # a row that is tried again has another seed
            entry = benchmark.dataset()[0]
            episode_of(benchmark, entry, model, sampling=given, attempt=attempt)
        first, same, other = (request.sampling for request in model.asked)
        assert replace(first, seed=drawn.seed, schema="") == drawn
        assert first.seed == same.seed != other.seed


def chained(nodes: int) -> dict[str, Any]:
    details: list[Any] = []
    for _ in range(nodes):
        details = [{"role": "assistant", "message": "x", "next": details}]
    answer = {"final_answer": "x", "answer_details": details}
    return {"query_id": 3, "query": "q", "label": "Unsolved", "answer": answer}


def test_labels_are_texts_or_converted_answers(labels: Path) -> None:
    long = chained(300)
    benchmark = checked(labels, LABELS[0], long, {**long, "answer": {"answer": long["answer"]}})
    entries = read_labels(labels)
    assert [one.category for one in entries] == ["Solved", "Unsolved", "Unsolved"]
    assert [one.group for one in entries] == ["0", "3", "3"]
    text, nested, whole = (json.loads(one.data["answer"]) for one in entries)
    assert final_text(text["final_answer"]) == "25 light years."
    assert nested == whole == long["answer"]
    # A long chain travels to a worker.
    entry = pickle.loads(pickle.dumps(benchmark.dataset()[1]))
    benchmark = pickle.loads(pickle.dumps(benchmark))
    assert benchmark.prompt(entry)
    assert episode_of(benchmark, entry).output == "Unsolved", "it does not end in Finish"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (LABELS[0] | {"label": "yes"}, "label is 'yes'; write Solved, Unsure, Unsolved"),
        (LABELS[0] | {"label": None}, "label is None"),
        (LABELS[0] | {"query": ""}, "query is ''"),
        (LABELS[0] | {"query_id": True}, "query_id is True"),
        (LABELS[0] | {"answer": {"final_answer": "x"}}, "answer is neither a text nor a converted"),
        (chained(450), "too deeply"),
        ({"query_id": 1, "query": "q"}, "has no answer"),
        ([1], "holds a list"),
    ],
)
def test_a_bad_label_is_named_by_file_and_line(labels: Path, row: Any, said: str) -> None:
    with pytest.raises(UserError) as found:
        checked(labels, LABELS[0], row)
    assert f"{labels}:2: " in str(found.value)
    assert said in str(found.value)


def test_agreement_is_accuracy_and_cohens_kappa() -> None:
    people = ["Solved"] * 45 + ["Unsolved"] * 25 + ["Solved"] * 15 + ["Unsolved"] * 15
    judge = ["Solved"] * 45 + ["Unsolved"] * 25 + ["Unsolved"] * 15 + ["Solved"] * 15
    found = agreement([*people, "Unsure"], [*judge, None])
    assert (found["n"], found["judge_errors"]) == (100, 1)
    assert found["accuracy"] == 0.7
    # Observed 0.7, by chance 0.6 * 0.6 + 0.4 * 0.4 = 0.52.
    assert found["kappa"] == pytest.approx(0.18 / 0.48)
    assert found["confusion"]["Solved"] == {"Solved": 45, "Unsure": 0, "Unsolved": 15}
    low, high = found["accuracy_interval"]
    assert low < 0.7 < high
    assert agreement(["Solved"] * 3, ["Solved"] * 3)["kappa"] is None, "chance agrees always"
    nothing = agreement(["Solved"], [None])
    assert (nothing["n"], nothing["accuracy"], nothing["kappa"]) == (0, None, None)
    assert agreement(["Solved", "Unsolved"], ["Solved", "Unsolved"])["kappa"] == 1.0
