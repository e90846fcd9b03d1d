"""The result JSON of the seed document."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.stabletoolbench.check import verdicts
from ace_ray.benchmarks.stabletoolbench.converted import converted
from ace_ray.benchmarks.stabletoolbench.result_json import Metadata, result_json
from ace_ray.types import Entry
from tests.benchmarks.stabletoolbench.builders import (
    BREADS,
    ENTRY,
    QUERY,
    SCRIPTS,
    TOOLS,
    answer,
    entry,
    run,
    state,
)

METADATA = Metadata("SmolLM2", "G1_tool", "judge", "official", 15.58, "2024-01-15 10:30:45")


def written(*rows: tuple[Entry, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result_json(METADATA, rows))
    return found


def test_the_file_has_the_documented_form() -> None:
    relevant = [["Bakery Finder", "Breads"], ["Bakery Finder", "Cakes"]]
    hopeless = state(SCRIPTS["hopeless"], ["Unsolved"] * 3) | {"judged_s": 0.5}
    solved = (entry("588"), state(SCRIPTS["answered"], ["Solved"] * 3) | {"judged_s": 1.5})
    found = written(solved, (entry("608", relevant), hopeless), (entry("1073"), {}))
    assert list(found) == ["metadata", "summary", "results"]
    config = {"test_set": "G1_tool", "num_queries": 3, "evaluator_model": "judge"}
    times = {"overall_time": 15.58, "timestamp": "2024-01-15 10:30:45"}
    config["evaluation_method"] = "official"
    assert found["metadata"] == {"framework": "SmolLM2", "config": config, **times}
    numbers = {"total_queries": 2, "total_evaluations": 2, "not_scored": 1, "solved_count": 1}
    numbers |= {"finish_count": 1, "average_sopr_score": 0.5, "average_api_call_score": 0.75}
    numbers |= {"total_evaluation_time": 2.0, "average_evaluation_time": 1.0}
    assert found["summary"] == numbers | {"solved_percentage": 50.0}
    one, other = found["results"]
    keys = ["query_id", "query_text", "gold_answer", "system_answer"]
    assert list(one) == [*keys, "scores", "evaluation", "timing"]
    assert (one["query_id"], other["query_id"], one["query_text"]) == ("588", "608", QUERY)
    assert one["gold_answer"]["relevant_apis"] == [["Bakery Finder", "Breads"]]
    (tool,) = one["gold_answer"]["available_tools"]
    assert (tool["category"], tool["tool_name"]) == ("Food", "Bakery Finder")
    assert [api["api_name"] for api in tool["apis"]] == ["Breads", "Shops"]
    assert one["scores"] == {"sopr_score": 1.0, "api_call_score": 1.0}
    evaluation = {"answer_status": "Solved", "has_finish": True}
    assert one["evaluation"] == evaluation | {"evaluation_method": "official"}
    assert one["timing"] == {"evaluation_time": 1.5}
    assert one["system_answer"]["final_answer"] == "Rye, at the “Mill”."
    (system,) = one["system_answer"]["answer_details"]
    assert (system["role"], system["message"]) == ("system", "")
    node = system["next"][0]["next"][0]
    assert node["role"] == "tool"
    assert json.loads(node["message"])["name"] == BREADS
    assert json.loads(node["message"])["arguments"] == {"q": "rye"}
    assert other["scores"] == {"sopr_score": 0.0, "api_call_score": 0.5}
    assert other["evaluation"]["has_finish"] is False
    # Two samples of a query are two evaluations.
    summary = written(solved, solved)["summary"]
    assert (summary["total_queries"], summary["total_evaluations"]) == (1, 2)
    # A call of Finish anywhere counts; the metric ``finish`` wants it at the end.
    script: list[Any] = [(None, [("Finish", "{")]), (None, [(BREADS, {"q": "rye"})])]
    given = state(script, ["Unsolved"])
    assert written((entry("1"), given))["results"][0]["evaluation"]["has_finish"] is True
    assert verdicts(ENTRY, given)["official"].metrics["finish"] == 0
    # Scores are null without a judge.
    assert written()["summary"]["average_sopr_score"] is None
    found = written((entry("1"), state(SCRIPTS["answered"], None)))
    assert found["results"][0]["scores"] == {"sopr_score": None, "api_call_score": 1.0}
    assert found["summary"]["average_api_call_score"] == 1.0


def test_the_file_is_named_by_model_and_groups() -> None:
    names = {"org/SmolLM2": "SmolLM2", "s3://b/run/step-100/": "step-100", "../..": ""}
    for framework, name in (names | {"C:\\märz ..": "C-m-rz-..", "x" * 300: "x" * 142}).items():
        path = replace(METADATA, framework=framework).path()
        assert path == f"results/tools/{name}_G1_tool.json"


def test_odd_texts_and_arguments_leave_the_file_json() -> None:
    odd = state([(None, [answer("a\ud800b")])])
    found = written((entry("1"), odd))
    assert found["results"][0]["system_answer"]["final_answer"] == "a�b"

    def constant(name: str) -> None:
        raise AssertionError(name)

    for arguments in ('{"x": NaN}', *("[" * n + "]" * n for n in range(900, 1000, 9))):
        made = run([(None, [(BREADS, arguments)]), (None, [answer("Rye.")])])
        given = state(SCRIPTS["answered"]) | {"answer": converted(QUERY, TOOLS, made)}
        (nodes,) = written((ENTRY, given))["results"][0]["system_answer"]["answer_details"]
        called = nodes["next"][0]["next"][0]
        assert called["role"] == "tool"
        json.loads(called["message"], parse_constant=constant)
