"""DFSDT: depth-first search without a filter (``Algorithms/DFS.py``, ``DFS_woFilter_w<k>``).

A node is expanded up to k times. After the first time the candidate is shown what it did there
before, and asked for something else. An answer ends the search; a give-up goes two nodes back, the
depth limit one.
"""

from __future__ import annotations

import json

from ace_ray.benchmarks.stabletoolbench.agent.rollout import Rollout
from ace_ray.benchmarks.stabletoolbench.agent.tree import GAVE_UP, Message, Node

_BACK = 2
"""Nodes to go back after a give-up."""
_STOP = 10_000


class Search:
    """The search through one tree; ``gave_up`` are the nodes at which the candidate did."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._expanded = 0
        self._ended = "exhausted"
        self.gave_up: list[Node] = []

    async def run(self) -> str:
        """Returns how it ended: "answered", "max_queries", "exhausted". Raises `Truncated` and
        `RowError`."""
        self._tree = self._rollout.open()
        await self._visit(self._tree.root)
        return self._ended

    async def _visit(self, node: Node) -> int:
        """Explores below ``node``; how many nodes to go back from it."""
        rollout = self._rollout
        node.expanded = self._expanded
        self._expanded += 1
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
            if rollout.fixed and rollout.spent:
                return self._out_of_queries()
            other = self._other_action(node)
            reply = await rollout.ask([*node.messages, *other], child)
            if reply is None:
                # As ToolLLaMA's wrapper has it: a give-up, one round below this node.
                node.note["context_full"] = True
                node.pruned = True
                return _BACK - 1
            if rollout.spent and not rollout.fixed:  # upstream does not look at this reply any more
                return self._out_of_queries()
            last = await rollout.grow(self._tree, node, reply)
            back = await self._visit(last)
            if back > 1:
                return back if back >= _STOP else back - 1
        return 1

    def _out_of_queries(self) -> int:
        self._ended = "max_queries"
        return _STOP

    def _other_action(self, node: Node) -> list[Message]:
        """The message that asks for an action unlike those below ``node``; none at first."""
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
