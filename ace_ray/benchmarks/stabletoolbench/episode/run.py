"""Run an agent's episode, as single chains or a tree search, and build its stored result."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, Truncated
from ace_ray.benchmarks.stabletoolbench.episode.reading import ANSWERED, GAVE_UP
from ace_ray.benchmarks.stabletoolbench.episode.rollout import Caller, Message, Node, Rollout
from ace_ray.benchmarks.stabletoolbench.names import GIVE_ANSWER, GIVE_UP
from ace_ray.benchmarks.stabletoolbench.options import Settings
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.types import Entry


async def chains(rollout: Rollout) -> str:
    """Run single chains, at most `Settings.tries`, until one has an answer.

    Return how the last chain ended: "answered", "gave_up", "max_steps" or "context". Raises
    `Truncated` and `RowError`."""
    ended = ""
    for _ in range(rollout.settings.tries):
        ended = await _chain(rollout)
        # A reply with an answer and a give-up also ends all chains, but without an answer.
        if ended == "answered" or rollout.trees[-1].nodes[-1].terminal:
            break
    return ended


async def _chain(rollout: Rollout) -> str:
    tree = rollout.open()
    node: Node = tree.root
    while True:
        reply = await rollout.ask(node.messages)
        if reply is None:
            node.pruned = True
            return "context"
        node = await rollout.grow(tree, node, reply)
        if node.depth >= rollout.settings.max_steps and not node.terminal and not node.pruned:
            node.pruned = True
            return "max_steps"
        if node.pruned:
            return "gave_up" if node.code == GAVE_UP else "max_steps"
        if node.terminal:
            return "answered"


# Levels of the tree to go back after a give-up.
_BACK = 2
_STOP = 10_000


class Search:
    """Search through one tree, depth first. ``gave_up`` lists nodes at which the agent gave up."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._ended = "exhausted"
        self.gave_up: list[Node] = []

    async def run(self) -> str:
        """Search, and return "answered", "max_queries" or "exhausted". Raises `Truncated` and
        `RowError`."""
        self._tree = self._rollout.open()
        await self._visit(self._tree.root)
        return self._ended

    async def _visit(self, node: Node) -> int:
        """Explore the tree below ``node``. Return how many levels higher the search continues."""
        rollout = self._rollout
        if node.terminal:
            self._ended = "answered"
            return _STOP
        if node.pruned or node.depth >= rollout.settings.max_steps:
            node.pruned = True
            if node.code == GAVE_UP:
                self.gave_up.append(node)
                return _BACK
            return 1
        for child in range(rollout.settings.width):
            other = self._other_action(node)
            reply = await rollout.ask([*node.messages, *other], child)
            if reply is None:
                # As in ToolLLaMA's wrapper, this counts as a give-up one round below the node.
                node.note["context_full"] = True
                node.pruned = True
                return _BACK - 1
            if rollout.spent:  # upstream ignores this reply
                self._ended = "max_queries"
                return _STOP
            last = await rollout.grow(self._tree, node, reply)
            back = await self._visit(last)
            if back > 1:
                return back if back >= _STOP else back - 1
        return 1

    def _other_action(self, node: Node) -> list[Message]:
        """Return a list with one message, which asks for an action not yet tried at ``node``. If no
        action was tried, the list is empty."""
        texts = self._rollout.settings.texts
        done = []
        for child in node.children:
            leaf = child
            while not leaf.terminal and leaf.kind != "Action Input" and leaf.children:
                leaf = leaf.children[0]
            if leaf.kind == "Action Input" and leaf.parent is not None:
                one: dict[str, object] = {
                    "name": leaf.parent.description,
                    "arguments": leaf.description,
                    "function_output": leaf.observation,
                }
                if texts.source == "upstream":
                    one["mento-carlo-action-value"] = 0.0
                done.append(one)
        if not done:
            return []
        previous = json.dumps(done, indent=2) + "\n"
        if node.observation:
            previous += texts.last_observation.replace("{observation}", node.observation)
        text = texts.diversity.replace("{previous_candidate}", previous)
        return [{"role": "user", "content": text}]


@dataclass(frozen=True)
class AgentRun:
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

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def run_agent(
    entry: Entry,
    context: EpisodeContext,
    settings: Settings,
    apis: Sequence[Api],
    caller: Caller,
) -> AgentRun:
    """Run the candidate on ``entry`` with ``apis``; ``caller`` answers its calls.

    If the deadline or the context length ends the episode, its state at that moment is scored.
    Raises `RowError` if the engine or a backend of the APIs fails."""
    rollout = Rollout(entry, context, settings, apis, caller)
    search = Search(rollout) if settings.width else None
    try:
        ended = await (search.run() if search else chains(rollout))
    except Truncated as truncated:
        ended = truncated.reason
    return _result(rollout, ended, search.gave_up if search else [])


def _result(rollout: Rollout, ended: str, gave_up: Sequence[Node]) -> AgentRun:
    chosen = _answered(rollout)
    answered = chosen is not None
    if chosen is None and gave_up:
        # Upstream draws a give-up at random; here the entry determines it.
        chosen = random.Random(rollout.entry.content_hash()).choice(gave_up)
    last = rollout.last
    return AgentRun(
        method=rollout.settings.method,
        valid=chosen is not None,
        final=_final(chosen, answered, ended),
        ended=ended,
        query_count=rollout.context.episode.model_calls,
        dropped_calls=rollout.dropped_calls,
        tries=[{"nodes": tree.as_json()} for tree in rollout.trees],
        calls=rollout.calls,
        messages=(chosen or rollout.trees[-1].nodes[-1]).messages,
        output=last.text if last else "",
        finish_reason=last.finish_reason if last else "",
    )


def _answered(rollout: Rollout) -> Node | None:
    """Return the last node of the chain with the answer; None if no chain has an answer."""
    leaves = (node for tree in rollout.trees for node in tree.nodes if not node.children)
    return next((node for node in leaves if node.terminal and not node.pruned), None)


def _final(chosen: Node | None, answered: bool, ended: str) -> dict[str, str] | None:
    if chosen is None:
        return {"return_type": GIVE_UP, "answer": "", "raw": ""} if ended == "gave_up" else None
    if not answered:
        return {"return_type": GIVE_UP, "answer": "", "raw": chosen.description}
    finish = next(node for node in chosen.path() if node.code == ANSWERED)
    # Calls after Finish in one reply still run, and upstream takes the last call's arguments.
    return {"return_type": GIVE_ANSWER, "answer": finish.note["answer"], "raw": chosen.description}
