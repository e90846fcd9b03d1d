"""Converted answers: written from runs, read for SoWR, and scored as outputs made elsewhere."""

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
    chain,
    converted,
    converted_json,
    has_finish,
    linked,
    node,
    read_reference,
)
from ace_ray.benchmarks.stabletoolbench.names import HALLUCINATED
from ace_ray.benchmarks.stabletoolbench.outputs import read_outputs
from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, canonical_json
from ace_ray.util.safe_loading import json_of_row
from tests.benchmarks.stabletoolbench.builders import (
    BREADS,
    ENTRY,
    QUERY,
    SCRIPTS,
    SHOPS,
    TOOLS,
    entry,
    queries_file,
    query,
    run,
    state,
    write,
)

DFS = "DFS_woFilter_w2"
GROUP = ENTRY.category
ENTRIES = Entries.among([entry(), entry("8"), entry("9")])
ANSWER = converted(QUERY, TOOLS, run(SCRIPTS["answered"]))


def said(answer: dict[str, Any]) -> list[Any]:
    """Return texts of thoughts and names of calls."""
    nodes = [(one["role"], one["message"]) for one in chain(answer)]
    assert [role for role, _ in nodes[:2]] == ["system", "user"]
    return [told["name"] if role == "tool" else told for role, told in nodes[2:]]


@pytest.mark.parametrize(
    ("script", "method", "shown", "finished"),
    [
        ("answered", DFS, [BREADS, SHOPS, BREADS, "Now I know.", "Finish"], True),
        ("beside", "CoT@1", [BREADS, "Finish"], True),
        ("hallucinated", "CoT@1", [HALLUCINATED, "Finish"], True),
        ("hopeless", "CoT@1", ["Still looking.", BREADS] * 4, False),
        ("hopeless", DFS, ["Still looking.", BREADS] * 4, False),
        ("gave_up", "CoT@1", [BREADS, "No.", "Finish"], True),
        ("gave_up", DFS, ["Finish"], True),
        ("bad_finish", "CoT@1", ["Finish"] * 6, True),
    ],
)
def test_a_run_becomes_upstreams_answer(
    script: str, method: str, shown: list[str], finished: bool
) -> None:
    answer = converted(QUERY, TOOLS, run(SCRIPTS[script], method))["answer"]
    assert said(answer) == shown
    assert answer["total_steps"] == len(shown) + 2
    assert (answer["method"], has_finish(answer)) == (method, finished)
    assert ("give_up_and_restart" in answer["final_answer"]) == (
        (script, method) == ("gave_up", DFS)
    )
    if script == "answered":
        assert json.loads(answer["final_answer"])["final_answer"] == "Rye, at the “Mill”."
        nodes = [one["message"] for one in chain(answer) if one["role"] == "tool"]
        assert json.loads(nodes[0]["arguments"]) == {"q": "rye"}
        assert json.loads(nodes[2]["response"])["response"] == {"you sent": '{"q": "wheat"}'}
        assert nodes[-1]["response"] == ""


def test_the_same_try_of_several_is_shown() -> None:
    script = [(None, [(BREADS, {"q": str(number)})]) for number in range(5)]
    made = run(script, "CoT@3", max_steps=2)
    shown = converted(QUERY, TOOLS, made)
    assert len(made["tries"]) == 3
    assert shown == converted(QUERY, TOOLS, made)
    assert said(shown["answer"]) == [BREADS]


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


@pytest.mark.parametrize("script", SCRIPTS)
def test_read_answers_have_the_verdicts_of_their_run(tmp_path: Path, script: str) -> None:
    answered = script in ("answered", "beside", "hallucinated")
    # Judges say Unsolved of other runs.
    for votes in (["Unsolved", "Solved", "Solved"] if answered else ["Unsolved"] * 3, None):
        ours = state(SCRIPTS[script], votes)
        text = b"".join(converted_json([(ENTRY.id, ours["answer"]), ("8", ours["answer"])]))
        path = tmp_path / str(bool(votes))
        given = folder(path, text.decode(), votes and dict.fromkeys("78", solved(*votes)))
        one, _ = outputs(given)
        assert (one.entry, one.sample) == (ENTRY, 0)
        found, expected = verdicts(ENTRY, one.episode.state), verdicts(ENTRY, ours)
        unknown = ("cache_hit", "from_cache", "from_none")  # no source of the calls in the file
        for rules in RULE_SETS:
            kept = [
                {name: value for name, value in verdict.metrics.items() if name not in unknown}
                for verdict in (found[rules], expected[rules])
            ]
            assert found[rules].error_type == expected[rules].error_type
            assert kept[0] == kept[1]
            assert ("sopr" in kept[0]) == (votes is not None)
    read = read_reference(path, [GROUP, "G2_category"])
    assert {key: json.loads(one) for key, one in read.pop(GROUP).items()} == {
        key: ours["answer"]["answer"] for key in (ENTRY.id, "8")
    }
    assert read == {"G2_category": {}}


def test_an_answer_becomes_an_episode(tmp_path: Path) -> None:
    (output,) = outputs(folder(tmp_path, {ENTRY.id: ANSWER}))
    episode = output.episode
    assert episode.output == "Rye, at the “Mill”."
    assert episode.state["answer"] == {"query": QUERY, "answer": ANSWER["answer"]}
    assert [call["name"] for call in episode.state["calls"]] == [BREADS, SHOPS, BREADS]
    assert [call["api"] for call in episode.state["calls"]] == ["Breads", "Shops", "Breads"]
    assert [message["role"] for message in episode.messages] == [
        *("user", *("assistant", "tool") * 3, "assistant", "assistant")
    ]


def answer_of(*nodes: Any, final: str = "") -> dict[str, Any]:
    answer = {"method": "CoT@1", "total_steps": 3, "final_answer": final}
    return {"query": QUERY, "answer": answer | {"answer_details": linked(nodes)}}


def test_calls_and_their_errors_are_read(tmp_path: Path) -> None:
    cut = '{"error": "Too many requests error...", "response": "x...'
    offered = [{"name": "old_for_form"}, {"function": {"name": "new_for_form"}}, 3, {"function": 3}]
    inside = json.dumps({"name": BREADS, "arguments": {"q": 1}, "response": None})
    given = answer_of(
        called(BREADS, "{}", '{"error": "no bread", "response": ""}'),
        called(SHOPS, "{}", cut),
        called(SHOPS, "{}", '{"error": ' + "[" * 100_000),
        called(HALLUCINATED, "{}", ""),
        called("nowhere", "{}", ""),
        called("old_for_form", "{}", ""),
        called("new_for_form", "{}", ""),
        # Odd nodes are passed over or become texts.
        node("tool", inside),
        node("assistant", {"a": [1]}),
        node("tool", "[" * 100_000),
        node("poet", "rose"),
        {"role": "tool", "message": None, "next": []},
    )
    (output,) = outputs(folder(tmp_path, {ENTRY.id: given | {"available_tools": offered}}))
    calls = output.episode.state["calls"]
    assert [(call["api"], call["code"], call["error"]) for call in calls] == [
        ("Breads", 0, "no bread"),
        ("Shops", 9, "Too many requests error..."),
        ("Shops", 0, ""),
        (None, 1, "unknown function"),
        (None, 1, "unknown function"),
        (None, 0, ""),
        (None, 0, ""),
        ("Breads", 0, ""),
    ]
    assert calls[-1]["arguments"] == '{"q": 1}'
    assert output.episode.messages[-1]["content"] == '{"a": [1]}'
    metrics = verdicts(ENTRY, output.episode.state)["official"].metrics
    assert (metrics["hallucinated"], metrics["errors"], metrics["finish"]) == (2 / 8, 2 / 8, 0)


def test_a_long_chain_is_kept_from_both_its_ends(tmp_path: Path) -> None:
    made = run(SCRIPTS["talks"])
    nodes = made["tries"][0]["nodes"]
    while len(nodes) <= 3 * MAX_STORED_NODES:
        nodes.append({**nodes[1], "parent": len(nodes) - 1, "description": str(len(nodes))})
    answer = converted(QUERY, TOOLS, made)["answer"]
    assert len(said(answer)) == MAX_STORED_NODES
    assert said(answer)[-1] == str(3 * MAX_STORED_NODES)
    assert answer["total_steps"] == 3 * MAX_STORED_NODES + 2
    raw = json.dumps({"return_type": "give_answer", "final_answer": "Rye."})
    hm = [node("assistant", "Hm.") for _ in range(200)]
    given = answer_of(called(SHOPS, "{}"), *hm, called("Finish", raw), final=raw)
    (output,) = outputs(folder(tmp_path, {ENTRY.id: given}, {ENTRY.id: solved("Solved")}))
    assert output.episode.state["answer"]["answer"]["total_steps"] == 204
    assert verdicts(ENTRY, output.episode.state)["official"].valid


def test_json_lines_are_read(tmp_path: Path) -> None:
    rows = [
        {"id": "7", "output": "Rye."},
        {"id": "8", "category": GROUP, "output": ANSWER},
        {"id": "8", "output": ANSWER["answer"], "sample": 1},
        {"id": "9", "output": None},
    ]
    path = write(tmp_path / "answers.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    found = outputs(path)
    assert [(one.entry.id, one.sample) for one in found] == [("7", 0), ("8", 0), ("8", 1), ("9", 0)]
    kinds = [verdicts(one.entry, one.episode.state)["official"].error_type for one in found]
    assert kinds == ["not_judged"] * 3 + ["no_finish"]
    assert found[0].episode.output == "Rye."
    assert found[1].episode.state == found[2].episode.state
    refused(write(path, '{"id": "7", "output": 3}\n'), "the output is 3, not a text")


DEEP = '[{"role": "assistant", "message": "x", "next": ' * 450 + "[]" + "}]" * 450


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ("{", "is not valid JSON"),
        ([], "holds a list"),
        ('{"7": {}, "7": {}}', "appears twice"),
        ({"7": 3}, "query 7: has no converted answer"),
        ({"7": {"answer": {"final_answer": 3, "answer_details": []}}}, "has no converted answer"),
        ("[" * 100_000, "nested too deeply"),
        (f'{{"7": {{"answer": {{"final_answer": "x", "answer_details": {DEEP}}}}}}}', "too deeply"),
        ({}, "holds no"),
    ],
)
def test_a_bad_file_of_answers_is_named(tmp_path: Path, answers: Any, message: str) -> None:
    given = folder(tmp_path, answers)
    with pytest.raises(UserError, match=message) as caught:
        read_reference(given, [GROUP])
    assert str(tmp_path) in str(caught.value)
    if answers != {} and DEEP not in str(answers):
        refused(given, message)


@pytest.mark.parametrize(
    ("answers", "votes", "message"),
    [
        ({"77": ANSWER}, None, f"unknown id of en/{GROUP}: '77'; the nearest known one is '7'"),
        ({"7": ANSWER | {"query": "Which cake?"}}, None, "is not the data's query"),
        ({"7": ANSWER}, [], "holds a list"),
        ({"7": ANSWER}, {}, "query 7: has no votes, and other queries"),
        ({"7": ANSWER}, {"7": {"is_solved": {}}}, "has no votes (is_solved)"),
        ({"7": ANSWER}, {"7": {"is_solved": {"0": "Perhaps"}}}, "a vote is 'Perhaps'"),
        ({"7": ANSWER}, {"7": {"is_solved": {"0": ["Solved"]}}}, "a vote is ['Solved']"),
        ({"7": ANSWER}, {"7": solved(*["Solved"] * 101)}, "has no votes"),
    ],
)
def test_answers_and_votes_must_fit_the_data(
    tmp_path: Path, answers: Any, votes: Any, message: str
) -> None:
    refused(folder(tmp_path, answers, votes), message)


def test_a_source_without_answers_is_named(tmp_path: Path) -> None:
    refused(tmp_path, "holds no <group>.json")
    refused(tmp_path / "nowhere", "no such file or folder")
    os.mkfifo(tmp_path / "G1_category.json")
    refused(tmp_path / "G1_category.json", "holds no <group>.json")
    folder(tmp_path, {"7": ANSWER}, {"7": solved("Solved")})
    write(tmp_path / f"{GROUP}_other.json", {})
    refused(tmp_path, "are two files of votes")


def refused(path: Path, message: str) -> None:
    with pytest.raises(UserError) as caught:
        outputs(path)
    assert message in str(caught.value)


def test_only_the_groups_of_the_answers_are_needed(tmp_path: Path) -> None:
    write(queries_file(tmp_path, GROUP), [query(7), query(8)])
    benchmark = StableToolBench.from_options({"data": str(tmp_path)})

    def scored(path: Path) -> list[str]:
        return [o.entry.id for o in benchmark.outputs(path, benchmark.output_entries())]

    given = {"7": answer_of() | {"query": query()["query"]}}
    assert scored(folder(tmp_path / "answers", given)) == ["7"]
    lines = write(tmp_path / "answers.jsonl", '{"id": "8", "output": "Rye."}\n')
    assert scored(lines) == ["8"], "no category: the groups that the data has are searched"
    write(tmp_path / "answers" / "G2_category.json", given)
    with pytest.raises(UserError, match=r"G2_category is missing.*leave the group out"):
        scored(tmp_path / "answers")
