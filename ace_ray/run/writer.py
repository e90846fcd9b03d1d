"""The actor that stores rows."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pyarrow as pa
import ray

from ace_ray.errors import UserError
from ace_ray.run.job import Job, report, start
from ace_ray.run.lifeline import Lifeline, whoami
from ace_ray.run.parts import PART_BYTES, write_parts
from ace_ray.run.rows import clean
from ace_ray.store import Store

WRITE_S = 900.0
"""Seconds that one attempt to store a part may take: an S3 client tries ten times by itself."""

FLUSH_S = 30.0
"""Rows that wait for others to make a part of a good size wait so long."""


class Writer:
    """Stores rows as parts, many blocks to a part. An actor, not a task: its process is up before
    the first row is, instead of starting when the last one waits for it.

    A call returns when the rows of its block are stored, and not before: Ray keeps the block until
    then and repeats the call should this process die, so rows that wait here for others cannot be
    lost. They wait until there are enough of them, for `FLUSH_S`, or until no more will come.
    """

    def __init__(
        self, job: Job, store: Store, session: str, *, rows: int, planned: int, calls: int
    ) -> None:
        self._job, self._store, self._session = job, store, session
        self._rows, self._calls = rows, calls
        self._board, self._who = job.board, whoami("writer")
        start(self._board, self._who)
        self._left = planned - ray.get(job.board.read.remote()).stored
        self._waiting: list[pa.Table] = []
        self._stored: asyncio.Future[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._writing: list[float] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = asyncio.Event()
        ray.get(self._board.ready.remote(self._who, {}))
        Lifeline(
            self._board,
            self._who,
            stall_s=job.config.store_patience_s + WRITE_S,
            busy_since=lambda: min(self._writing, default=None),
            on_drain=self._drain,
        )

    async def __call__(self, table: pa.Table) -> pa.Table:
        self._loop = asyncio.get_running_loop()
        if self._stored is None:
            self._stored = self._loop.create_future()
            self._timer = asyncio.ensure_future(self._flush_in_time())
        stored = self._stored
        self._waiting.append(table)
        self._left -= table.num_rows
        rows = sum(waiting.num_rows for waiting in self._waiting)
        size = sum(waiting.nbytes for waiting in self._waiting)
        last = self._left <= 0 or len(self._waiting) >= self._calls
        if last or rows >= self._rows or size >= PART_BYTES // 2:
            await self._flush()
        await asyncio.shield(stored)
        return pa.table({"rows": [table.num_rows]})

    async def _flush_in_time(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._draining.wait(), FLUSH_S)
            # A run that stops has few seconds left, and rows that were given up never come.
            await asyncio.sleep(1.0)
        await self._flush()

    def _drain(self, seconds: float) -> None:
        """Called from another thread."""
        if self._loop is None:
            self._draining.set()
        else:
            self._loop.call_soon_threadsafe(self._draining.set)

    async def _flush(self) -> None:
        waiting, stored, timer = self._waiting, self._stored, self._timer
        if stored is None:
            return
        self._waiting, self._stored, self._timer = [], None, None
        if timer is not None and timer is not asyncio.current_task():
            timer.cancel()
        table = pa.concat_tables(waiting)
        began = time.monotonic()
        self._writing.append(began)
        try:
            if table.num_rows:
                await asyncio.to_thread(self._write, table)
        except Exception as error:  # noqa: BLE001 - raised in every call that waits for it
            report(self._job, "results could not be stored", error, store=True)
            stored.set_exception(error)
            return
        finally:
            self._writing.remove(began)
        self._job.board.stored.remote(table.num_rows)
        stored.set_result(None)

    def _write(self, table: pa.Table) -> None:
        """Store the rows, trying again while the store refuses: the run has proved at its start
        that it may write."""
        until = time.monotonic() + self._job.config.store_patience_s
        wait = 1.0
        while True:
            try:
                write_parts(self._store, self._session, table)
                break
            except UserError as error:
                if time.monotonic() + wait > until:
                    raise
                self._job.board.notice.remote(f"results cannot be stored yet: {clean(str(error))}")
                time.sleep(wait)
                wait = min(2 * wait, 15.0)
        self._job.board.notice.remote("")
