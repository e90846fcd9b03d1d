"""Agents' runs as upstream's raw and converted answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.results.answers import (
    MAX_STORED_NODES,
    chain,
    final_text,
    has_finish,
)
from ace_ray.benchmarks.stabletoolbench.results.convert import (
    converted,
)
from ace_ray.bounded import json_of_row
from tests.benchmarks.stabletoolbench.raw_answers import raw
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


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_raw_answer_of_a_chain(script: str) -> None:
    made = run(SCRIPTS[script])
    found = json.loads(json.dumps(raw(QUERY, TOOLS, made, max_steps=12)))
    generation = found["answer_generation"]
    won = script in ("answered", "beside", "hallucinated")
    assert (found["win"], found["try_count"], generation["valid_data"]) == (won, 1, won)
    assert found["trys"][0]["win"] is won
    assert len(found["compare_candidates"]) == int(won)
    assert found["forward_args"] == {"single_chain_max_step": 12, "pass_at": 1, "answer": 1}
    assert generation["query_count"] == made["query_count"]
    nodes = found["trys"][0]["chain"]
    assert [node["depth"] for node in nodes] == list(range(1, len(nodes) + 1))
    assert [node["child_count"] for node in nodes] == [1] * (len(nodes) - 1) + [0]
    for node in nodes:
        assert ("observation" in node) == (node["node_type"] == "Action Input")
    assert bool(generation["train_messages"]) is won
    assert bool(generation["final_answer"]) is won


def test_the_raw_answer_of_a_tree() -> None:
    made = run(SCRIPTS["gave_up"], DFS, max_queries=9)
    found = raw(QUERY, TOOLS, made, max_steps=12, max_queries=9)
    assert found["forward_args"]["tree_beam_size"] == 2
    assert found["answer_generation"]["finish_type"] == "give_up"
    assert found["tree"]["size"] == len(made["tries"][0]["nodes"])
    root = found["tree"]["tree"]
    assert (root["node_type"], root["depth"], root["child_count"]) == ("Action Input", 0, 2)

    def count(node: dict[str, Any]) -> int:
        assert node["child_count"] == len(node["children"])
        return 1 + sum(map(count, node["children"]))

    assert count(root) == found["tree"]["size"]
