"""An agent's run as the files that upstream's tools read: raw answers and converted ones.

Shapes and rules: upstream ``inference/Algorithms/{single_chain,DFS}.py`` (raw) and
``tooleval/convert_to_answer_format.py`` (converted). A run that ended in Finish is converted from
its messages: thoughts beside calls are dropped, and so are calls after Finish in one reply. One
that did not shows one of its tries, or one way from the root of its tree to a leaf; which one
upstream leaves to chance, here it is a function of the query.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.names import FINISH
from ace_ray.benchmarks.stabletoolbench.results.details import GIVE_UP, Node, called, linked, node
from ace_ray.records import canonical_json

MAX_STEPS = 300
"""Nodes that are kept of a chain, from both its ends: JSON nests each in the one before."""
_ELO = 1000.0
"""Upstream's nodes carry the rating of a search that is not used."""
_DEFAULTS: Mapping[str, Any] = {
    "is_terminal": False,
    "pruned": False,
    "finished": False,
    "node_type": "",
    "description": "",
    "expand_num": 0,
}
_INPUT = "Action Input"
_GIVEN = 3
"""Upstream's status code of a Finish with an answer."""


def converted(
    query: str, tools: Sequence[Mapping[str, Any]], run: Mapping[str, Any]
) -> dict[str, Any]:
    """``{"query", "available_tools", "answer": {"method", "total_steps", "final_answer",
    "answer_details"}}`` of an agent's run in JSON (`agent.run`), offered ``tools``."""
    nodes = _from_messages(run["messages"]) if has_data(run) else _from_nodes(query, run)
    return {
        "query": query,
        "available_tools": list(tools),
        "answer": {
            "method": run["method"],
            "total_steps": len(nodes) + 2,
            "final_answer": finish_arguments(run),
            "answer_details": linked(_ends(nodes)),
        },
    }


def raw(query: str, tools: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> dict[str, Any]:
    """Upstream's answer file of one query, with the conversation of the final chain as the only
    entry of ``train_messages``; upstream has each of its beginnings too."""
    valid = has_data(run)
    won = valid and run["final"]["return_type"] != GIVE_UP
    generation: dict[str, Any] = {
        "valid_data": valid,
        "final_answer": finish_arguments(run),
        "function": list(tools),
        "query_count": run["query_count"],
        "total_tokens": run["total_tokens"],
        "train_messages": [_messages(run["messages"])] if valid else [],
        "chain": [],
        "query": query,
    }
    settings = run.get("settings") or {}
    if run.get("tree") is None:
        tries = [_chain_of(one) for one in run["tries"]]
        return {
            "win": won,
            "try_count": len(tries),
            "trys": [{"chain": one, "win": _won(one)} for one in tries],
            "compare_candidates": [one for one in tries if _won(one)],
            "forward_args": {
                "single_chain_max_step": settings.get("single_chain_max_step"),
                "pass_at": settings.get("pass_at", len(tries)),
                "answer": 1,
            },
            "answer_generation": generation,
        }
    tree, size, length = _whole_tree(run["tree"])
    generation["finish_type"] = "give_answer" if won or not valid else "give_up"
    return {
        "win": won,
        "tree": {"size": size, "max_length": length, "tree": tree},
        "forward_args": {
            "single_chain_max_step": settings.get("single_chain_max_step"),
            "tree_beam_size": settings.get("tree_beam_size", 2),
            "max_query_count": settings.get("max_query_count"),
            "answer": 1,
            "with_filter": False,
        },
        "compare_candidates": [],
        "answer_generation": generation,
    }


def file_name(query_id: str, method: str) -> str:
    """Of a raw answer, in a folder of its group."""
    return f"{query_id}_{method}.json"


def has_data(run: Mapping[str, Any]) -> bool:
    """Upstream's ``valid_data``: the run ended in an answer, or, in a tree, in giving up."""
    final = run["final"]
    return bool(final) and (final["return_type"] != GIVE_UP or run.get("tree") is not None)


def finish_arguments(run: Mapping[str, Any]) -> str:
    """What Finish was given, as the model wrote it; "" for a run without."""
    if not has_data(run):
        return ""
    final = run["final"]
    for message in reversed(run["messages"]):
        for call in message.get("tool_calls") or ():
            if call["function"]["name"] == FINISH:
                return str(call["function"]["arguments"])
    return canonical_json(
        {"return_type": final["return_type"], "final_answer": final.get("answer") or ""}
    )


def _ends(nodes: list[Node]) -> list[Node]:
    half = MAX_STEPS // 2
    return nodes if len(nodes) <= MAX_STEPS else [*nodes[:half], *nodes[-half:]]


def _from_messages(messages: Sequence[Mapping[str, Any]]) -> list[Node]:
    nodes = []
    for place, message in enumerate(messages):
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
            response = _response(messages[place + 1 :], call["id"])
            if response is not None:
                nodes.append(called(name, arguments, response))
    return nodes


def _response(later: Sequence[Mapping[str, Any]], call_id: str) -> str | None:
    return next(
        (
            message["content"]
            for message in later
            if message["role"] == "tool" and message["tool_call_id"] == call_id
        ),
        None,
    )


def _from_nodes(query: str, run: Mapping[str, Any]) -> list[Node]:
    chance = random.Random(query)
    if run.get("tree") is not None:
        steps = list(_walk(run["tree"], chance))
    else:
        steps = list(chance.choice(run["tries"])) if run["tries"] else []
    nodes = []
    for place, step in enumerate(steps):
        if step["node_type"] == "Thought":
            nodes.append(node("assistant", step["description"]))
        elif step["node_type"] == "Action":
            given = steps[place + 1] if place + 1 < len(steps) else {}
            nodes.append(
                called(
                    step["description"], given.get("description", ""), given.get("observation", "")
                )
            )
    return nodes


def _walk(root: Mapping[str, Any], chance: random.Random) -> Iterator[Mapping[str, Any]]:
    """The nodes below the root on one way down."""
    at = root
    while at.get("children"):
        at = chance.choice(at["children"])
        yield at


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Upstream's converter trips over replies whose list of calls is empty."""
    return [
        {k: v for k, v in message.items() if k != "tool_calls" or v}
        | ({"content": message.get("content") or ""} if message["role"] == "assistant" else {})
        for message in messages
    ]


def _plain(step: Mapping[str, Any], depth: int, children: int) -> dict[str, Any]:
    found = {name: step.get(name, default) for name, default in _DEFAULTS.items()}
    found |= {"depth": depth, "Elo": _ELO, "child_count": children}
    if step.get("node_type") == _INPUT:
        found |= {"observation": step.get("observation") or "", "io_state": {}}
        found["observation_code"] = step.get("observation_code")
    return found


def _chain_of(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        _plain(step, depth, children=int(depth < len(steps)))
        for depth, step in enumerate(steps, start=1)
    ]


def _won(steps: Sequence[Mapping[str, Any]]) -> bool:
    return (
        bool(steps) and not steps[-1].get("pruned") and steps[-1].get("observation_code") == _GIVEN
    )


def _whole_tree(root: Mapping[str, Any]) -> tuple[dict[str, Any], int, int]:
    """The tree, its number of nodes and of levels."""
    top: dict[str, Any] = {}
    waiting = [(root, 0, top)]
    size = length = 0
    while waiting:
        step, depth, place = waiting.pop()
        size, length = size + 1, max(length, depth + 1)
        children = step.get("children") or []
        place |= _plain(step, depth, len(children)) | {"children": [{} for _ in children]}
        below = zip(children, place["children"], strict=True)
        waiting += [(child, depth + 1, empty) for child, empty in below]
    return top, size, length
