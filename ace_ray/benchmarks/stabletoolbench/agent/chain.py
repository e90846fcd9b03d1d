"""CoT@n: single chains, one after another, until one gives an answer
(``Algorithms/single_chain.py``)."""

from __future__ import annotations

from ace_ray.benchmarks.stabletoolbench.agent.rollout import Rollout
from ace_ray.benchmarks.stabletoolbench.agent.tree import GAVE_UP, Node


async def chains(rollout: Rollout) -> str:
    """Up to n chains; how the last one ended: "answered", "gave_up", "max_steps", "max_queries" or
    "context". Raises `Truncated` and `RowError`."""
    ended = ""
    for _ in range(rollout.settings.tries):
        ended = await _chain(rollout)
        # An answer that a give-up follows in the same reply ends it all too, and is none.
        if ended in ("answered", "max_queries") or rollout.trees[-1].nodes[-1].terminal:
            break
    return ended


async def _chain(rollout: Rollout) -> str:
    tree = rollout.open()
    node: Node = tree.root
    while True:
        if rollout.fixed and rollout.spent:
            node.pruned = True
            return "max_queries"
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
