"""How many checkers a graph has: as many as keep up with the engines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ray.data import DataContext
from ray.data._internal.actor_autoscaler.autoscaling_actor_pool import ActorPoolScalingRequest
from ray.data._internal.execution.execution_callback import ExecutionCallback

from ace_ray.run.actors.checker import Checker

BEHIND_S = 10.0
"""Seconds of checks that may wait. A process takes a few of them to start, and engines that pass
on many blocks at a time are no reason for another one."""


def wanted(waiting: int, block_s: float, checkers: int, most: int) -> int:
    """How many checkers there should be where ``checkers`` are.

    Twice as many at most: what the new ones take is seen when they are there. Never fewer: a
    process that has started costs nothing.

    Args:
        waiting: blocks at checkers and on the way to them.
        block_s: seconds of checks of one block, as measured; 0 before there is one.
    """
    needed = math.ceil(waiting * block_s / BEHIND_S)
    return max(checkers, min(needed, 2 * checkers, most))


class CheckerPool(ExecutionCallback):  # type: ignore[misc]  # Ray ships no types of it
    """Starts checkers when those that are there fall behind.

    Ray Data's own autoscaler looks at how many blocks wait, whatever they take, and ends and starts
    processes again and again.
    """

    block_s: Callable[[], float] = staticmethod(lambda: 0.0)
    """Seconds that the checks of a block take, on average so far. The class's, since Ray Data makes
    the object; a process has one graph at a time."""

    def on_execution_step(self, executor: Any) -> None:
        for operator, state in executor._topology.items():
            if Checker.__name__ not in operator.name:
                continue
            (pool,) = operator.get_autoscaling_actor_pools()
            # Blocks that lie at a checker stay there: others can have the rest.
            queued = state.total_enqueued_input_blocks()
            if pool.num_pending_actors() or not queued:
                return
            block_s = type(self).block_s()
            waiting = pool.num_tasks_in_flight() + queued
            there = pool.current_size()
            more = wanted(waiting, block_s, there, pool.max_size()) - there
            if more:
                reason = f"{waiting} blocks wait that take {block_s:.3g} s each"
                pool.scale(ActorPoolScalingRequest.upscale(delta=more, reason=reason))


def leave_pools_alone(context: DataContext) -> None:
    """Keep Ray Data from changing the sizes of pools by itself, above their smallest."""
    context.autoscaling_config.actor_pool_util_upscaling_threshold = math.inf
    context.autoscaling_config.actor_pool_util_downscaling_threshold = -1.0
