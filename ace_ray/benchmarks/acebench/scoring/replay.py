"""The ideal paths of agent rows, replayed in the sandbox: which reach the gold state, which cannot.

The published milestones were not all run: some delete another message than the gold state lacks,
leave a login out, or cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.check import agent_paths, check_agent
from ace_ray.benchmarks.acebench.scenarios.world import World, open_world
from ace_ray.records import RULE_SETS, Entry


@dataclass(frozen=True, slots=True)
class Replayed:
    """One path of one row. ``reaches`` says per rule set whether its end state is valid; ``cause``
    why it is not under the strict rules, "" if it is."""

    entry: Entry
    path: int
    reaches: Mapping[str, bool]
    cause: str


def replay(entry: Entry, worlds: Mapping[str, Any]) -> Iterator[Replayed]:
    """Every path of an agent row in a fresh official sandbox. Raises `UserError` on bad worlds."""
    for number, path in enumerate(agent_paths.paths(entry.gold["mile_stone"])):
        world = open_world(
            worlds,
            loop=entry.category.removeprefix("agent_"),
            language=entry.language,
            involved_classes=entry.data["involved_classes"],
            initial_config=entry.data["initial_config"],
            behaviour="official",
        )
        refused = list(_refused(world, path))
        verdicts = check_agent(entry, world.state(), [])
        reaches = {rule: verdicts[rule].valid for rule in RULE_SETS}
        cause = "" if reaches["strict"] else _cause(refused, verdicts["strict"].error)
        yield Replayed(entry, number, reaches, cause)


def _refused(world: World, path: agent_paths.Path) -> Iterator[str]:
    for step, call in enumerate(path, start=1):
        if not call.name:
            yield f"step {step} cannot be read"
            continue
        answer = world.call(call.name, call.args)
        denied = isinstance(answer.value, dict) and answer.value.get("status") is False
        if answer.error or denied:
            said = answer.value["message"] if denied and "message" in answer.value else answer.value
            yield f"step {step}, {call.name}, is refused: {said}"


def _cause(refused: Sequence[str], difference: str) -> str:
    return "; ".join([*refused[:1], difference.partition(";")[0]])


def report(replayed: Sequence[Replayed]) -> dict[str, Any]:
    """``paths``: counts of paths and of those that reach a valid state, per language, category and
    rule set; ``missed``: those that do not under the strict rules, each with its cause."""
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for one in replayed:
        cell = counts.setdefault(one.entry.language, {}).setdefault(
            one.entry.category, {"n": 0, **dict.fromkeys(RULE_SETS, 0)}
        )
        cell["n"] += 1
        for rule in RULE_SETS:
            cell[rule] += one.reaches[rule]
    missed = [
        {
            "language": one.entry.language,
            "category": one.entry.category,
            "id": one.entry.id,
            "path": one.path,
            "official": one.reaches["official"],
            "cause": one.cause,
        }
        for one in replayed
        if one.cause
    ]
    return {"paths": counts, "missed": missed}
