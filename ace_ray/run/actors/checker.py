"""The actor that adds verdicts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import ray

from ace_ray.records import Entry, Episode
from ace_ray.run.actors.coordinator import fetch_entries
from ace_ray.run.actors.job import Job, report, start
from ace_ray.run.actors.judging import judged
from ace_ray.run.health.heartbeat import Lifeline, whoami
from ace_ray.run.health.isolation import OPEN, Suspect, ended_columns, grouped
from ace_ray.run.storage.rows import CHECKED, entry_at, verdict_columns

CHECK_S = 300.0
"""Seconds that the checks of one block, or of one suspect, may take."""


class Checker:
    """Adds the verdicts of all rule sets. Stateless: any checker can take any row."""

    def __init__(self, job: Job) -> None:
        self._job, self._board = job, job.board
        self._who = whoami("checker")
        start(self._board, self._who)
        self._entries = fetch_entries(job.board)
        self._since: float | None = None
        self._passed = False
        """Whether this process has judged anything."""
        ray.get(self._board.ready.remote(self._who, {}))
        Lifeline(self._board, self._who, stall_s=CHECK_S, busy_since=lambda: self._since)

    def __call__(self, block: pa.Table) -> pa.Table:
        try:
            return self._checked(block)
        except Exception as error:
            report(self._job, "a checker failed", error)
            raise

    def _checked(self, block: pa.Table) -> pa.Table:
        rows = block.to_pylist()
        ids = [row["row_id"] for row in rows]
        suspects = ray.get(self._board.suspects.remote("checker", ids)) if ids else {}
        ended, groups = grouped(rows, suspects)
        checked = [self._ended(row, suspect) for row, suspect in ended]
        for group, members in groups.items():
            if group != OPEN:
                self._show_that_it_works(members[0]["entry"])
            checked += self._together(members)
        self._board.rows.remote(
            [
                (
                    row["run"],
                    row["benchmark"],
                    row["language"],
                    row["category"],
                    row["status"],
                    row["official_valid"],
                    row["strict_valid"],
                    row["prompt_tokens"],
                    row["completion_tokens"],
                )
                for row in checked
            ]
        )
        return pa.Table.from_pylist(checked, schema=CHECKED)

    def _together(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ids = [row["row_id"] for row in rows]
        # Waited for: what kills this process must be on the board before.
        ray.get(self._board.enter.remote(self._who, ids))
        self._since = time.monotonic()
        checked = [self._check(row) for row in rows]
        self._since, self._passed = None, True
        self._board.leave.remote(self._who, ids)
        return checked

    def _show_that_it_works(self, suspect: int) -> None:
        """Before a suspect, the entry of which is given, judges another one without an answer: a
        checker that dies on everything must not accuse it."""
        if self._passed or len(self._entries) < 2:
            return
        entry = entry_at(self._entries, (suspect + 1) % len(self._entries))
        self._since = time.monotonic()
        with suppress(Exception):  # an exception shows that it works, too
            self._job.benchmarks[entry.benchmark].check(entry, Episode())
        self._since, self._passed = None, True

    def _check(self, row: dict[str, Any]) -> dict[str, Any]:
        entry = entry_at(self._entries, row["entry"])
        return self._keyed(judged(row, entry, self._job.benchmarks[entry.benchmark]), entry)

    def _ended(self, row: dict[str, Any], suspect: Suspect) -> dict[str, Any]:
        row |= ended_columns(suspect, "checker")
        return self._keyed({**row, **verdict_columns({})}, entry_at(self._entries, row["entry"]))

    def _keyed(self, row: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
        return {
            **{name: value for name, value in row.items() if name not in ("entry", "attempt")},
            "run_id": self._job.runs[row["run"]].run_id,
            "seed": self._job.config.sampling.seed + row["sample"],
            "benchmark": entry.benchmark,
            "category": entry.category,
            "language": entry.language,
            "id": entry.id,
            "group": entry.group,
        }
