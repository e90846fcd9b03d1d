"""CoT@n: single chains, one after another, until one gives an answer
(``Algorithms/single_chain.py``)."""

from __future__ import annotations

from ace_ray.benchmarks.stabletoolbench.agent.play import ContextFull, Play
from ace_ray.benchmarks.stabletoolbench.agent.tree import GAVE_UP, Node


async def chains(play: Play) -> str:
    """Plays up to n chains and returns how the last one ended: "answered", "gave_up",
    "max_steps", "max_queries" or "context". Raises `Cut` and `RowError`."""
    ended = ""
    for _ in range(play.settings.tries):
        ended = await _chain(play)
        # An answer that a give-up follows in the same reply ends it all too, and is none.
        if ended in ("answered", "max_queries") or play.trees[-1].nodes[-1].terminal:
            break
    return ended


async def _chain(play: Play) -> str:
    tree = play.open()
    node: Node = tree.root
    while True:
        if play.fixed and play.spent:
            node.pruned = True
            return "max_queries"
        try:
            reply = await play.ask(node.messages)
        except ContextFull:
            node.pruned = True
            return "context"
        node = await play.grow(tree, node, reply)
        if node.depth >= play.settings.max_steps and not node.terminal and not node.pruned:
            node.pruned = True
            return "max_steps"
        if node.pruned:
            return "gave_up" if node.code == GAVE_UP else "max_steps"
        if node.terminal:
            return "answered"
