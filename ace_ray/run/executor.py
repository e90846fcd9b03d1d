"""What the executor of a graph calls at each of its looks: pauses, and checkers that keep up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from ace_ray.run.actors.checker import Checker
from ace_ray.run.elastic import ElasticWorkers
from ace_ray.run.ray_internals import OFF, ActorPool, ExecutionCallback, wait_for_any

PAUSE_S = 0.3
"""Maximum pause between two looks of Ray Data's executor while there is something to see."""

NOTHING_S = 0.5
"""Maximum wait until it looks again though there is nothing."""

MANY_TASKS = 256
"""Tasks in flight from which none is waited for."""

BEHIND_S = 10.0
"""Seconds of checks that may wait. A process takes a few of them to start, and engines that pass
on many blocks at a time are no reason for another one."""


class ThrottledExecutor(ExecutionCallback):  # type: ignore[misc]  # Ray ships no types of it
    """Lets Ray Data's executor look at its actors less often.

    It does so ten times a second, whatever there is to see, for 4 ms of CPU each time: an engine
    that needs all cores of a small machine loses 3 to 4 % by that. So it pauses, and then waits
    until a task has something to pass on.

    The attributes are the class's, since Ray Data makes the object; a process has one graph at a
    time.
    """

    pause: Callable[[], float] = staticmethod(lambda: 0.0)
    """Seconds until the next look."""
    stopping: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the graph is to end."""
    workers: ElasticWorkers | None = None
    """Engine workers that come and go."""

    def before_execution_starts(self, executor: Any) -> None:
        if (workers := type(self).workers) is not None:
            workers.attach(executor)

    def on_execution_step(self, executor: Any) -> None:
        if (workers := type(self).workers) is not None:
            workers.look()
        if "throttle" in OFF:
            return
        time.sleep(type(self).pause())
        if not type(self).stopping():
            wait_for_any(executor, at_most_s=NOTHING_S, at_most_tasks=MANY_TASKS)


def pause(left: int, *, stopping: bool) -> float:
    """Return the seconds until the next look while ``left`` rows are not stored.

    A row is worth a millisecond: small runs hardly wait, larger ones less than a second at their
    end. A run that is to end does not wait: each look passes on only a few of the blocks that no
    actor works on any more."""
    return 0.0 if stopping else max(0.0, min(PAUSE_S, 0.001 * left))


class CheckerPool(ExecutionCallback):  # type: ignore[misc]
    """Starts checkers when the ones that run fall behind.

    Ray Data's own autoscaler looks at how many blocks wait, whatever they take, and ends and starts
    processes again and again.
    """

    block_s: Callable[[], float] = staticmethod(lambda: 0.0)
    """Seconds that the checks of a block take, on average so far."""

    def on_execution_step(self, executor: Any) -> None:
        pool = ActorPool(executor, Checker.__name__)
        # Blocks that lie at a checker stay there: others can have the rest.
        if pool.starting or not pool.queued:
            return
        block_s, waiting = type(self).block_s(), pool.in_flight + pool.queued
        more = wanted(waiting, block_s, pool.size, pool.max_size) - pool.size
        if more:
            pool.grow(more, f"{waiting} blocks wait that take {block_s:.3g} s each")


def wanted(waiting: int, block_s: float, checkers: int, most: int) -> int:
    """Return how many checkers there should be where ``checkers`` are.

    Twice as many at most: what the new ones take is seen when they are there. Never fewer: a
    process that has started costs nothing.

    Args:
        waiting: blocks at checkers and on the way to them.
        block_s: seconds of checks of one block, as measured; 0 before there is one.
    """
    needed = math.ceil(waiting * block_s / BEHIND_S)
    return max(checkers, min(needed, 2 * checkers, most))
