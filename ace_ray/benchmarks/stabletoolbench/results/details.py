"""The tree of ``answer_details`` of a converted answer, and what Finish was given.

Shape (upstream ``tooleval/convert_to_answer_format.py``): one root ``{"role": "system", "message":
"", "next": [{"role": "user", ...}]}``, then a chain of ``{"role": "tool", "message": {"name",
"arguments", "response"}}`` and ``{"role": "assistant", "message": text}``. Text and trees may be a
model's or a stranger's: nothing here trusts a type or recurses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ace_ray.benchmarks.stabletoolbench.names import FINISH

GIVE_UP = "give_up_and_restart"
MAX_NODES = 5_000
_ANSWER_MARK = '"final_answer": "'


Node = dict[str, Any]


def node(role: str, message: Any) -> Node:
    return {"role": role, "message": message, "next": []}


def called(name: str, arguments: str, response: str = "") -> Node:
    """A tool node; the response to Finish is empty."""
    return node("tool", {"name": name, "arguments": arguments, "response": response})


def linked(nodes: Sequence[Node]) -> list[Node]:
    """``answer_details`` of these nodes, one after the other below system and user."""
    whole = [node("system", ""), node("user", ""), *nodes]
    for one, following in pairwise(whole):
        one["next"] = [following]
    return whole[:1]


def chain(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The nodes of a converted answer from the root on, first children only, as upstream walks it
    (``tooleval/utils.py::get_steps``). Ends at what is no node, and at `MAX_NODES`."""
    nodes = answer.get("answer_details")
    for _ in range(MAX_NODES):
        if not isinstance(nodes, list) or not nodes or not isinstance(nodes[0], Mapping):
            return
        yield nodes[0]
        nodes = nodes[0].get("next")


def tool_messages(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages of the tool nodes on the `chain`; one that is JSON text is read as that."""
    found = []
    for node in chain(answer):
        message = node.get("message")
        if node.get("role") != "tool" or not message:
            continue
        if isinstance(message, str):
            message = _object(message)
        if isinstance(message, Mapping):
            found.append(message)
    return found


def has_finish(answer: Mapping[str, Any]) -> bool:
    """Whether the last tool that was called is Finish (upstream ``eval_pass_rate.py``, which looks
    for it in the text of the last tool node)."""
    messages = tool_messages(answer)
    return bool(messages) and messages[-1].get("name") == FINISH


def final_text(raw: Any) -> str:
    """The answer inside of Finish's arguments as the model wrote them, "" if there is none.

    Text that is no JSON is searched for the answer as upstream's Finish does; text that looks like
    no arguments at all is the answer itself.
    """
    if not isinstance(raw, str):
        return ""
    found = _object(raw)
    if found is not None:
        answer = found.get("final_answer")
        if answer is None or isinstance(answer, str):
            return answer or ""
        try:
            return json.dumps(answer, ensure_ascii=False)
        except RecursionError:
            return ""
    if _ANSWER_MARK in raw:
        return raw.split(_ANSWER_MARK, 1)[1]
    return "" if raw.lstrip().startswith("{") else raw


def gave_up(raw: Any) -> bool:
    """Upstream's test: the mark of giving up is anywhere in Finish's arguments."""
    return isinstance(raw, str) and GIVE_UP in raw


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):  # too many digits are a ValueError too
        return None
    return value if isinstance(value, Mapping) else None
