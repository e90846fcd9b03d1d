"""The Ray Data graph of a run: planned rows -> engine workers -> checkers -> Parquet parts."""

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
    waiting_blocks,
)
from ace_ray.cluster.resources import CHECKER_CPUS, WRITER_CPUS, Nodes, Resources
from ace_ray.pipeline.actors.checker import Checker
from ace_ray.pipeline.actors.engine_worker import EngineWorker
from ace_ray.pipeline.actors.worker_config import WorkerConfig
from ace_ray.pipeline.actors.writer import Writer
from ace_ray.pipeline.elastic import ElasticWorkers
from ace_ray.pipeline.health.heartbeat import give_back_memory
from ace_ray.pipeline.monitoring.utilization import Backlog
from ace_ray.pipeline.planning import prefixes
from ace_ray.pipeline.planning.plan import PlannedRows
from ace_ray.storage.durations import Durations
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.rows import PLAN

# Maximum number of blocks in the queue of a checker.
CHECKER_TASKS = 16

# Maximum number of blocks that wait at the writer until their part is stored.
WAITING_BLOCKS = 256

# Minimum number of blocks that a worker holds, if the run has that many. With fewer blocks, all of
# them may wait for their slowest row.
FEWEST_BLOCKS = 4

# Rows of a block on average, as a share of its maximum, with the official prompts.
MEAN_BLOCK = 0.8

# Minimum rows of a block if a worker gets `SHARING_ROWS` rows or more. With smaller blocks, rows
# with the same prefix go to many workers, and each of them computes it.
SHARING_BLOCK, SHARING_ROWS = 8, 48

# Maximum pause between two steps of Ray Data's executor.
PAUSE_S = 0.3

# Maximum time for which the executor waits until a task has output.
NOTHING_S = 0.5

# Number of tasks in flight from which the executor does not wait.
MANY_TASKS = 256

# vLLM's default of ``max_num_seqs``.
DEFAULT_MAX_NUM_SEQS = 256


@dataclass(frozen=True)
class Layout:
    """The block layout of a run: the rows of a block, and the blocks and rows of a worker."""

    concurrency: int
    """Maximum rows in flight per worker."""
    size: int
    """Maximum rows of a block; the minimum is half as many. Blocks are cut where prompts share the
    shortest prefixes. Interactive rows have their own blocks."""
    calls: int
    """Maximum concurrent calls per worker, each with one block and one thread."""
    spare: int
    """Number of further blocks in a worker's queue, so that calls do not wait for Ray Data."""


def layout(job: WorkerConfig, resources: Resources, rows: int, interactive: int) -> Layout:
    """Compute the block layout for ``rows`` rows. The first ``interactive`` rows get one block
    each.

    A block is returned only when its slowest row has ended. So a worker holds eight times as many
    rows as are in flight.

    Other workers cannot take rows that a worker holds. So with several workers, each holds at most
    half of an equal share of the run. The share of elastic workers assumes their maximum number.
    `_concurrency` assumes fewer workers, so that batches are large even if no workers are added."""
    workers = resources.most_workers
    concurrency = _concurrency(job, resources, rows)
    half = max(concurrency, rows if workers == 1 else rows // (2 * workers))
    worker_rows = min(8 * concurrency, half)
    rows_per_block = job.config.rows_per_block
    size = _block_size(resources, rows, worker_rows) if rows_per_block == "auto" else rows_per_block
    alone = math.ceil(interactive / _expected_workers(resources))
    mean = MEAN_BLOCK * size
    fewest = min(FEWEST_BLOCKS, math.ceil(rows / (mean * workers)))
    calls = min(concurrency, max(fewest, alone + math.ceil(worker_rows / mean)))
    if alone and rows_per_block == "auto":
        size = min(size, math.ceil(half / calls))
    spare = max(1, int(min(8, rows // (8 * workers)) / mean))
    return Layout(concurrency, size, calls, spare)


def _expected_workers(resources: Resources) -> int:
    """Return the maximum number of workers, but at most twice the initial number."""
    return min(resources.most_workers, 2 * resources.workers)


def _concurrency(job: WorkerConfig, resources: Resources, rows: int) -> int:
    """Return the maximum rows in flight per worker: twice the engine's batch, so that its queue is
    full, but at most an equal share of the run, so that the first worker does not take all rows."""
    if job.config.concurrency != "auto":
        return job.config.concurrency
    limit = 2 * int(job.engine.get("max_num_seqs") or DEFAULT_MAX_NUM_SEQS)
    if job.config.model.endpoint is not None:
        # More rows would wait in the client's queue, and their timeout includes this wait.
        limit = job.config.model.endpoint.max_concurrency
    return max(1, min(limit, math.ceil(rows / _expected_workers(resources))))


def _block_size(resources: Resources, rows: int, worker_rows: int) -> int:
    """Return the maximum rows of a block. Small runs have small blocks, because a block goes to a
    checker only when its last row has ended. Large runs have larger blocks, because a block costs
    Ray 30 ms of CPU. A worker holds ``worker_rows`` rows, in several blocks."""
    share = rows // resources.most_workers
    size = max(1, min(32, share // 16), min(512, rows // 2000))
    sharing = SHARING_BLOCK if share >= SHARING_ROWS else 1
    return 2 * max(1, min(size, worker_rows // 16), min(sharing, worker_rows // 6))


def rows_per_part(job: WorkerConfig, rows: int) -> int:
    """Return the number of rows of a part: 32 in small to 8192 in large runs, unless configured."""
    if job.config.rows_per_part != "auto":
        return job.config.rows_per_part
    return min(8192, max(32, rows // 64))


@dataclass(frozen=True)
class Work:
    """Pending rows of one run of a job."""

    run: int
    rows: PlannedRows
    attempts: np.ndarray
    """Number of the next attempt of each row; 1 for the first attempt."""
    durations: Durations


def blocks(work: Work, size: int) -> Iterator[pa.Table]:
    """Yield the rows in blocks of ``size`` / 2 to ``size`` rows, cut along the prefixes of their
    prompts, with the most work first. Windows of early stopping stay in order. An interactive
    episode has its own block, or shares a block with the episodes of the same preparation. If
    durations are known, the blocks with the longest rows come first, still after all episodes."""
    rows, durations = work.rows, work.durations
    columns = {**rows.columns(), "attempt": work.attempts, "length": durations.lengths[rows.entry]}
    # Unlike the time of a single call, its tokens do not depend on the other calls in its batch.
    seconds, tokens = durations.seconds[rows.entry], durations.tokens[rows.entry]
    longest = np.where(rows.interactive, seconds, tokens)
    for window in np.unique(rows.window).tolist():
        inside = rows.window == window
        groups: dict[Any, Any] = {}
        for index in np.flatnonzero(rows.interactive & inside).tolist():
            shares = int(rows.shares[index])
            # Each sample has its own preparation, with its own seed.
            key = (shares, int(rows.sample[index]), int(rows.repeat[index]))
            groups.setdefault(key if shares >= 0 else index, []).append(index)
        single = np.flatnonzero(~rows.interactive & inside)
        sizes, common = rows.size[single], rows.common[single]
        common[:1] = 0
        cut = prefixes.cuts(common, (size + 1) // 2, size)
        largest_first = prefixes.largest_first(cut, sizes, common)
        parts = [*groups.values(), *(single[a:b] for a, b in largest_first)]
        if longest.any():
            parts.sort(key=lambda part: (not rows.interactive[part[0]], -longest[part].max()))
        for indices in parts:
            block = {name: pa.array(column[indices]) for name, column in columns.items()}
            yield pa.table({"run": pa.array(np.full(len(indices), work.run)), **block}).cast(PLAN)


class PlannedBlocks:
    """Yields the blocks of ``work`` one at a time. Ray stores each block outside of this process,
    so that all blocks together need not fit into this process's memory."""

    def __init__(self, work: Sequence[Work], size: int) -> None:
        self._work, self._size = work, size

    def __iter__(self) -> Iterator[pa.Table]:
        for run_work in self._work:
            yield from blocks(run_work, self._size)


class ThrottledExecutor(ExecutionCallback):  # type: ignore[misc]  # Ray ships no types of it
    """Makes Ray Data's executor check its actors less often.

    By default the executor makes ten steps a second (4 ms of CPU each), which costs a CPU engine 3
    to 4 % of its speed. Here it pauses between steps, then waits until a task has output. The
    attributes belong to the class, since Ray Data makes the object for the process's only graph."""

    workers: ElasticWorkers | None
    after_step: Callable[[Any], None]
    """Called with the executor after each step."""

    def before_execution_starts(self, executor: Any) -> None:
        if (workers := type(self).workers) is not None:
            workers.attach(executor)

    def on_execution_step(self, executor: Any) -> None:
        if (workers := type(self).workers) is not None:
            workers.adjust()
        type(self).after_step(executor)


def run_graph(
    job: WorkerConfig,
    work: Sequence[Work],
    resources: Resources,
    stored: Callable[[int, int], None],
    stopping: Callable[[], bool],
    *,
    backlog: Callable[[Backlog], None],
    worker_options: Callable[[], dict[str, Any]] | None,
    refit: Callable[[Nodes], Resources],
) -> None:
    """Evaluate the rows of ``work``, run after run, and store them. Return when the last part is
    stored. Exceptions of Ray Data are not caught.

    Args:
        stored: called with the index of a run and the number of its rows that were stored.
        stopping: returns whether the graph must end.
        backlog: called after each step of Ray Data with the numbers of blocks that wait.
        worker_options: returns the Ray options that place one engine worker (`placement.reserved`).
        refit: returns the ``resources`` on other nodes, if the number of workers is a range."""
    remaining_rows = sum(len(run_work.rows) for run_work in work)
    ThrottledExecutor.workers = None
    if resources.is_elastic:
        ThrottledExecutor.workers = ElasticWorkers(
            job.coordinator, resources, refit, job.config.drain_timeout_s, stopping
        )

    def after_step(executor: Any) -> None:
        planned, _ = waiting_blocks(executor, "EngineWorker")
        waiting = [n for name in ("Checker", "Writer") for n in waiting_blocks(executor, name)]
        backlog(Backlog(planned, *waiting))
        # A stopping run does not wait, since each step moves only a few blocks.
        if not stopping():
            # 1 ms for each row that is not stored, so that small runs hardly wait.
            time.sleep(max(0.0, min(PAUSE_S, 0.001 * remaining_rows)))
        if not stopping():
            wait_for_any(executor, at_most_s=NOTHING_S, at_most_tasks=MANY_TASKS)

    ThrottledExecutor.after_step = staticmethod(after_step)
    _configure()
    graph = _graph(job, work, resources, worker_options)
    try:
        with arguments_as_values():
            for receipt in graph.iter_batches(batch_size=None, batch_format="pyarrow"):
                for run, rows in zip(*receipt.to_pydict().values(), strict=True):
                    remaining_rows -= rows
                    stored(run, rows)
    except BaseException as error:
        # The executor ends with the last frame that refers to it, which must be while Ray runs.
        traceback.clear_frames(error.__traceback__)
        raise


def _graph(
    job: WorkerConfig,
    work: Sequence[Work],
    resources: Resources,
    worker_options: Callable[[], dict[str, Any]] | None,
) -> Any:
    """Return the Ray Data dataset that evaluates ``work`` when its batches are read."""
    # Runs are evaluated one after another, so the largest run decides the layout.
    largest = max((run_work.rows for run_work in work), key=len)
    cut = layout(job, resources, len(largest), int(np.count_nonzero(largest.interactive)))
    # Not `from_arrow`: for each block it runs a task that needs a CPU, and actors may use them all.
    planned = ray.data.from_blocks(PlannedBlocks(work, cut.size))
    give_back_memory()
    lengths = {run_work.run: len(run_work.rows) for run_work in work}
    waiting = min(planned.num_blocks(), WAITING_BLOCKS)
    is_local = isinstance(job.runs[0].store, LocalStore)
    node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    answered = map_blocks(
        planned,
        EngineWorker,
        fn_constructor_args=(job, cut.concurrency),
        compute=ActorPoolStrategy(
            min_size=resources.fewest or resources.workers,
            initial_size=resources.workers,
            max_size=resources.most_workers,
            max_concurrent_calls_per_actor=cut.calls,
            max_tasks_in_flight_per_actor=cut.calls + cut.spare,
        ),
        num_cpus=resources.worker_cpus,
        # If an engine runs on several nodes, its own workers take the GPUs.
        num_gpus=0 if resources.spread else resources.worker_gpus,
        ray_remote_args_fn=worker_options,
    )
    scored = map_blocks(
        answered,
        Checker,
        fn_constructor_args=(job,),
        # With Ray's default of 2 a checker would be idle between two steps of the executor.
        compute=ActorPoolStrategy(
            size=resources.checkers, max_tasks_in_flight_per_actor=CHECKER_TASKS
        ),
        num_cpus=CHECKER_CPUS,
    )
    return map_blocks(
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
        # A local store is on the driver's node.
        ray_remote_args_fn=(lambda: {"scheduling_strategy": node}) if is_local else None,
    )


def _configure() -> None:
    context = DataContext.get_current()
    context.custom_execution_callback_classes = [ThrottledExecutor]
    # With these thresholds Ray Data does not change the sizes of pools above their minimum.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = math.inf
    context.autoscaling_config.actor_pool_util_downscaling_threshold = -1.0
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Otherwise each task in flight reads its process's page tables once a second. This is slow for
    # an engine worker with dozens of tasks and gigabytes of memory.
    context.memory_usage_poll_interval_s = None
    # By default Ray Data ends a graph that has no output for half an hour, but an engine may take
    # longer to load. The health monitor has its own timeouts.
    context.execution_no_progress_timeout_s = -1
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # This logger prints a traceback when a graph fails. The driver prints the cause in one line.
    logging.getLogger("ray.data.exceptions").setLevel(logging.CRITICAL)
    # Ray 2.60 deprecates every way to set max_restarts in map_batches, without a replacement.
    warnings.filterwarnings("ignore", message=".*ray_remote_args_fn.* is deprecated")
