"""Run an agent's episode, as single chains or a tree search, and build its stored result."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, Truncated
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiCaller
from ace_ray.benchmarks.stabletoolbench.callable_names import GIVE_ANSWER, GIVE_UP
from ace_ray.benchmarks.stabletoolbench.episode.reading import GAVE_UP
from ace_ray.benchmarks.stabletoolbench.episode.rollout import Message, Node, Rollout
from ace_ray.benchmarks.stabletoolbench.options import Settings
from ace_ray.benchmarks.stabletoolbench.prompts import Texts
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.types import Entry


async def run_chains(rollout: Rollout) -> str:
    """Run single chains, at most `Settings.tries`, until a chain has an answer.

    Return how the last chain ended: "answered", "gave_up", "max_steps" or "context". Raises
    `Truncated` at the deadline, `RowError` if the engine or the APIs fail."""
    end_reason = ""
    for _ in range(rollout.settings.tries):
        end_reason = await _run_chain(rollout)
        # A reply with an answer and a give-up also ends all chains, but without an answer.
        if end_reason == "answered" or rollout.tries[-1][-1].is_terminal:
            break
    return end_reason


async def _run_chain(rollout: Rollout) -> str:
    node = rollout.open()
    while True:
        reply = await rollout.ask(node.messages)
        if reply is None:
            node.pruned = True
            return "context"
        node = await rollout.grow(node, reply)
        if node.pruned:
            return "gave_up"
        if node.is_terminal:
            return "answered"
        if node.depth >= rollout.settings.options.max_steps:
            node.pruned = True
            return "max_steps"


# Levels of the tree to go back after a give-up.
_BACK = 2
# Numbers of levels that end the search, and how it ended.
_ANSWERED, _SPENT = 10_000, 20_000
_ENDS = {_ANSWERED: "answered", _SPENT: "max_queries"}


async def search(rollout: Rollout) -> str:
    """Search through one tree, depth first. Return "answered", "max_queries" or "exhausted". Raises
    as `run_chains` does."""
    return _ENDS.get(await _visit(rollout, rollout.open()), "exhausted")


async def _visit(rollout: Rollout, node: Node) -> int:
    """Search below ``node``. Return how many levels higher the search continues, or a key of
    `_ENDS` if it has ended."""
    settings = rollout.settings
    if node.is_terminal:
        return _ANSWERED
    if node.pruned or node.depth >= settings.options.max_steps:
        node.pruned = True
        return _BACK if node.code == GAVE_UP else 1
    for child in range(settings.width):
        reply = await rollout.ask([*node.messages, *_other_action(settings.texts, node)], child)
        if reply is None:
            # As in ToolLLaMA's wrapper, this counts as a give-up one round below the node.
            node.note["context_full"] = True
            node.pruned = True
            return _BACK - 1
        if rollout.context.episode.model_calls >= settings.options.max_queries:
            return _SPENT  # upstream ignores this reply
        back = await _visit(rollout, await rollout.grow(node, reply))
        if back > 1:
            return back if back in _ENDS else back - 1
    return 1


def _other_action(texts: Texts, node: Node) -> list[Message]:
    """Return a list with one message, which asks for an action not yet tried at ``node``. If no
    action was tried, the list is empty."""
    actions = []
    for child in node.children:
        leaf = child
        while not leaf.is_terminal and leaf.kind != "Action Input" and leaf.children:
            leaf = leaf.children[0]
        if leaf.kind == "Action Input" and leaf.parent is not None:
            action: dict[str, object] = {
                "name": leaf.parent.description,
                "arguments": leaf.description,
                "function_output": leaf.observation,
            }
            if texts.source == "upstream":
                action["mento-carlo-action-value"] = 0.0
            actions.append(action)
    if not actions:
        return []
    previous = json.dumps(actions, indent=2) + "\n"
    if node.observation:
        previous += texts.last_observation.replace("{observation}", node.observation)
    text = texts.diversity.replace("{previous_candidate}", previous)
    return [{"role": "user", "content": text}]


@dataclass(frozen=True)
class AgentSolution:
    """Result of an episode as JSON values (docs/results.md).

    Attributes:
        valid: true for an answer, and for a tree search in which the agent gave up. As in upstream,
            it is false for a single chain in which the agent gave up.
        final: ``{"return_type", "answer", "raw"}``, None if the agent did not finish. ``raw`` is
            Finish's arguments as text, which upstream's judges see. If the agent gave up at several
            nodes of a tree, ``final`` is from one of them.
        ended: answered, gave_up, max_steps, max_queries, exhausted, context or deadline.
        tries: one ``{"nodes"}`` for each attempt (`Node.as_json`).
        calls: API calls. ``tool`` and ``api`` are None for a function that does not exist.
        messages: the chat of the chain with the result, otherwise of the last chain.
    """

    method: str
    valid: bool
    final: dict[str, str] | None
    ended: str
    query_count: int
    dropped_calls: int
    tries: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    messages: list[Message]
    output: str
    """The last reply as the model wrote it."""
    finish_reason: str


async def run_agent(
    entry: Entry,
    context: EpisodeContext,
    settings: Settings,
    apis: Sequence[Api],
    caller: ApiCaller,
) -> AgentSolution:
    """Run the candidate on ``entry`` with ``apis``; ``caller`` answers its calls.

    If the deadline or the context length ends the episode, its state at that moment is scored.
    Raises `RowError` if the engine or a backend of the APIs fails."""
    rollout = Rollout(entry, context, settings, apis, caller)
    try:
        end_reason = await (search(rollout) if settings.width else run_chains(rollout))
    except Truncated as truncated:
        end_reason = truncated.reason
    leaves = [node for nodes in rollout.tries for node in nodes if not node.children]
    gave_up = [node for node in leaves if node.code == GAVE_UP and not node.is_terminal]
    chosen = next((node for node in leaves if node.is_terminal and not node.pruned), None)
    final = None
    if chosen is not None and chosen.answer is not None:
        # Calls after Finish in one reply still run, and upstream takes the last call's arguments.
        final = _final_record(GIVE_ANSWER, chosen.description, chosen.answer)
    elif gave_up and settings.width:
        # Upstream draws a give-up at random; here the entry determines it.
        chosen = random.Random(entry.content_hash()).choice(gave_up)
        final = _final_record(GIVE_UP, chosen.description)
    elif end_reason == "gave_up":
        final = _final_record(GIVE_UP, "")
    last = rollout.last
    return AgentSolution(
        method=settings.options.method,
        valid=chosen is not None,
        final=final,
        ended=end_reason,
        query_count=context.episode.model_calls,
        dropped_calls=rollout.dropped_calls,
        tries=[{"nodes": [node.as_json() for node in nodes]} for nodes in rollout.tries],
        calls=rollout.calls,
        messages=(chosen or rollout.tries[-1][-1]).messages,
        output=last.text if last else "",
        finish_reason=last.finish_reason if last else "",
    )


def _final_record(return_type: str, raw: str, answer: str = "") -> dict[str, str]:
    return {"return_type": return_type, "answer": answer, "raw": raw}
