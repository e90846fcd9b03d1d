"""A stored episode of StableToolBench step by step, out of the trees of its attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.transcript import Call, Step, of_messages, text_of


def transcript(messages: Sequence[Mapping[str, Any]], state: Any) -> list[Step]:
    """What was asked, then what the agent did in the order in which it did it; of a tree search
    with all that it gave up. ``messages`` and ``state`` may be anybody's."""
    done = [
        step
        for number, nodes in enumerate(_tries(state), start=1)
        for step in _steps(nodes, number)
    ]
    steps = of_messages(messages)
    if not done:
        return steps
    # Of an attempt that ended, the messages have what its nodes have.
    asked = next((i for i, step in enumerate(steps) if step.role == "assistant"), len(steps))
    return [*steps[:asked], *done]


def _tries(state: Any) -> Iterator[list[Mapping[str, Any]]]:
    run = state.get("run") if isinstance(state, Mapping) else None
    tries = run.get("tries") if isinstance(run, Mapping) else None
    for one in tries if isinstance(tries, list) else ():
        nodes = one.get("nodes") if isinstance(one, Mapping) else None
        yield [n for n in nodes if isinstance(n, Mapping)] if isinstance(nodes, list) else []


def _steps(nodes: Sequence[Mapping[str, Any]], number: int) -> list[Step]:
    steps: list[Step] = []
    name = ""
    for node in nodes:
        told = text_of(node.get("description"))
        match node.get("type"):
            case "Thought":
                steps.append(Step("assistant", told, facts=_facts(node, number)))
            case "Action":
                name = told
            case "Action Input" if node.get("parent") is not None:
                # The root is of this type, too, and is no call.
                if not steps or (steps[-1].calls and not steps[-1].text):
                    steps.append(Step("assistant", facts=_facts(node, number)))
                observed = node.get("observation")
                steps[-1].calls.append(
                    Call(name, told, None if observed is None else text_of(observed))
                )
    return steps


def _facts(node: Mapping[str, Any], number: int) -> dict[str, Any]:
    facts = {"attempt": number} if number > 1 else {}
    if node.get("pruned") is True:
        facts["pruned"] = True
    return facts
