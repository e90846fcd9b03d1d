"""The one Ray Data graph: plan rows -> engine workers -> checkers -> Parquet parts."""

from __future__ import annotations

import logging
import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ace_ray.cluster.ray_internals import (
    ExecutionCallback,
    arguments_as_values,
    map_blocks,
    wait_for_any,
)
from ace_ray.cluster.resources import CHECKER_CPUS, WRITER_CPUS, Resources
from ace_ray.pipeline.actors.checker import Checker
from ace_ray.pipeline.actors.engine_worker import EngineWorker
from ace_ray.pipeline.actors.job import Job
from ace_ray.pipeline.actors.writer import Writer
from ace_ray.pipeline.elastic import ElasticWorkers
from ace_ray.pipeline.health.processes import give_back_memory
from ace_ray.pipeline.planning.plan import PlannedRows
from ace_ray.storage.object_store import LocalStore, Store
from ace_ray.storage.rows import PLAN

CHECKER_TASKS = 16
"""Most blocks that wait at one checker."""

WAITING_BLOCKS = 256
"""Most blocks that wait at the writer for others to make a part."""

FEWEST_BLOCKS = 4
"""That a worker holds, however large, if there are as many for each: the engine stops when each of
them waits for a slow row."""

PAUSE_S = 0.3
"""Maximum pause between two looks of Ray Data's executor while there is something to see."""

NOTHING_S = 0.5
"""Maximum wait until it looks again though there is nothing."""

MANY_TASKS = 256
"""Tasks in flight from which none is waited for."""

DEFAULT_MAX_NUM_SEQS = 256
"""vLLM's own default, where the config names none."""


@dataclass(frozen=True)
class Shape:
    """How the rows of a run are cut into blocks, and how many of them one worker has."""

    most: int
    """Rows at work at a time."""
    size: int
    """Rows of one model call each that travel together."""
    calls: int
    """Blocks of which no row, some or all but one may be done. Each is a thread."""
    spare: int
    """Blocks more that wait at the actor, so that none of its calls waits for the executor."""


def shape(job: Job, resources: Resources, rows: int, interactive: int) -> Shape:
    """That of a run of ``rows``, ``interactive`` ones among them, which come first and alone.

    A block waits for its slowest row. Were only as many rows held as may be at work, slow ones
    would leave the engine without others: three in a hundred that take 17 times as long cost a
    third of its throughput, with blocks of 8. So a worker holds eight times as many. Since others
    cannot have what it holds, one of several holds no more than half of its share of the run, or
    what may be at work. Episodes need calls of their own, to which as many blocks come later.

    Where workers may come later, what is held is counted as if all had come, so that they find
    rows; what is at work, as if as many came as there are, so that engines are not kept small for
    workers that never come.
    """
    workers = resources.most_workers
    most = _at_work(job, resources, rows)
    half = max(most, rows if workers == 1 else rows // (2 * workers))
    held = min(8 * most, half)
    named = job.config.rows_per_block
    size = _block(resources, rows, held) if named == "auto" else named
    alone = math.ceil(interactive / _expected(resources))
    fewest = min(FEWEST_BLOCKS, math.ceil(rows / (size * workers)))
    calls = min(most, max(fewest, alone + math.ceil(held / size)))
    if alone and named == "auto":
        size = min(size, math.ceil(half / calls))
    spare = max(1, min(8, rows // (8 * workers)) // size)
    return Shape(most, size, calls, spare)


def _expected(resources: Resources) -> int:
    """Workers that share the run, those that may come among them: no more than there are."""
    return min(resources.most_workers, 2 * resources.workers)


def _at_work(job: Job, resources: Resources, rows: int) -> int:
    """Twice what the engine batches keeps its queue full; never more than a fair share of the run,
    or the first worker that is ready would take every row."""
    if job.config.concurrency != "auto":
        return job.config.concurrency
    if job.config.model.endpoint is not None:
        # More would wait for their turn at the client, within their time.
        most = job.config.model.endpoint.max_concurrency
        return max(1, min(most, math.ceil(rows / _expected(resources))))
    batched = int(job.engine.get("max_num_seqs") or DEFAULT_MAX_NUM_SEQS)
    return max(1, min(2 * batched, math.ceil(rows / _expected(resources))))


def _block(resources: Resources, rows: int, held: int) -> int:
    """Small runs go almost row by row, since a block passes on when its last row ends. Each block
    costs Ray some 30 ms of CPU: larger runs bundle more, as far as a worker still holds 16."""
    wanted = max(1, min(32, rows // (16 * resources.most_workers)), min(512, rows // 2000))
    return max(1, min(wanted, held // 16))


def rows_per_part(job: Job, rows: int) -> int:
    """A few dozen for small runs; large runs get larger parts, if they fill up in time."""
    if job.config.rows_per_part != "auto":
        return job.config.rows_per_part
    return min(8192, max(32, rows // 64))


@dataclass(frozen=True)
class Work:
    """The pending rows of one run of a job."""

    run: int
    rows: PlannedRows
    attempts: np.ndarray
    """Of each row, this one included."""


def blocks(work: Work, size: int) -> Iterator[pa.Table]:
    """Rows in order, ``size`` to a block; interactive episodes travel alone, so that none waits for
    the end of another, or with those that share their preparation."""
    rows = work.rows
    columns = {**rows.columns(), "attempt": work.attempts}
    for places in chain.from_iterable(
        _window(rows, window, size) for window in np.unique(rows.window).tolist()
    ):
        block = {name: pa.array(column[places]) for name, column in columns.items()}
        yield pa.table({"run": pa.array(np.full(len(places), work.run)), **block}).cast(PLAN)


def _window(rows: PlannedRows, window: int, size: int) -> Iterator[np.ndarray]:
    """The places of the rows of each block of a window."""
    others = np.flatnonzero(~rows.interactive & (rows.window == window))
    yield from map(np.array, _episodes(rows, window))
    for start in range(0, len(others), size):
        yield others[start : start + size]


class PlannedBlocks:
    """The blocks of ``work``, made anew whenever they are looked at, and one at a time: Ray holds
    each of them outside of this process, and here they would be as large as the plan."""

    def __init__(self, work: Sequence[Work], size: int) -> None:
        self._work, self._size = work, size

    def __iter__(self) -> Iterator[pa.Table]:
        for one in self._work:
            yield from blocks(one, self._size)


def _episodes(rows: PlannedRows, window: int) -> list[list[int]]:
    """The places of the interactive rows of a window, those that share a preparation together."""
    columns = rows.columns()
    groups: dict[tuple[int, ...], list[int]] = {}
    for place in np.flatnonzero(rows.interactive & (rows.window == window)).tolist():
        shared = int(rows.shares[place])
        # Each sample prepares by itself: its answers are drawn with another seed.
        key = (shared, int(columns["sample"][place]), int(columns["repeat"][place]))
        groups.setdefault(key if shared >= 0 else (-1, place), []).append(place)
    return list(groups.values())


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
        time.sleep(type(self).pause())
        if not type(self).stopping():
            wait_for_any(executor, at_most_s=NOTHING_S, at_most_tasks=MANY_TASKS)


def pause(left: int, *, stopping: bool) -> float:
    """Return the seconds until the next look while ``left`` rows are not stored.

    A row is worth a millisecond: small runs hardly wait, larger ones less than a second at their
    end. A run that is to end does not wait: each look passes on only a few of the blocks that no
    actor works on any more."""
    return 0.0 if stopping else max(0.0, min(PAUSE_S, 0.001 * left))


def run_graph(
    job: Job,
    work: Sequence[Work],
    resources: Resources,
    stored: Callable[[int, int], None] = lambda run, rows: None,
    stopping: Callable[[], bool] = lambda: False,
    *,
    places: Callable[[], dict[str, Any]] | None = None,
    workers: ElasticWorkers | None = None,
) -> None:
    """Evaluate the rows of ``work``, run after run, and write them.

    ``stored`` is told how many rows of a run were stored; ``stopping`` says whether the graph is to
    end; ``places`` gives each engine worker what was reserved for it (`placement.reserved`);
    ``workers`` keeps those that come and go. Blocks until the last part is stored. Exceptions of
    Ray Data pass through.
    """
    left = sum(len(one.rows) for one in work)
    ThrottledExecutor.pause = staticmethod(lambda: pause(left, stopping=stopping()))
    ThrottledExecutor.stopping = staticmethod(stopping)
    ThrottledExecutor.workers = workers
    _quiet()
    # Runs come one after another: each is as large as if it were alone.
    largest = max(work, key=lambda one: len(one.rows)).rows
    cut = shape(job, resources, len(largest), int(np.count_nonzero(largest.interactive)))
    # Not `from_arrow`: that runs a task of a whole CPU for each block, and engines, servers and
    # sandboxes may hold all but the fraction that the other actors need.
    planned = ray.data.from_blocks(PlannedBlocks(work, cut.size))
    give_back_memory()
    lengths = {one.run: len(one.rows) for one in work}
    waiting = min(planned.num_blocks(), WAITING_BLOCKS)
    answered = map_blocks(
        planned,
        EngineWorker,
        fn_constructor_args=(job, cut.most),
        compute=ActorPoolStrategy(
            min_size=resources.fewest or resources.workers,
            initial_size=resources.workers,
            max_size=resources.most_workers,
            max_concurrent_calls_per_actor=cut.calls,
            max_tasks_in_flight_per_actor=cut.calls + cut.spare,
        ),
        num_cpus=resources.worker_cpus,
        # Those of one that lies on several nodes are its own workers'.
        num_gpus=0 if resources.spread else resources.worker_gpus,
        ray_remote_args_fn=places,
    )
    scored = map_blocks(
        answered,
        Checker,
        fn_constructor_args=(job,),
        # Ray's own 2 would keep a checker idle between two looks of the executor.
        compute=ActorPoolStrategy(
            size=resources.checkers,
            max_tasks_in_flight_per_actor=CHECKER_TASKS,
        ),
        num_cpus=CHECKER_CPUS,
    )
    graph = map_blocks(
        scored,
        Writer,
        fn_constructor_args=(job,),
        fn_constructor_kwargs={
            "rows": rows_per_part(job, len(largest)),
            "planned": [lengths.get(run, 0) for run in range(len(job.runs))],
            "calls": waiting,
        },
        compute=ActorPoolStrategy(
            size=1,
            max_concurrent_calls_per_actor=waiting,
            max_tasks_in_flight_per_actor=waiting + 8,
        ),
        num_cpus=WRITER_CPUS,
        ray_remote_args_fn=_writer_place(job.runs[0].store),
    )
    try:
        with arguments_as_values():
            for receipt in graph.iter_batches(batch_size=None, batch_format="pyarrow"):
                for run, rows in zip(*receipt.to_pydict().values(), strict=True):
                    left -= rows
                    stored(run, rows)
    except BaseException as error:
        # The executor ends with the last frame that holds it: now, while there is a Ray.
        traceback.clear_frames(error.__traceback__)
        raise


def _writer_place(store: Store) -> Callable[[], dict[str, Any]] | None:
    """A local folder is the driver's: write it there, if that node takes actors at all."""
    if not isinstance(store, LocalStore):
        return None
    node = ray.get_runtime_context().get_node_id()
    return lambda: {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)}


def _quiet() -> None:
    context = DataContext.get_current()
    context.custom_execution_callback_classes = [ThrottledExecutor]
    # Ray Data does not change the sizes of pools by itself, above their smallest.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = math.inf
    context.autoscaling_config.actor_pool_util_downscaling_threshold = -1.0
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Each task in flight would read its process's page tables once a second: an engine worker has
    # dozens of tasks and gigabytes.
    context.memory_usage_poll_interval_s = None
    # A guard of Ray Data's that ends a graph which passes nothing on for half an hour: an engine
    # may take longer to load, an episode to end. Our own deadlines hold each of the waits.
    context.execution_no_progress_timeout_s = -1
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # It prints the traceback of what ends a graph; the driver says the cause in one line.
    logging.getLogger("ray.data.exceptions").setLevel(logging.CRITICAL)
    # Ray 2.60 deprecates every way to say max_restarts to map_batches and names no other.
    warnings.filterwarnings("ignore", message=".*ray_remote_args_fn.* is deprecated")
