"""Build, read and write converted answers: agents' runs in the form that upstream's judges read.

The form is upstream's (``tooleval/convert_to_answer_format.py``): a root ``{"role": "system",
"message": "", "next": [{"role": "user", ...}]}``, then a chain of ``{"role": "tool", "message":
{"name", "arguments", "response"}}`` and ``{"role": "assistant", "message": text}``. Finish is the
function with which an agent ends its work. Models or other programs may have written a file, so no
type is assumed, and no function recurses.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from ace_ray.benchmarks.dataset import json_value, read_bounded
from ace_ray.benchmarks.stabletoolbench.callable_names import FINISH, GIVE_ANSWER, GIVE_UP
from ace_ray.errors import UserError
from ace_ray.types import canonical_json
from ace_ray.util.safe_loading import MOST_ROW_DEPTH, InvalidContent, check_depth
from ace_ray.util.sanitizing import replace_surrogates

MAX_NODES = 5_000
# Maximum nodes of a chain in a stored row. Each node adds two levels to the JSON.
MAX_STORED_NODES = (MOST_ROW_DEPTH - 20) // 2
_ANSWER_MARK = '"final_answer": "'


Node = dict[str, Any]
Step = Mapping[str, Any]


def node(role: str, message: Any) -> Node:
    return {"role": role, "message": message, "next": []}


def tool_node(name: str, arguments: str, response: str = "") -> Node:
    """Return a tool node; the response to Finish is empty."""
    return node("tool", {"name": name, "arguments": arguments, "response": response})


def link_nodes(nodes: Sequence[Node]) -> list[Node]:
    """Return ``answer_details``: ``nodes`` as a chain below a system node and a user node."""
    return chain_nodes([node("system", ""), node("user", ""), *nodes])


def chain_nodes(nodes: list[Node]) -> list[Node]:
    """Make each node the only child of the node before it. Return a list with the first node."""
    for parent, child in pairwise(nodes):
        parent["next"] = [child]
    return nodes[:1]


def converted_answer(query: str, method: str, nodes: list[Node], final: str) -> dict[str, Any]:
    """Return a converted answer without ``available_tools``. ``final``: the arguments of Finish.

    ``total_steps`` counts system and user, as in upstream. The middle of a chain of more than
    `MAX_STORED_NODES` nodes is left out."""
    total, half = len(nodes) + 2, MAX_STORED_NODES // 2
    if len(nodes) > MAX_STORED_NODES:
        nodes = [*nodes[:half], *nodes[-half:]]
    answer = {"method": method, "total_steps": total, "final_answer": final}
    return {"query": query, "answer": {**answer, "answer_details": link_nodes(nodes)}}


def answer_of_text(text: str) -> dict[str, Any]:
    """Return the ``answer`` of an agent that only calls Finish, with the final answer ``text``."""
    raw = canonical_json({"return_type": GIVE_ANSWER, "final_answer": text})
    return {"final_answer": raw, "answer_details": link_nodes([tool_node(FINISH, raw)])}


def walk_chain(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes of a converted answer, following the first child of each (upstream
    ``tooleval/utils.py::get_steps``). Stops at a malformed value, or after `MAX_NODES` nodes."""
    nodes = answer.get("answer_details")
    for _ in range(MAX_NODES):
        if not isinstance(nodes, list) or not nodes or not isinstance(nodes[0], Mapping):
            return
        yield nodes[0]
        nodes = nodes[0].get("next")


def walk_graph(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a root, then at most `MAX_NODES` nodes on all branches, each before its children."""
    waiting: list[Any] = [{"next": answer.get("answer_details")}]
    for _ in range(MAX_NODES):
        if waiting and isinstance(current := waiting.pop(), Mapping):
            yield current
            below = current.get("next")
            waiting += reversed(below) if isinstance(below, list) else ()


def tool_messages(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages of the tool nodes that `walk_chain` yields, parsed if they are texts."""
    messages = [tool_message(node) for node in walk_chain(answer) if node.get("message")]
    return [message for message in messages if message is not None]


def tool_message(node: Step) -> Mapping[str, Any] | None:
    """Return the message of a tool node; None for other nodes and for a malformed message."""
    message = node.get("message") if node.get("role") == "tool" else None
    if isinstance(message, str):
        message = parse_object(message)
    return message if isinstance(message, Mapping) else None


def has_finish(answer: Mapping[str, Any]) -> bool:
    """Return whether the last call is of Finish, which ends the work (``eval_pass_rate.py``)."""
    messages = tool_messages(answer)
    return bool(messages) and messages[-1].get("name") == FINISH


def final_text(raw: Any) -> str:
    """Return the final answer in ``raw``, the arguments of Finish as the model wrote them, or "".

    Text that begins with a brace but is not JSON is searched for the answer, as in upstream. Any
    other text is itself the answer."""
    if not isinstance(raw, str):
        return ""
    arguments = parse_object(raw)
    if arguments is not None:
        answer = arguments.get("final_answer")
        return "" if answer is None else plain_text(answer)
    if _ANSWER_MARK in raw:
        return raw.split(_ANSWER_MARK, 1)[1]
    return "" if raw.lstrip().startswith("{") else raw


def plain_text(value: Any, *, ensure_ascii: bool = False) -> str:
    """Return a string as it is, another JSON value as JSON text; "" if it is nested too deeply."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=ensure_ascii)
    except RecursionError:
        return ""


def gave_up(raw: Any) -> bool:
    """Return whether Finish's arguments contain `GIVE_UP` anywhere, which is upstream's test."""
    return isinstance(raw, str) and GIVE_UP in raw


def parse_object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):  # too many digits are a ValueError too
        return None
    return value if isinstance(value, Mapping) else None


def convert_run(query: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the converted answer (`converted_answer`) of ``run``, an `AgentSolution` as JSON.

    If the run is ``valid``, its messages are converted, and ``final_answer`` is Finish's arguments
    as the model wrote them. As in upstream, thoughts in replies with calls, and calls after Finish
    in one reply, are left out. If the run is not valid, one path of one try is converted, and
    ``final_answer`` is "". Upstream draws the path at random; in ace_ray it depends only on the
    query."""
    nodes = _message_nodes(run["messages"]) if run["valid"] else _run_nodes(query, run)
    final = str(run["final"]["raw"]) if run["valid"] else ""
    return converted_answer(query, run["method"], nodes, final)


def _message_nodes(messages: Sequence[Mapping[str, Any]]) -> list[Node]:
    results = [message for message in messages if message["role"] == "tool"]
    responses = {message["tool_call_id"]: message["content"] for message in results}
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
                nodes.append(tool_node(name, arguments))
                break
            if call["id"] in responses:
                nodes.append(tool_node(name, arguments, responses[call["id"]]))
    return nodes


def _run_nodes(query: str, run: Mapping[str, Any]) -> list[Node]:
    chance = random.Random(query)
    run_nodes = chance.choice(run["tries"])["nodes"] if run["tries"] else []
    steps = list(_random_path(run_nodes, chance))
    following: list[Step] = [*steps[1:], {}]
    nodes = []
    for step, next_step in zip(steps, following, strict=False):
        if step["type"] == "Thought":
            nodes.append(node("assistant", step["description"]))
        elif step["type"] == "Action":
            arguments, response = next_step.get("description", ""), next_step.get("observation", "")
            nodes.append(tool_node(step["description"], arguments, response))
    return nodes


def _random_path(steps: Sequence[Step], chance: random.Random) -> Iterator[Step]:
    """Yield the nodes on a random path from the root to a leaf, without the root."""
    below: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        if step["parent"] is not None:
            below.setdefault(step["parent"], []).append(index)
    at = 0
    while below.get(at):
        at = chance.choice(below[at])
        yield steps[at]


REFERENCE_LIMIT_BYTES = 256 << 20
# Maximum JSON levels of an answer, two for each node. Python cannot read many more.
MAX_NESTING = 900
FIX = "give a folder of converted answers, <group>.json each: {query_id: {query, answer, ...}}"


def json_text(value: Any) -> str:
    """Return ``value`` as JSON text. Lone surrogates become U+FFFD, as in stored rows."""
    return replace_surrogates(json.dumps(value, ensure_ascii=False))


def converted_json(answers: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[bytes]:
    """Yield upstream's ``<model>/<group>.json`` in pieces, from (query id, `convert_run`) pairs."""
    before = "{"
    for query_id, answer in answers:
        yield f"{before}\n{json_text(query_id)}: {json_text(answer)}".encode()
        before = ","
    yield b"\n}\n" if before == "," else b"{}\n"


def read_reference(folder: Path, groups: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read the answers of a run to compare with: ``{group: {query id: answer as JSON text}}``.

    A group without a file is empty. Raises `UserError` for an invalid answer, and for no answer."""
    files = {group: folder / f"{group}.json" for group in groups}
    answers = {
        group: {
            query_id: answer_json(answer_of(tree, location), location)
            for query_id, tree, location in (converted_answers(path) if path.exists() else ())
        }
        for group, path in files.items()
    }
    if not any(answers.values()):
        raise UserError("contains no answers of the groups to evaluate", where=str(folder), fix=FIX)
    return answers


def converted_answers(path: Path) -> Iterator[tuple[str, Any, str]]:
    """Yield (query id, converted answer, location for errors) from the JSON file ``path``."""
    for query_id, tree in json_object(path, FIX).items():
        yield query_id, tree, f"{path}, query {query_id:.60}"


def json_object(path: Path, fix: str) -> dict[str, Any]:
    """Return the JSON object in the file ``path``. Raises `UserError` for other content."""
    value = json_value(read_bounded(path, REFERENCE_LIMIT_BYTES), path, fix)
    if not isinstance(value, dict):
        raise UserError(f"contains a {type(value).__name__}", where=str(path), fix=fix)
    return value


def answer_of(tree: Any, location: str) -> Mapping[str, Any]:
    """Return the ``answer`` of a converted answer. Raises `UserError` if a judge cannot read it."""
    answer = tree.get("answer") if isinstance(tree, Mapping) else None
    if not is_answer(answer):
        raise UserError("has no converted answer", where=location, fix=FIX)
    return answer


def is_answer(answer: Any) -> TypeGuard[Mapping[str, Any]]:
    return (
        isinstance(answer, Mapping)
        and isinstance(answer.get("final_answer"), str)
        and isinstance(answer.get("answer_details"), list)
    )


def answer_json(answer: Mapping[str, Any], location: str) -> str:
    """Return the ``answer`` of a converted answer as JSON text. A long chain cannot be pickled.

    Raises `UserError` that names ``location`` if the answer is nested deeper than `MAX_NESTING`."""
    try:
        check_depth(answer, MAX_NESTING - 1)
    except InvalidContent:
        problem = "the answer is nested too deeply"
        raise UserError(problem, where=location, fix="remove the answer") from None
    return json.dumps(answer)
