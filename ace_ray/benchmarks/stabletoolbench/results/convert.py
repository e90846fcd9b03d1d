"""An agent's run as a converted answer, which upstream's judges read.

Shapes and rules: upstream ``tooleval/convert_to_answer_format.py``. A run that ended in Finish is
converted from its messages: thoughts beside calls are dropped, and so are calls after Finish in one
reply. One that did not shows one of its tries, or one way from the root of its tree to a leaf;
which one upstream leaves to chance, here it is a function of the query.

A ``run`` is an `episode.run.AgentRun` as JSON.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.names import FINISH
from ace_ray.benchmarks.stabletoolbench.results.answers import Node, both_ends, called, linked, node

Step = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]


def converted(query: str, tools: Tools, run: Mapping[str, Any]) -> dict[str, Any]:
    """``{"query", "available_tools", "answer": {"method", "total_steps", "final_answer",
    "answer_details"}}`` of a run that was offered ``tools``.

    ``total_steps`` counts system and user as upstream does, ``final_answer`` is what Finish was
    given, as the model wrote it, "" for a run without.
    """
    nodes = _from_messages(run["messages"]) if run["valid"] else _from_nodes(query, run)
    return {
        "query": query,
        "available_tools": list(tools),
        "answer": {
            "method": run["method"],
            "total_steps": len(nodes) + 2,
            "final_answer": _final(run),
            "answer_details": linked(both_ends(nodes)),
        },
    }


def _final(run: Mapping[str, Any]) -> str:
    return str(run["final"]["raw"]) if run["valid"] else ""


def _from_messages(messages: Sequence[Mapping[str, Any]]) -> list[Node]:
    responses = {
        message["tool_call_id"]: message["content"]
        for message in messages
        if message["role"] == "tool"
    }
    nodes = []
    for message in messages:
        if message["role"] != "assistant":
            continue
        if not message.get("tool_calls"):
            nodes.append(node("assistant", message.get("content") or ""))
            continue
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if name == FINISH:
                nodes.append(called(name, arguments))
                break
            if call["id"] in responses:
                nodes.append(called(name, arguments, responses[call["id"]]))
    return nodes


def _from_nodes(query: str, run: Mapping[str, Any]) -> list[Node]:
    chance = random.Random(query)
    shown = chance.choice(run["tries"])["nodes"] if run["tries"] else []
    steps = list(_walk(shown, chance))
    nodes = []
    for place, step in enumerate(steps):
        if step["type"] == "Thought":
            nodes.append(node("assistant", step["description"]))
        elif step["type"] == "Action":
            given = steps[place + 1] if place + 1 < len(steps) else {}
            arguments, response = given.get("description", ""), given.get("observation", "")
            nodes.append(called(step["description"], arguments, response))
    return nodes


def _walk(steps: Sequence[Step], chance: random.Random) -> Iterator[Step]:
    """The nodes below the root on one way down; of a chain there is only one."""
    below = _children(steps)
    at = 0
    while below.get(at):
        at = chance.choice(below[at])
        yield steps[at]


def _children(steps: Sequence[Step]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for place, step in enumerate(steps):
        if step["parent"] is not None:
            children.setdefault(step["parent"], []).append(place)
    return children
