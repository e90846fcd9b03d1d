"""Rows and preparations in flight in an engine worker, and their reports to the coordinator.

A preparation is work that an engine does once for several rows of a block."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.pipeline.health.isolation import shared_id
from ace_ray.pipeline.monitoring.tally import RowReport

# Maximum delay of the report that a row has ended, so that one call reports many rows.
LEAVE_S = 0.5

# Preparations of one block: `shared_id` -> task, which returns the context of the preparation.
Shared = dict[str, asyncio.Task[EpisodeContext]]


class RowReporter:
    """Sends the reports of one worker. Rows that have ended are reported together.

    While rows wait for a preparation, only the preparation is in flight. So after a crash the
    preparation is isolated in place of the rows.

    ``send`` sends a report at once, and returns an awaitable for the coordinator's answer."""

    def __init__(self, send: Callable[[RowReport], Awaitable[bool]]) -> None:
        self._send = send
        # Ended rows that are not yet reported.
        self._ended_ids: list[str] = []
        self._preparing: Shared = {}

    async def enter(self, ids: Sequence[str], run: int | None = None) -> bool:
        """Report that rows or preparations ``ids`` start. Return False if ``run`` is stopped."""
        return await self._send(RowReport(run, entered=ids))

    def end_row(self, row_id: str) -> None:
        """Report soon that ``row_id`` has ended, so that a later crash does not isolate the row."""
        self._ended_ids.append(row_id)
        if len(self._ended_ids) == 1:
            asyncio.get_running_loop().call_later(LEAVE_S, self._flush_ends)

    def _flush_ends(self) -> None:
        if self._ended_ids:
            self.send(RowReport())

    def send(self, report: RowReport) -> None:
        """Send ``report`` together with the rows that have ended since the last report."""
        row_ids, self._ended_ids = self._ended_ids, []
        self._send(replace(report, ended=row_ids))

    async def give_back(
        self, rows: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]
    ) -> None:
        """Report that ``rows`` without a record in ``records`` must go to another worker."""
        with_record = {record["row_id"] for record in records}
        if ids := [row["row_id"] for row in rows if row["row_id"] not in with_record]:
            await self._send(RowReport(given_back=ids))

    def cancel_preparations(self) -> None:
        for task in self._preparing.values():
            task.cancel()

    async def wait_for_preparation(
        self,
        row: Mapping[str, Any],
        shared: Shared,
        prepare: Callable[[], Awaitable[EpisodeContext]],
    ) -> tuple[EpisodeContext, bool]:
        """Wait for the preparation of ``row``; the first row of a block starts it with ``prepare``.
        Return the preparation's context, and whether this row started it."""
        name = shared_id(row)
        first = name not in shared and name not in self._preparing
        if first:
            self._preparing[name] = asyncio.ensure_future(self._prepare(name, prepare))
        if name not in shared:
            shared[name] = self._preparing[name]
        context = await asyncio.shield(shared[name])
        await self.enter([row["row_id"]])
        return context, first

    async def _prepare(
        self, name: str, prepare: Callable[[], Awaitable[EpisodeContext]]
    ) -> EpisodeContext:
        try:
            await self.enter([name])
            return await prepare()
        finally:
            del self._preparing[name]
            self.send(RowReport(prepared=[name]))
