"""The one Ray Data graph: plan rows -> engine workers -> checkers -> Parquet parts."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ace_ray.run.cluster import CHECKER_CPUS, WRITER_CPUS, Resources
from ace_ray.run.plan import PlannedRow
from ace_ray.run.rows import PLAN
from ace_ray.run.worker import Checker, EngineWorker, Job, Writer
from ace_ray.store import LocalStore, Store

MAX_DEATHS = 5
"""Engines that one block may kill before the run fails."""

DEFAULT_MAX_NUM_SEQS = 256
"""vLLM's own default, where the config names none."""


def in_flight(job: Job, resources: Resources, rows: int) -> int:
    """Rows that one worker holds at a time.

    Twice what the engine batches keeps its queue full; never more than a fair share of the run,
    or the first worker that is ready would take every row.
    """
    if job.config.concurrency != "auto":
        return job.config.concurrency
    batched = int(job.engine.get("max_num_seqs") or DEFAULT_MAX_NUM_SEQS)
    return max(1, min(2 * batched, math.ceil(rows / resources.workers)))


def rows_per_block(job: Job, rows: int) -> int:
    """Rows of one model call each that travel together.

    A block passes on when its last row ends, so small runs go almost row by row; each block costs
    Ray some 15 ms of CPU, so large runs bundle more.
    """
    if job.config.rows_per_block != "auto":
        return job.config.rows_per_block
    return max(1, min(8, rows // 32), min(64, rows // 2000))


def rows_per_part(job: Job, rows: int) -> int:
    """Parts of a few dozen rows lose little when the driver dies; large runs get larger ones."""
    if job.config.rows_per_part != "auto":
        return job.config.rows_per_part
    return min(8192, max(32, rows // 64))


def blocks(rows: Sequence[PlannedRow], size: int) -> list[pa.Table]:
    """``rows`` in order, ``size`` to a block; interactive episodes travel alone, so that none
    waits for the end of another."""
    found: list[list[PlannedRow]] = []
    for row in rows:
        full = not found or len(found[-1]) >= size
        if full or row.interactive or found[-1][-1].interactive:
            found.append([])
        found[-1].append(row)
    return [
        pa.table([[getattr(row, name) for row in block] for name in PLAN.names], schema=PLAN)
        for block in found
    ]


def run_graph(
    job: Job, rows: Sequence[PlannedRow], resources: Resources, store: Store, session: str
) -> int:
    """Evaluate ``rows`` and write them; returns the number of rows written.

    Blocks until the last part is stored. Exceptions of Ray Data pass through.
    """
    _quiet()
    size = rows_per_block(job, len(rows))
    calls = max(1, math.ceil(in_flight(job, resources, len(rows)) / size))
    graph = (
        ray.data.from_arrow(blocks(rows, size))
        .map_batches(
            EngineWorker,
            fn_constructor_args=(job,),
            batch_size=None,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(
                size=resources.workers,
                max_concurrent_calls_per_actor=calls,
                max_tasks_in_flight_per_actor=calls + 8,
            ),
            num_cpus=resources.worker_cpus,
            num_gpus=resources.worker_gpus,
            # Ray would retry for ever what kills its worker every time.
            ray_remote_args_fn=lambda: {
                "max_restarts": MAX_DEATHS * max(1, len(rows)),
                "max_task_retries": MAX_DEATHS,
            },
        )
        .map_batches(
            Checker,
            fn_constructor_args=(job,),
            batch_size=None,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=resources.checkers),
            num_cpus=CHECKER_CPUS,
        )
        .map_batches(
            Writer,
            fn_constructor_args=(job, store, session),
            batch_size=rows_per_part(job, len(rows)),
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=1),
            num_cpus=WRITER_CPUS,
            ray_remote_args_fn=_writer_place(store),
        )
    )
    written = 0
    for receipt in graph.iter_batches(batch_size=None, batch_format="pyarrow"):
        written += sum(receipt.column("rows").to_pylist())
    return written


def _writer_place(store: Store) -> Callable[[], dict[str, Any]] | None:
    """A local folder is the driver's: write it there, if that node takes actors at all."""
    if not isinstance(store, LocalStore):
        return None
    node = ray.get_runtime_context().get_node_id()
    return lambda: {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)}


def _quiet() -> None:
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Each task in flight would read its process's page tables once a second: an engine worker has
    # dozens of tasks and gigabytes.
    context.memory_usage_poll_interval_s = None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Ray 2.60 deprecates every way to say max_restarts to map_batches and names no other.
    warnings.filterwarnings("ignore", message=".*ray_remote_args_fn.* is deprecated")
