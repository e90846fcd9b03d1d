"""Build a run's result JSON, a file with metadata, a summary, and a result for each answer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench import answer_trees
from ace_ray.benchmarks.stabletoolbench.answer_trees import Node
from ace_ray.benchmarks.stabletoolbench.apis.answers import MAX_ARGUMENTS, UnusableJson, parse_json
from ace_ray.benchmarks.stabletoolbench.callable_names import FINISH
from ace_ray.benchmarks.stabletoolbench.check import api_recall
from ace_ray.benchmarks.stabletoolbench.judge.measures import majority, mean_points
from ace_ray.types import Entry


def result_path(framework: str, test_set: str) -> str:
    """Return the file's path ``results/tools/<framework>_<test_set>.json``, in which
    ``<framework>`` is the last part of the candidate's name."""
    name = f"{framework.rstrip('/').rpartition('/')[2]}_{test_set}"
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", name)
    return f"results/tools/{name[-150:].lstrip('-.')}.json"


def result_json(
    framework: str,
    test_set: str,
    config: Mapping[str, Any],
    overall_time_s: float,
    rows: Iterable[tuple[Entry, Mapping[str, Any]]],
) -> bytes:
    """Return the content of a run's result JSON.

    Args:
        framework: the name of the evaluated model.
        test_set: the groups joined by ``+``, or "all".
        config: ``evaluator_model``, ``evaluation_method`` and further keys.
        rows: entries with the states of their episodes. A failed row has an empty state. Failed
            rows are counted in the summary, but have no result."""
    declared: set[str] = set()
    evaluated: set[str] = set()
    not_scored = 0
    lines: list[str] = []
    counted: list[Mapping[str, Any]] = []
    for entry, state in rows:
        query = f"{entry.category}/{entry.id}"
        declared.add(query)
        if not state:
            not_scored += 1
            continue
        evaluated.add(query)
        result = _result(entry, state, config["evaluation_method"])
        lines.append(answer_trees.json_text(result))
        counted.append({key: result[key] for key in ("scores", "evaluation", "timing")})
    head = {
        "framework": framework,
        "config": {"test_set": test_set, "num_queries": len(declared), **config},
        "overall_time": overall_time_s,
        "timestamp": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    not_scored += sum(result["scores"]["sopr_score"] is None for result in counted)
    # not_scored is an addition to the format.
    summary = {"total_queries": len(evaluated), **_summary(counted), "not_scored": not_scored}
    results = ",\n".join(lines)
    return (
        f'{{"metadata": {answer_trees.json_text(head)},\n'
        f'"summary": {answer_trees.json_text(summary)},\n'
        f'"results": [\n{results}\n]}}\n'
    ).encode()


def _result(entry: Entry, state: Mapping[str, Any], evaluation_method: str) -> dict[str, Any]:
    """Return the element of ``results`` for a scored row."""
    answer, votes = state["answer"]["answer"], state["votes"] or ()
    return {
        "query_id": entry.id,
        "query_text": entry.data["query"],
        "gold_answer": {
            "relevant_apis": entry.gold["relevant"],
            "available_tools": _available_tools(entry.data["apis"]),
        },
        "system_answer": {
            "final_answer": answer_trees.final_text(answer["final_answer"]),
            "answer_details": _details(answer),
        },
        "scores": {
            "sopr_score": mean_points(votes) if votes else None,
            "api_call_score": api_recall(entry.gold["relevant"], state["calls"]),
        },
        "evaluation": {
            "answer_status": majority(votes) if votes else None,
            # True for a call of Finish anywhere. Upstream's pass rate and `finish` need it last.
            "has_finish": any(m.get("name") == FINISH for m in answer_trees.tool_messages(answer)),
            "evaluation_method": evaluation_method,
        },
        "timing": {"evaluation_time": float(state.get("judged_s", 0.0))},
    }


def _summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the ``summary`` of the file; averages are over scored answers."""
    sopr = [r["scores"]["sopr_score"] for r in results]
    judged = [points for points in sopr if points is not None]
    solved = judged.count(1.0) if judged else None
    seconds = [r["timing"]["evaluation_time"] for r in results]
    return {
        "total_evaluations": len(results),
        "solved_count": solved,
        "solved_percentage": None if solved is None else 100.0 * solved / len(judged),
        "finish_count": sum(r["evaluation"]["has_finish"] for r in results),
        "average_sopr_score": _mean(judged),
        "average_api_call_score": _mean([r["scores"]["api_call_score"] for r in results]),
        "total_evaluation_time": sum(seconds),
        "average_evaluation_time": _mean(seconds),
    }


def _available_tools(docs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the query's APIs by tool, with published names in published order."""
    tools: dict[tuple[str, str], dict[str, Any]] = {}
    for doc in docs:
        key = (doc["category"], doc["tool"])
        tool = tools.setdefault(key, {"category": key[0], "tool_name": key[1], "apis": []})
        tool["apis"].append(
            {
                "api_name": doc["api"],
                "api_description": doc["description"],
                "required_parameters": doc["required"],
                "optional_parameters": doc["optional"],
                "method": doc["method"],
                "template_response": doc["template"],
            }
        )
    return list(tools.values())


def _details(answer: Mapping[str, Any]) -> list[Node]:
    """Return ``answer_details``, in which tool messages become JSON texts with parsed arguments."""
    nodes = []
    for step in answer_trees.walk_chain(answer):
        message = step["message"]
        if isinstance(message, Mapping):
            arguments = _parse(message.get("arguments"))
            message = answer_trees.json_text({**message, "arguments": arguments})
        nodes.append(answer_trees.node(step["role"], message))
    return answer_trees.chain_nodes(nodes)


def _parse(arguments: Any) -> Any:
    try:
        return parse_json(arguments, MAX_ARGUMENTS)
    except (TypeError, AttributeError, UnusableJson):
        return arguments


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
