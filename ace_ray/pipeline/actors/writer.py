"""The writer: the actor that stores rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import ray

from ace_ray.errors import UserError
from ace_ray.pipeline.actors.worker_config import RunTarget, WorkerConfig, register, report
from ace_ray.pipeline.health.heartbeat import Heartbeat, this_process
from ace_ray.pipeline.monitoring.tally import RowReport
from ace_ray.storage.parts import PART_BYTES, write_parts
from ace_ray.util.sanitizing import replace_surrogates

# Timeout of one attempt to store a part. An S3 client makes ten tries in this time.
WRITE_S = 900.0

# Maximum seconds that rows wait for more rows of their part.
FLUSH_S = 30.0
# The same while the run stops: it has only a few seconds, and cancelled rows never arrive.
DRAIN_S = 1.0


class Writer:
    """Stores rows as parts (Parquet files) of their runs. A part has the rows of many blocks.

    This is an actor, so that its process starts before the first row arrives. A call returns when
    the rows of its block are stored. Until then Ray keeps the block, and repeats the call if this
    process dies, so that no row is lost. A part is stored when it has ``rows`` rows, after
    `FLUSH_S` (sooner near the time limit), or after the last row of its run.

    ``planned``: number of rows that will arrive, by index of the run. ``calls``: maximum number of
    blocks that wait at the same time."""

    def __init__(self, job: WorkerConfig, *, rows: int, planned: Sequence[int], calls: int) -> None:
        self._job, self._rows, self._calls = job, rows, calls
        self._coordinator, self._process = job.coordinator, this_process("writer")
        self._rows_end_at = job.rows_end_here(register(self._coordinator, self._process))
        counts_of = ray.get(job.coordinator.read.remote()).counts_of
        self._piles = [_Pile(total - counts_of(run).stored) for run, total in enumerate(planned)]
        self._writing: list[float] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = False
        ray.get(self._coordinator.update_process.remote(self._process, facts={}))
        Heartbeat(
            self._coordinator,
            self._process,
            stall_timeout_s=job.config.store_retry_timeout_s + WRITE_S,
            busy_since=lambda: min(self._writing, default=None),
            on_drain=self._drain,
        )

    async def __call__(self, table: pa.Table) -> pa.Table:
        self._loop = asyncio.get_running_loop()
        # A block has rows of one run, or no rows if a stopping worker has ended none of them.
        runs = table.column("run").unique()
        stored = [self._add(run, table) for run in runs.to_pylist()]
        if sum(len(pile.waiting) for pile in self._piles) >= self._calls:
            self._flush()
        # `shield`: a cancelled call must not cancel a part that has rows of other calls.
        await asyncio.gather(*map(asyncio.shield, stored))
        rows = pa.array([table.num_rows] * len(runs), pa.int64())
        return pa.table({"run": runs, "rows": rows})

    def _add(self, run: int, table: pa.Table) -> asyncio.Task[None]:
        """Queue ``table``. Return a task that ends when the table is stored."""
        pile = self._piles[run]
        if not pile.waiting:
            pile.full.clear()
            pile.storing = asyncio.ensure_future(self._store(run, pile))
        pile.waiting.append(table)
        pile.remaining_rows -= table.num_rows
        rows = sum(waiting.num_rows for waiting in pile.waiting)
        size = sum(waiting.nbytes for waiting in pile.waiting)
        if pile.remaining_rows <= 0 or rows >= self._rows or size >= PART_BYTES // 2:
            pile.full.set()
        assert pile.storing is not None  # set with the first table
        return pile.storing

    def _drain(self, seconds: float) -> None:
        """Store waiting rows soon, since the run stops. Another thread calls this."""
        self._draining = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, DRAIN_S, self._flush)

    def _flush(self) -> None:
        for pile in self._piles:
            pile.full.set()

    async def _store(self, run: int, pile: _Pile) -> None:
        # Near the end of the time, the rows that would complete a part may never come.
        end = self._rows_end_at
        wait_s = FLUSH_S if end is None else min(FLUSH_S, max(2.0, (end - time.monotonic()) / 10))
        with suppress(TimeoutError):
            await asyncio.wait_for(pile.full.wait(), DRAIN_S if self._draining else wait_s)
        table, pile.waiting = pa.concat_tables(pile.waiting), []
        began = time.monotonic()
        self._writing.append(began)
        try:
            await asyncio.to_thread(self._write, self._job.runs[run], table)
        except Exception as error:
            report(self._job.coordinator, "the results could not be stored", error, store=True)
            raise
        finally:
            self._writing.remove(began)
        self._coordinator.note_unless_stopped.remote(
            self._process, RowReport(run, stored=table.num_rows)
        )

    def _write(self, run: RunTarget, table: pa.Table) -> None:
        """Store the rows. Errors of the store are retried for `store_retry_timeout_s`: the store
        was writable when the run started. Then `UserError` is raised."""
        until = time.monotonic() + self._job.config.store_retry_timeout_s
        wait = 1.0
        while True:
            try:
                write_parts(run.store, run.session, table)
                break
            except UserError as error:
                if time.monotonic() + wait > until:
                    raise
                line = f"cannot store results yet, retrying: {replace_surrogates(str(error))}"
                self._coordinator.note_unless_stopped.remote(self._process, RowReport(notice=line))
                time.sleep(wait)
                wait = min(2 * wait, 15.0)


@dataclass
class _Pile:
    """Rows of one run that wait until their part is stored."""

    remaining_rows: int
    """Number of rows of the run that have not arrived."""
    waiting: list[pa.Table] = field(default_factory=list)
    full: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the waiting rows must not wait for more rows."""
    storing: asyncio.Task[None] | None = None
    """Task that stores the waiting rows, or has stored the last part."""
