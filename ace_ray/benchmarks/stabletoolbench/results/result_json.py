"""The result JSON: metadata, summary, one result per answer.

The summary comes before the results, so rows are gone through twice; only counters are held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.values import MAX_ARGUMENTS, Unusable, load
from ace_ray.benchmarks.stabletoolbench.check import api_recall
from ace_ray.benchmarks.stabletoolbench.judge.measures import majority, mean_points
from ace_ray.benchmarks.stabletoolbench.names import FINISH
from ace_ray.benchmarks.stabletoolbench.results.answers import (
    Node,
    chain,
    final_text,
    text_of,
    tool_messages,
)
from ace_ray.records import Entry


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One row: its entry, the episode's state, and the seconds that its judgement took.

    ``state`` is None of a row that was not scored: it is counted, and has no result.
    """

    entry: Entry
    state: Mapping[str, Any] | None
    evaluation_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Metadata:
    """``framework`` is the candidate, ``test_set`` the groups that were run, joined by ``+``, or
    "all", ``timestamp`` local time as ``2024-01-15 10:30:45``. ``config`` goes beside the four keys
    of the format."""

    framework: str
    test_set: str
    evaluator_model: str
    evaluation_method: str
    overall_time_s: float
    timestamp: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def path(self) -> str:
        """Return the file's path, ``results/tools/<framework>_<config>.json``: the last part of the
        candidate's name, and its test set."""
        framework = self.framework.rstrip("/").rpartition("/")[2]
        name = re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{framework}_{self.test_set}")
        return f"results/tools/{name[-150:].lstrip('-.')}.json"


def result_json(metadata: Metadata, rows: Callable[[], Iterable[ResultRow]]) -> Iterator[bytes]:
    """The file in pieces, UTF-8. ``rows`` is called twice and must yield the same both times."""
    counted = Summary()
    for row in rows():
        counted.add(row)
    head = {
        "framework": metadata.framework,
        "config": {
            "test_set": metadata.test_set,
            "num_queries": len(counted.declared),
            "evaluator_model": metadata.evaluator_model,
            "evaluation_method": metadata.evaluation_method,
            **metadata.config,
        },
        "overall_time": metadata.overall_time_s,
        "timestamp": metadata.timestamp,
    }
    yield f'{{"metadata": {text_of(head)},\n"summary": {text_of(counted.as_json())},\n'.encode()
    yield b'"results": ['
    before = "\n"
    for row in rows():
        if row.state is not None:
            yield (before + text_of(result_of(row, metadata.evaluation_method))).encode()
            before = ",\n"
    yield b"\n]}\n"


def result_of(row: ResultRow, evaluation_method: str) -> dict[str, Any]:
    """One element of ``results``; the row is a scored one."""
    entry, state = row.entry, row.state
    if state is None:
        raise ValueError("a row that was not scored has no result")
    answer, votes = state["answer"]["answer"], state["votes"] or ()
    return {
        "query_id": entry.id,
        "query_text": entry.data["query"],
        "gold_answer": {
            "relevant_apis": entry.gold["relevant"],
            "available_tools": _available(entry.data["apis"]),
        },
        "system_answer": {
            "final_answer": final_text(answer["final_answer"]),
            "answer_details": _details(answer),
        },
        "scores": {
            "sopr_score": mean_points(votes) if votes else None,
            "api_call_score": api_recall(entry.gold["relevant"], state["calls"]),
        },
        "evaluation": {
            "answer_status": majority(votes) if votes else None,
            "has_finish": _calls_finish(answer),
            "evaluation_method": evaluation_method,
        },
        "timing": {"evaluation_time": row.evaluation_s},
    }


@dataclass(slots=True)
class Summary:
    """The format's statistics, counted while rows pass by."""

    declared: set[str] = field(default_factory=set)
    evaluated: set[str] = field(default_factory=set)
    evaluations: int = 0
    judged: int = 0
    solved: int = 0
    finished: int = 0
    sopr: float = 0.0
    api_call: float = 0.0
    seconds: float = 0.0
    not_scored: int = 0

    def add(self, row: ResultRow) -> None:
        query = f"{row.entry.category}/{row.entry.id}"
        self.declared.add(query)
        if row.state is None:
            self.not_scored += 1
            return
        self.evaluated.add(query)
        self.evaluations += 1
        self.finished += _calls_finish(row.state["answer"]["answer"])
        self.api_call += api_recall(row.entry.gold["relevant"], row.state["calls"])
        self.seconds += row.evaluation_s
        if votes := row.state["votes"]:
            points = mean_points(votes)
            self.judged += 1
            self.sopr += points
            self.solved += points == 1.0

    def as_json(self) -> dict[str, Any]:
        """Averages are over scored answers; ``not_scored`` is no key of the format."""
        return {
            "total_queries": len(self.evaluated),
            "total_evaluations": self.evaluations,
            "solved_count": self.solved,
            "solved_percentage": _mean(100.0 * self.solved, self.judged),
            "finish_count": self.finished,
            "average_sopr_score": _mean(self.sopr, self.judged),
            "average_api_call_score": _mean(self.api_call, self.evaluations),
            "total_evaluation_time": self.seconds,
            "average_evaluation_time": _mean(self.seconds, self.evaluations),
            "not_scored": self.not_scored,
        }


def _calls_finish(answer: Mapping[str, Any]) -> bool:
    """Return whether the answer contains a call of Finish, as the format says; upstream's pass
    rate, and the metric ``finish``, want it at the end."""
    return any(message.get("name") == FINISH for message in tool_messages(answer))


def _available(docs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The query's APIs by tool, published names, in published order."""
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
    """``answer_details`` with the messages of tools as JSON text, as the format has them,
    arguments parsed where they are JSON."""
    top: list[Node] = []
    place = top
    for one in chain(answer):
        message = one["message"]
        if isinstance(message, Mapping):
            message = text_of({**message, "arguments": _parsed(message.get("arguments"))})
        place.append({"role": one["role"], "message": message, "next": []})
        place = place[-1]["next"]
    return top


def _parsed(arguments: Any) -> Any:
    try:
        return load(arguments, MAX_ARGUMENTS)
    except (TypeError, AttributeError, Unusable):
        return arguments


def _mean(total: float, n: int) -> float | None:
    return total / n if n else None
