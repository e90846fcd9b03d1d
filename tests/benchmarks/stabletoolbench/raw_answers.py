"""An agent's run as the raw answer that upstream's inference writes, and its converter reads.

With it `converted` is compared with what upstream's converter makes of the same run. Shapes and
rules: upstream ``inference/Algorithms/{single_chain,DFS}.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ELO = 1000.0
"""Upstream's nodes carry the rating of a search that is not used."""
_GIVEN = 3
"""Upstream's status code of a Finish with an answer."""

Step = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]


def raw(
    query: str,
    tools: Tools,
    run: Mapping[str, Any],
    *,
    max_steps: int | None = None,
    max_queries: int | None = None,
) -> dict[str, Any]:
    """Upstream's answer file of one query; the limits are those of the run's settings.

    ``train_messages`` holds the conversation of the final chain alone; upstream has each of its
    beginnings too, and reads the last.
    """
    generation: dict[str, Any] = {
        "valid_data": run["valid"],
        "final_answer": _final(run),
        "function": list(tools),
        "query_count": run["query_count"],
        "total_tokens": run["total_tokens"],
        "train_messages": [_messages(run["messages"])] if run["valid"] else [],
        "chain": [],
        "query": query,
    }
    if not run["method"].startswith("DFS"):
        tries = [_chain(one["nodes"]) for one in run["tries"]]
        return {
            "win": run["win"],
            "try_count": len(tries),
            "trys": [{"chain": one, "win": _won(one)} for one in tries],
            "compare_candidates": [one for one in tries if _won(one)],
            "forward_args": {
                "single_chain_max_step": max_steps,
                "pass_at": int(run["method"].partition("@")[2]),
                "answer": 1,
            },
            "answer_generation": generation,
        }
    steps = run["tries"][0]["nodes"] if run["tries"] else []
    return {
        "win": run["win"],
        "tree": {
            "size": len(steps),
            "max_length": 1 + max((step["depth"] for step in steps), default=0),
            "tree": _tree(steps),
        },
        "forward_args": {
            "single_chain_max_step": max_steps,
            "tree_beam_size": int(run["method"].rpartition("_w")[2]),
            "max_query_count": max_queries,
            "answer": 1,
            "with_filter": False,
        },
        "compare_candidates": [],
        "answer_generation": generation | {"finish_type": run["finish_type"] or "give_answer"},
    }


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Upstream's converter trips over replies whose list of calls is empty or content missing."""
    return [
        {k: v for k, v in message.items() if k != "tool_calls" or v}
        | ({"content": message.get("content") or ""} if message["role"] == "assistant" else {})
        for message in messages
    ]


def _plain(step: Step, children: int) -> dict[str, Any]:
    """A node as upstream writes it; it always writes ``is_terminal`` as false."""
    found = {
        "is_terminal": False,
        "pruned": step["pruned"],
        "finished": step["finished"],
        "depth": step["depth"],
        "node_type": step["type"],
        "description": step["description"],
        "Elo": _ELO,
        "child_count": children,
        "expand_num": step["expanded"],
    }
    if step["type"] == "Action Input":
        found |= {"observation": step.get("observation", ""), "io_state": {}}
        if "code" in step:
            found["observation_code"] = step["code"]
    return found


def _chain(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The nodes of a try without their root."""
    return [_plain(step, int(place < len(steps) - 1)) for place, step in enumerate(steps)][1:]


def _won(steps: Sequence[Step]) -> bool:
    return bool(steps) and not steps[-1]["pruned"] and steps[-1].get("observation_code") == _GIVEN


def _tree(steps: Sequence[Step]) -> dict[str, Any]:
    """The root with its children nested, as many levels as the search was allowed to go."""
    below = _children(steps)
    made = [
        _plain(step, len(below.get(place, ()))) | {"children": []}
        for place, step in enumerate(steps)
    ]
    for place, children in below.items():
        made[place]["children"] = [made[child] for child in children]
    return made[0] if made else {}


def _final(run: Mapping[str, Any]) -> str:
    return str(run["final"]["raw"]) if run["valid"] else ""


def _children(steps: Sequence[Step]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place, step in enumerate(steps):
        if step["parent"] is not None:
            found.setdefault(step["parent"], []).append(place)
    return found
