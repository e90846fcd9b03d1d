"""Converted answers made elsewhere as episodes: calls, votes, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.outputs import Entries, Output
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.check import verdicts
from ace_ray.benchmarks.stabletoolbench.converted import (
    MAX_STORED_NODES,
    called,
    converted,
    linked,
    node,
)
from ace_ray.benchmarks.stabletoolbench.names import HALLUCINATED
from ace_ray.benchmarks.stabletoolbench.outputs import read_outputs
from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, canonical_json
from ace_ray.util.safe_loading import json_of_row
from tests.benchmarks.stabletoolbench.stb_rows import (
    BREADS,
    ENTRY,
    QUERY,
    SCRIPTS,
    SHOPS,
    TOOLS,
    entry,
    run,
    state,
)
from tests.benchmarks.stabletoolbench.synthetic_stb_checkout import queries_file, query

GROUP = ENTRY.category
ENTRIES = Entries.among([entry(), entry("8"), entry("9")])
ANSWER = converted(QUERY, TOOLS, run(SCRIPTS["answered"]))
JUDGED = ("sopr", "vote_0", "vote_1", "vote_2")
UNKNOWN_SOURCE = ("cache_hit", "from_cache", "from_none")
"""Who answered a call is not in a converted answer."""


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def folder(tmp_path: Path, answers: Any, votes: Any = None) -> Path:
    write(tmp_path / f"{GROUP}.json", answers)
    if votes is not None:
        write(tmp_path / f"{GROUP}_a-model.json", votes)
    return tmp_path


def outputs(path: Path) -> list[Output]:
    found = list(read_outputs(path, ENTRIES))
    for output in found:
        json_of_row(canonical_json(output.episode.state))  # as a stored row is read
    return found


def solved(*statuses: str) -> dict[str, Any]:
    numbered = [(str(n), f"AnswerStatus.{status}") for n, status in enumerate(statuses)]
    return {"query": QUERY, "is_solved": dict(reversed(numbered))}


@pytest.mark.parametrize("votes", [None, ["Unsolved", "Solved", "Solved"], ["Unsure"] * 3])
@pytest.mark.parametrize("script", SCRIPTS)
def test_verdicts_are_those_of_the_run_that_wrote_the_answers(
    tmp_path: Path, script: str, votes: list[str] | None
) -> None:
    """But for what only the run knows: who answered a call."""
    if votes and script not in ("answered", "beside", "hallucinated"):
        votes = ["Unsolved"] * 3  # as judges of both say of what is no answer
    ours = state(SCRIPTS[script], votes)
    given = {ENTRY.id: {**ours["answer"], "available_tools": TOOLS}}
    beside = None if votes is None else {ENTRY.id: solved(*votes)}
    (output,) = outputs(folder(tmp_path, given, beside))
    assert (output.entry, output.sample) == (ENTRY, 0)
    found, expected = verdicts(ENTRY, output.episode.state), verdicts(ENTRY, ours)
    for rules in RULE_SETS:
        assert found[rules].error_type == expected[rules].error_type
        assert known(found[rules].metrics) == known(expected[rules].metrics)
        assert ("sopr" in found[rules].metrics) == (votes is not None)


def known(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name not in UNKNOWN_SOURCE}


def test_without_votes_an_answer_is_not_judged(tmp_path: Path) -> None:
    (output,) = outputs(folder(tmp_path, {ENTRY.id: ANSWER}))
    assert output.episode.state["votes"] is None
    for verdict in verdicts(ENTRY, output.episode.state).values():
        assert (verdict.valid, verdict.error_type) == (False, "not_judged")
        assert not set(JUDGED) & set(verdict.metrics)
        assert verdict.metrics["finish"] == verdict.metrics["api_recall"] == 1


def test_the_episode(tmp_path: Path) -> None:
    (output,) = outputs(folder(tmp_path, {ENTRY.id: ANSWER}))
    episode = output.episode
    assert episode.output == "Rye, at the “Mill”."
    assert episode.state["answer"] == {"query": QUERY, "answer": ANSWER["answer"]}
    assert [call["name"] for call in episode.state["calls"]] == [BREADS, SHOPS, BREADS]
    assert [call["api"] for call in episode.state["calls"]] == ["Breads", "Shops", "Breads"]
    assert [message["role"] for message in episode.messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant", "tool"),
        *("assistant", "assistant"),
    ]


def answer_of(*nodes: Any, final: str = "") -> dict[str, Any]:
    answer = {"method": "CoT@1", "total_steps": 3, "final_answer": final}
    return {"query": QUERY, "answer": answer | {"answer_details": linked(nodes)}}


def test_calls_and_how_they_went(tmp_path: Path) -> None:
    cut = '{"error": "Too many requests error...", "response": "x...'
    offered = [{"name": "old_for_form"}, {"function": {"name": "new_for_form"}}, 3, {"function": 3}]
    given = answer_of(
        called(BREADS, "{}", '{"error": "", "response": {}}'),
        called(BREADS, "{}", '{"error": "no bread", "response": ""}'),
        called(SHOPS, "{}", cut),
        called(SHOPS, "{}", '{"error": ' + "[" * 100_000),
        called(HALLUCINATED, "{}", ""),
        called("nowhere", "{}", ""),
        called("old_for_form", "{}", ""),
        called("new_for_form", "{}", ""),
    )
    (output,) = outputs(folder(tmp_path, {ENTRY.id: given | {"available_tools": offered}}))
    calls = output.episode.state["calls"]
    assert [(call["api"], call["code"], call["error"]) for call in calls] == [
        ("Breads", 0, ""),
        ("Breads", 0, "no bread"),
        ("Shops", 9, "Too many requests error..."),
        ("Shops", 0, ""),
        (None, 1, "unknown function"),
        (None, 1, "unknown function"),
        (None, 0, ""),
        (None, 0, ""),
    ]
    metrics = verdicts(ENTRY, output.episode.state)["official"].metrics
    assert metrics["hallucinated"] == 2 / 8
    assert metrics["errors"] == 2 / 8
    assert metrics["finish"] == 0


def test_odd_nodes_are_passed_over_or_become_texts(tmp_path: Path) -> None:
    inside = json.dumps({"name": BREADS, "arguments": {"q": 1}, "response": None})
    given = answer_of(
        node("assistant", {"a": [1]}),
        node("tool", inside),
        node("tool", "no JSON"),
        node("tool", "[" * 100_000),
        node("tool", {"name": 3}),
        node("poet", "rose"),
        {"role": "tool", "message": None, "next": []},
    )
    (output,) = outputs(folder(tmp_path, {ENTRY.id: given}))
    (first, second) = output.episode.state["calls"]
    assert (first["name"], first["arguments"], first["api"]) == (BREADS, '{"q": 1}', "Breads")
    assert (second["name"], second["code"]) == ("3", 1)
    assert output.episode.messages[1]["content"] == '{"a": [1]}'


def test_a_long_chain_is_kept_from_both_its_ends(tmp_path: Path) -> None:
    raw = json.dumps({"return_type": "give_answer", "final_answer": "Rye."})
    nodes = [called(SHOPS, "{}"), *[node("assistant", "Hm.")] * 200, called("Finish", raw)]
    given = answer_of(*[dict(one) for one in nodes], final=raw)
    (output,) = outputs(folder(tmp_path, {ENTRY.id: given}, {ENTRY.id: solved("Solved")}))
    assert output.episode.state["answer"]["answer"]["total_steps"] == 204
    assert len(output.episode.messages) > MAX_STORED_NODES
    assert verdicts(ENTRY, output.episode.state)["official"].valid


def test_json_lines(tmp_path: Path) -> None:
    rows = [
        {"id": "7", "output": "Rye."},
        {"id": "8", "category": GROUP, "output": ANSWER},
        {"id": "8", "output": ANSWER["answer"], "sample": 1},
        {"id": "9", "output": None},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = outputs(path)
    assert [(one.entry.id, one.sample) for one in found] == [("7", 0), ("8", 0), ("8", 1), ("9", 0)]
    kinds = [verdicts(one.entry, one.episode.state)["official"].error_type for one in found]
    assert kinds == ["not_judged"] * 3 + ["no_finish"]
    assert found[0].episode.output == "Rye."
    assert found[1].episode.state == found[2].episode.state


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([], "holds a list"),
        ({}, "holds no outputs"),
        ({"7": 3}, "query 7: has no converted answer"),
        ({"7": {"answer": {"final_answer": 3, "answer_details": []}}}, "has no converted answer"),
        ({"77": ANSWER}, f"unknown id of en/{GROUP}: '77'; the nearest known one is '7'"),
        ({"7": ANSWER | {"query": "Which cake?"}}, "is not the data's query"),
        ({"7": ANSWER | {"query": 3}}, "asks 3, which"),
    ],
)
def test_answers_that_are_none(tmp_path: Path, answers: Any, message: str) -> None:
    refused(folder(tmp_path, answers), message)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ([], "holds a list"),
        ({}, "query 7: has no votes, and other queries"),
        ({"7": {}}, "has no votes (is_solved)"),
        ({"7": {"is_solved": {}}}, "has no votes (is_solved)"),
        ({"7": {"is_solved": "AnswerStatus.Solved"}}, "has no votes (is_solved)"),
        ({"7": {"is_solved": {"0": "Perhaps"}}}, "a vote is 'Perhaps'"),
        ({"7": {"is_solved": {"0": ["Solved"]}}}, "a vote is ['Solved']"),
        ({"7": {"is_solved": {str(n): "Solved" for n in range(101)}}}, "has no votes"),
    ],
)
def test_votes_that_are_none(tmp_path: Path, votes: Any, message: str) -> None:
    refused(folder(tmp_path, {"7": ANSWER}, votes), message)


def test_sources_that_are_none(tmp_path: Path) -> None:
    refused(tmp_path, "holds no <group>.json")
    refused(tmp_path / "nowhere", "no such file or folder")
    path = tmp_path / f"{GROUP}.json"
    path.write_text('{"7": {}, "7": {}}')
    refused(path, "appears twice")
    path.write_text('{"7": ' + "[" * 100_000)
    refused(path, "nested too deeply")
    folder(tmp_path, {"7": ANSWER}, {"7": solved("Solved")})
    write(tmp_path / f"{GROUP}_other.json", {})
    refused(tmp_path, "are two files of votes")
    os.mkfifo(tmp_path / "G1_category.json")
    refused(tmp_path / "G1_category.json", "holds no <group>.json")


def refused(path: Path, message: str) -> None:
    with pytest.raises(UserError) as caught:
        outputs(path)
    assert message in str(caught.value)


def test_files_of_a_run_are_read_again(tmp_path: Path) -> None:
    """What a run writes under ``files/`` is in the same form."""
    benchmark = StableToolBench.from_options({"data": "mini", "judge": "none"})
    first = benchmark.entries()[0]
    answer = converted(first.data["query"], benchmark.tools(first) or [], run(SCRIPTS["talks"]))
    write(tmp_path / f"{first.category}.json", {first.id: answer})
    (output,) = read_outputs(tmp_path, Entries.among(benchmark.entries()))
    found = benchmark.check(output.entry, output.episode)
    assert found["official"].error_type == "no_finish"


def test_only_the_groups_of_the_answers_are_needed(tmp_path: Path) -> None:
    write(queries_file(tmp_path, GROUP), [query(7), query(8)])
    benchmark = StableToolBench.from_options({"data": str(tmp_path)})

    def scored(path: Path) -> list[str]:
        return [o.entry.id for o in benchmark.outputs(path, benchmark.output_entries())]

    given = {"7": answer_of() | {"query": query()["query"]}}
    assert scored(folder(tmp_path / "answers", given)) == ["7"]
    lines = tmp_path / "answers.jsonl"
    lines.write_text('{"id": "8", "output": "Rye."}\n')
    assert scored(lines) == ["8"], "no category: the groups that the data has are searched"
    write(tmp_path / "answers" / "G2_category.json", given)
    with pytest.raises(UserError, match=r"G2_category is missing.*leave the group out"):
        scored(tmp_path / "answers")
