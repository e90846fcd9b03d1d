"""The one Ray Data graph: plan rows -> engine workers -> checkers -> Parquet parts."""

from __future__ import annotations

import logging
import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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

# Maximum blocks in the queue of a checker.
CHECKER_TASKS = 16

# Maximum blocks that wait at the writer for their part.
WAITING_BLOCKS = 256

# Minimum blocks of a worker, if the run has as many: with few blocks, all may wait for their
# slowest row.
FEWEST_BLOCKS = 4

# Maximum pause of Ray Data's executor between two looks.
PAUSE_S = 0.3

# Maximum wait of the executor for a task with output.
NOTHING_S = 0.5

# Tasks in flight from which the executor does not wait for one.
MANY_TASKS = 256

# vLLM's default of ``max_num_seqs``.
DEFAULT_MAX_NUM_SEQS = 256


@dataclass(frozen=True)
class Shape:
    """The block layout of a run."""

    most: int
    """Maximum rows in flight per worker."""
    size: int
    """Rows of a block, of one model call each."""
    calls: int
    """Maximum concurrent calls per worker, one block and one thread each."""
    spare: int
    """Blocks in the queue of a worker, so that no call waits for the executor."""


def shape(job: Job, resources: Resources, rows: int, interactive: int) -> Shape:
    """Compute the block layout for ``rows`` rows. The first ``interactive`` rows get one block
    each.

    A block waits for its slowest row, so a worker holds eight times as many rows as are in flight:
    with blocks of 8, three rows in a hundred that take 17 times as long cost a third of the
    throughput otherwise. Other workers cannot take these rows, so each of several workers holds at
    most half of its share of the run. All elastic workers that may come count here. In `_at_work`
    at most as many count as there are, or engines would stay small for workers that never come.
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
    """Return the workers that share the run: at most twice those that there are."""
    return min(resources.most_workers, 2 * resources.workers)


def _at_work(job: Job, resources: Resources, rows: int) -> int:
    """Return the maximum rows in flight per worker: twice the engine's batch keeps its queue full.
    A fair share of the run is the limit, or the first ready worker would take every row."""
    if job.config.concurrency != "auto":
        return job.config.concurrency
    if job.config.model.endpoint is not None:
        # More would wait in the client's queue, within their timeout.
        most = job.config.model.endpoint.max_concurrency
        return max(1, min(most, math.ceil(rows / _expected(resources))))
    batched = int(job.engine.get("max_num_seqs") or DEFAULT_MAX_NUM_SEQS)
    return max(1, min(2 * batched, math.ceil(rows / _expected(resources))))


def _block(resources: Resources, rows: int, held: int) -> int:
    """Return the rows of a block: few in small runs, since a block passes on when its last row
    ends. A block costs Ray 30 ms of CPU, so larger runs have larger blocks, as long as a worker
    holds 16."""
    wanted = max(1, min(32, rows // (16 * resources.most_workers)), min(512, rows // 2000))
    return max(1, min(wanted, held // 16))


def rows_per_part(job: Job, rows: int) -> int:
    """Return the rows of a part: 32 in small runs, up to 8192 in large ones."""
    if job.config.rows_per_part != "auto":
        return job.config.rows_per_part
    return min(8192, max(32, rows // 64))


@dataclass(frozen=True)
class Work:
    """Pending rows of one run of a job."""

    run: int
    rows: PlannedRows
    attempts: np.ndarray
    """Attempts of each row, with this one."""


def blocks(work: Work, size: int) -> Iterator[pa.Table]:
    """Yield the rows in order, ``size`` to a block. An interactive episode has its own block, or
    shares one with those of the same preparation."""
    rows = work.rows
    columns = {**rows.columns(), "attempt": work.attempts}
    for window in np.unique(rows.window).tolist():
        inside = rows.window == window
        others = np.flatnonzero(~rows.interactive & inside)
        groups: list[Any] = _episodes(rows, np.flatnonzero(rows.interactive & inside))
        groups += [others[start : start + size] for start in range(0, len(others), size)]
        for places in groups:
            block = {name: pa.array(column[places]) for name, column in columns.items()}
            yield pa.table({"run": pa.array(np.full(len(places), work.run)), **block}).cast(PLAN)


class PlannedBlocks:
    """The blocks of ``work``, made one at a time: Ray holds them outside of this process, in which
    they would be as large as the plan."""

    def __init__(self, work: Sequence[Work], size: int) -> None:
        self._work, self._size = work, size

    def __iter__(self) -> Iterator[pa.Table]:
        for one in self._work:
            yield from blocks(one, self._size)


def _episodes(rows: PlannedRows, places: np.ndarray) -> list[list[int]]:
    """Return ``places``, the indices of interactive rows, grouped by preparation."""
    columns = rows.columns()
    groups: dict[tuple[int, ...], list[int]] = {}
    for place in places.tolist():
        shared = int(rows.shares[place])
        # Each sample has its own preparation, with its own seed.
        key = (shared, int(columns["sample"][place]), int(columns["repeat"][place]))
        groups.setdefault(key if shared >= 0 else (-1, place), []).append(place)
    return list(groups.values())


class ThrottledExecutor(ExecutionCallback):  # type: ignore[misc]  # Ray ships no types of it
    """Makes Ray Data's executor look at its actors less often.

    It looks ten times a second, for 4 ms of CPU each, which costs a CPU engine 3 to 4 %. Here it
    pauses, then waits until a task has output. The attributes are the class's, since Ray Data
    makes the object; a process runs one graph at a time.
    """

    pause: Callable[[], float] = staticmethod(lambda: 0.0)
    """Returns the seconds until the next look."""
    stopping: Callable[[], bool] = staticmethod(lambda: False)
    """Returns whether the graph is to end."""
    workers: ElasticWorkers | None = None

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

    A millisecond a row: small runs hardly wait. A stopping run does not wait, since each look
    passes on only a few blocks."""
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
    """Evaluate the rows of ``work``, run after run, and store them. Blocks until the last part is
    stored. Exceptions of Ray Data pass through.

    Args:
        stored: called with a run and the number of its rows that were stored.
        stopping: returns whether the graph is to end.
        places: returns the placement of one engine worker (`placement.reserved`).
        workers: elastic engine workers, if their number is a range.
    """
    left = sum(len(one.rows) for one in work)
    ThrottledExecutor.pause = staticmethod(lambda: pause(left, stopping=stopping()))
    ThrottledExecutor.stopping = staticmethod(stopping)
    ThrottledExecutor.workers = workers
    _quiet()
    # Runs come one after another, so the largest one decides.
    largest = max(work, key=lambda one: len(one.rows)).rows
    cut = shape(job, resources, len(largest), int(np.count_nonzero(largest.interactive)))
    # Not `from_arrow`: it runs a task of a whole CPU for each block, and actors may hold all CPUs.
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
        # The GPUs of an engine over several nodes are held by its own workers.
        num_gpus=0 if resources.spread else resources.worker_gpus,
        ray_remote_args_fn=places,
    )
    scored = map_blocks(
        answered,
        Checker,
        fn_constructor_args=(job,),
        # With Ray's default of 2 a checker is idle between two looks of the executor.
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
        # The executor ends with the last frame that refers to it: now, while Ray is up.
        traceback.clear_frames(error.__traceback__)
        raise


def _writer_place(store: Store) -> Callable[[], dict[str, Any]] | None:
    """Return the writer's placement: on the driver's node for a local folder."""
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
    # Each task in flight reads its process's page tables once a second: an engine worker has dozens
    # of tasks and gigabytes.
    context.memory_usage_poll_interval_s = None
    # Ray Data ends a graph without output for half an hour; an engine may take longer to load. Each
    # wait has a deadline of our own.
    context.execution_no_progress_timeout_s = -1
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # It prints a traceback when a graph ends; the driver prints the cause in one line.
    logging.getLogger("ray.data.exceptions").setLevel(logging.CRITICAL)
    # Ray 2.60 deprecates every way to set max_restarts in map_batches, without another one.
    warnings.filterwarnings("ignore", message=".*ray_remote_args_fn.* is deprecated")
