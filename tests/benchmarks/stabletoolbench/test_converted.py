"""Agents' runs as upstream's converted answers, written and read for SoWR."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.converted import (
    MAX_STORED_NODES,
    chain,
    converted,
    converted_json,
    final_text,
    has_finish,
    read_reference,
)
from ace_ray.errors import UserError
from ace_ray.util.safe_loading import json_of_row
from tests.benchmarks.stabletoolbench.stb_rows import BREADS, QUERY, SCRIPTS, SHOPS, TOOLS, run

DFS = "DFS_woFilter_w2"


def answer_of(made: dict[str, Any]) -> dict[str, Any]:
    found = converted(QUERY, TOOLS, made)
    assert (found["query"], found["available_tools"]) == (QUERY, TOOLS)
    answer: dict[str, Any] = found["answer"]
    json.dumps(answer)
    return answer


def said(answer: dict[str, Any]) -> list[Any]:
    """Texts of thoughts and names of calls."""
    roles = [node["role"] for node in chain(answer)]
    assert roles[:2] == ["system", "user"]
    return [
        node["message"]["name"] if node["role"] == "tool" else node["message"]
        for node in chain(answer)
    ][2:]


@pytest.mark.parametrize("method", ["CoT@1", DFS])
def test_an_answer(method: str) -> None:
    answer = answer_of(run(SCRIPTS["answered"], method))
    # The thought beside a call is dropped, the one alone is not.
    assert said(answer) == [BREADS, SHOPS, BREADS, "Now I know.", "Finish"]
    assert answer["total_steps"] == 7
    assert answer["method"] == method
    assert json.loads(answer["final_answer"])["final_answer"] == "Rye, at the “Mill”."
    nodes = [node["message"] for node in chain(answer) if node["role"] == "tool"]
    assert json.loads(nodes[0]["arguments"]) == {"q": "rye"}
    assert json.loads(nodes[2]["response"])["response"]["given"] == '{"q": "wheat"}'
    assert nodes[-1]["response"] == ""
    assert has_finish(answer)


def test_a_call_beside_finish_is_kept() -> None:
    answer = answer_of(run(SCRIPTS["beside"]))
    assert said(answer) == [BREADS, "Finish"]
    assert final_text(answer["final_answer"]) == "Rye."


def test_a_hallucinated_name_is_shown_as_upstream_shows_it() -> None:
    assert said(answer_of(run(SCRIPTS["hallucinated"]))) == [
        "invalid_hallucination_function_name",
        "Finish",
    ]


@pytest.mark.parametrize(
    ("script", "shown", "finished"),
    [
        ("hopeless", ["Still looking.", BREADS] * 4, False),
        ("gave_up", [BREADS, "No.", "Finish"], True),
        ("talks", ["Bread is good."] * 12, False),
        ("bad_finish", ["Finish"] * 6, True),
    ],
)
def test_a_chain_without_an_answer_is_shown_whole(
    script: str, shown: list[str], finished: bool
) -> None:
    answer = answer_of(run(SCRIPTS[script]))
    assert said(answer) == shown
    assert answer["final_answer"] == ""
    assert answer["total_steps"] == len(shown) + 2
    assert has_finish(answer) is finished


def test_one_of_several_tries_is_shown_always_the_same() -> None:
    script = [(None, [(BREADS, {"q": str(number)})]) for number in range(5)]
    made = run(script, "CoT@3", max_steps=2)
    shown = answer_of(made)
    assert len(made["tries"]) == 3
    assert shown == answer_of(made)
    assert said(shown) == [BREADS]


def test_a_tree_that_gave_up_ends_in_the_give_up() -> None:
    answer = answer_of(run(SCRIPTS["gave_up"], DFS))
    assert "give_up_and_restart" in answer["final_answer"]
    assert said(answer)[-1] == "Finish"


def test_a_tree_without_an_end_is_shown_from_root_to_leaf() -> None:
    made = run(SCRIPTS["hopeless"], DFS, max_queries=5)
    answer = answer_of(made)
    names = said(answer)
    assert names == ["Still looking.", BREADS] * (len(names) // 2)
    assert answer["final_answer"] == ""


def test_an_endless_chain_is_shown_from_both_its_ends() -> None:
    made = run(SCRIPTS["talks"])
    nodes = made["tries"][0]["nodes"]
    while len(nodes) <= 3 * MAX_STORED_NODES:
        nodes.append({**nodes[1], "parent": len(nodes) - 1, "description": str(len(nodes))})
    answer = answer_of(made)
    assert len(said(answer)) == MAX_STORED_NODES
    state = {"answer": {"query": QUERY, "answer": answer}}
    assert json_of_row(json.dumps(state)) == state, "a stored row can be read"
    assert said(answer)[-1] == str(3 * MAX_STORED_NODES)
    assert answer["total_steps"] == 3 * MAX_STORED_NODES + 2


ANSWER = converted(QUERY, TOOLS, run(SCRIPTS["answered"]))
OTHER = converted(QUERY, TOOLS, run(SCRIPTS["beside"]))


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    written = b"".join(converted_json([("1", ANSWER), ("2", OTHER)]))
    (tmp_path / "G1_tool.json").write_bytes(written)
    found = read_reference(tmp_path, ["G1_tool", "G2_category"])
    read = {
        group: {one: json.loads(text) for one, text in of.items()} for group, of in found.items()
    }
    assert read == {
        "G1_tool": {"1": ANSWER["answer"], "2": OTHER["answer"]},
        "G2_category": {},
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "holds a list"),
        ('{"1": 3}', "query 1: has no converted answer"),
        ('{"1": {"answer": {"final_answer": 3, "answer_details": []}}}', "query 1: has no"),
        ('{"1": {}, "1": {}}', "appears twice"),
        ("{}", "holds no answers of these groups"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_reference_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "G1_tool.json").write_text(text)
    with pytest.raises(UserError, match=said):
        read_reference(tmp_path, ["G1_tool"])


def test_the_published_shape(tmp_path: Path) -> None:
    """A root without anything below, as upstream converts a run that never began."""
    tree: dict[str, Any] = {"role": "system", "message": "", "next": []}
    answer: dict[str, Any] = {"method": "CoT@1", "total_steps": 1, "final_answer": ""}
    answer["answer_details"] = [tree]
    text = json.dumps({"588": {"query": "q", "available_tools": [], "answer": answer}})
    (tmp_path / "G1_tool.json").write_text(text)
    assert read_reference(tmp_path, ["G1_tool"])["G1_tool"]["588"] == json.dumps(answer)
