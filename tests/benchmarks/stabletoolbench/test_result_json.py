"""The result JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.check import verdicts
from ace_ray.benchmarks.stabletoolbench.converted import converted
from ace_ray.benchmarks.stabletoolbench.result_json import Metadata, result_json
from ace_ray.types import Entry
from tests.benchmarks.stabletoolbench.stb_rows import (
    BREADS,
    ENTRY,
    QUERY,
    SCRIPTS,
    TOOLS,
    entry,
    finish,
    run,
    state,
)

METADATA = Metadata(
    framework="SmolLM2",
    test_set="G1_tool",
    evaluator_model="judge",
    evaluation_method="official",
    overall_time_s=15.58,
    timestamp="2024-01-15 10:30:45",
)
ROWS = [
    (entry("588"), state(SCRIPTS["answered"], ["Solved"] * 3) | {"judged_s": 1.5}),
    (
        entry("608", [["Bakery Finder", "Breads"], ["Bakery Finder", "Cakes"]]),
        state(SCRIPTS["hopeless"], ["Unsolved"] * 3) | {"judged_s": 0.5},
    ),
    (entry("1073"), {}),
]


def written(rows: list[tuple[Entry, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result_json(METADATA, rows))
    return found


def test_the_whole_file() -> None:
    found = written(ROWS)
    assert list(found) == ["metadata", "summary", "results"]
    assert found["metadata"] == {
        "framework": "SmolLM2",
        "config": {
            "test_set": "G1_tool",
            "num_queries": 3,
            "evaluator_model": "judge",
            "evaluation_method": "official",
        },
        "overall_time": 15.58,
        "timestamp": "2024-01-15 10:30:45",
    }
    assert found["summary"] == {
        "total_queries": 2,
        "total_evaluations": 2,
        "solved_count": 1,
        "solved_percentage": 50.0,
        "finish_count": 1,
        "average_sopr_score": 0.5,
        "average_api_call_score": 0.75,
        "total_evaluation_time": 2.0,
        "average_evaluation_time": 1.0,
        "not_scored": 1,
    }
    assert [row["query_id"] for row in found["results"]] == ["588", "608"]


def test_one_result() -> None:
    (found, other) = written(ROWS)["results"]
    assert list(found) == [
        "query_id",
        "query_text",
        "gold_answer",
        "system_answer",
        "scores",
        "evaluation",
        "timing",
    ]
    assert found["query_text"] == QUERY
    assert found["gold_answer"]["relevant_apis"] == [["Bakery Finder", "Breads"]]
    (tool,) = found["gold_answer"]["available_tools"]
    assert (tool["category"], tool["tool_name"]) == ("Food", "Bakery Finder")
    assert [api["api_name"] for api in tool["apis"]] == ["Breads", "Shops"]
    assert found["scores"] == {"sopr_score": 1.0, "api_call_score": 1.0}
    assert found["evaluation"] == {
        "answer_status": "Solved",
        "has_finish": True,
        "evaluation_method": "official",
    }
    assert found["timing"] == {"evaluation_time": 1.5}
    assert found["system_answer"]["final_answer"] == "Rye, at the “Mill”."
    (system,) = found["system_answer"]["answer_details"]
    assert (system["role"], system["message"]) == ("system", "")
    node = system["next"][0]["next"][0]
    assert node["role"] == "tool"
    assert json.loads(node["message"])["name"] == BREADS
    assert json.loads(node["message"])["arguments"] == {"q": "rye"}
    assert other["scores"] == {"sopr_score": 0.0, "api_call_score": 0.5}
    assert other["evaluation"]["has_finish"] is False


def test_a_finish_anywhere_in_the_answer_counts() -> None:
    """Upstream's pass rate, and the metric ``finish``, want it at the end."""
    script: list[Any] = [(None, [("Finish", "{")]), (None, [(BREADS, {"q": "rye"})])]
    given = state(script, ["Unsolved"])
    found = written([(entry("1"), given)])
    assert found["results"][0]["evaluation"]["has_finish"] is True
    assert found["summary"]["finish_count"] == 1
    assert verdicts(ENTRY, given)["official"].metrics["finish"] == 0


@pytest.mark.parametrize(
    ("framework", "test_set", "path"),
    [
        ("org/SmolLM2", "all", "results/tools/SmolLM2_all.json"),
        ("s3://b/run/step-100/", "G1_tool", "results/tools/step-100_G1_tool.json"),
        (
            "C:\\m\u00e4rz ..",
            "G1_tool+G2_category",
            "results/tools/C-m-rz-.._G1_tool+G2_category.json",
        ),
        ("../..", "all", "results/tools/_all.json"),
        ("x" * 300, "all", f"results/tools/{'x' * 146}_all.json"),
    ],
)
def test_the_file_has_the_name_that_the_format_gives(
    framework: str, test_set: str, path: str
) -> None:
    assert replace(METADATA, framework=framework, test_set=test_set).path() == path


def test_two_samples_of_a_query_are_two_evaluations() -> None:
    summary = written([ROWS[0], ROWS[0]])["summary"]
    assert (summary["total_queries"], summary["total_evaluations"]) == (1, 2)


def test_nothing_and_nothing_judged() -> None:
    assert written([])["results"] == []
    assert written([])["summary"]["average_sopr_score"] is None
    found = written([(entry("1"), state(SCRIPTS["answered"], None))])
    assert found["results"][0]["scores"] == {"sopr_score": None, "api_call_score": 1.0}
    assert found["summary"]["average_sopr_score"] is None
    assert found["summary"]["average_api_call_score"] == 1.0


def test_text_that_no_utf8_can_hold() -> None:
    odd = state([(None, [("Finish", {"return_type": "give_answer", "final_answer": "a\ud800b"})])])
    found = written([(entry("1"), odd)])
    assert found["results"][0]["system_answer"]["final_answer"] == "a�b"


def test_arguments_that_json_cannot_hold_leave_the_file_json() -> None:
    def constant(name: str) -> None:
        raise AssertionError(name)

    for arguments in ['{"x": NaN}', *("[" * n + "]" * n for n in range(900, 1000, 3))]:
        made = run([(None, [(BREADS, arguments)]), (None, [finish("Rye.")])])
        given = state(SCRIPTS["answered"]) | {"answer": converted(QUERY, TOOLS, made)}
        found = result_json(METADATA, [(ENTRY, given)])
        nodes = json.loads(found)["results"][0]["system_answer"]["answer_details"]
        said = []
        while nodes:
            said += [nodes[0]["message"]] if nodes[0]["role"] == "tool" else []
            nodes = nodes[0]["next"]
        assert len(said) == 2
        for message in said:
            json.loads(message, parse_constant=constant)
