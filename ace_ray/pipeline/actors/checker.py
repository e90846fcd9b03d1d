"""The checker: the actor that judges answers and adds verdicts to rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import ray

from ace_ray.pipeline.actors.coordinator import fetch_shared
from ace_ray.pipeline.actors.verdicts import judge_row, report_bug
from ace_ray.pipeline.actors.worker_config import WorkerConfig, register, report
from ace_ray.pipeline.health.crash_cause import CrashFile
from ace_ray.pipeline.health.heartbeat import Heartbeat, this_process
from ace_ray.pipeline.health.isolation import IsolatedRow, ended_columns
from ace_ray.pipeline.monitoring.tally import RowReport
from ace_ray.storage.rows import PLAN, entry_columns, metrics_of, rows_schema
from ace_ray.types import SCORE, Entry, Episode

# Timeout for judging one row.
CHECK_S = 300.0


class Checker:
    """Adds the verdicts of all rule sets to rows. Any checker can judge any row. The id of a row is
    written to a `CrashFile` before the row is judged, so that after a crash the row is known."""

    def __init__(self, job: WorkerConfig) -> None:
        self._job, self._coordinator = job, job.coordinator
        self._process = this_process("checker")
        register(self._coordinator, self._process)
        self._crash_file = CrashFile(self._process)
        self._entries, self._benchmarks = fetch_shared(job.coordinator)
        every = (rules for benchmark in self._benchmarks.values() for rules in benchmark.rule_sets)
        self._schema = pa.schema([PLAN.field("run"), *rows_schema(tuple(dict.fromkeys(every)))])
        self._sampling = job.config.sampling.sampling()
        self._row_id = ""
        # Time at which the present check began (`time.monotonic`).
        self._since: float | None = None
        # Whether this process has judged a row.
        self._passed = False
        ray.get(self._coordinator.update_process.remote(self._process, facts={}))
        Heartbeat(
            self._coordinator,
            self._process,
            stall_timeout_s=CHECK_S,
            busy_since=lambda: self._since,
            rows_at_work=lambda: [self._row_id] if self._row_id else [],
        )

    def __call__(self, block: pa.Table) -> pa.Table:
        rows = block.to_pylist()
        ids = [row["row_id"] for row in rows]
        try:
            isolated = ray.get(self._coordinator.isolated.remote("checker", ids))
            # Isolated rows come last, so that this process has judged another row before.
            rows.sort(key=lambda row: row["row_id"] in isolated)
            checked = [self._check(row, isolated.get(row["row_id"])) for row in rows]
            judged_rows = [self._tally_tuple(row) for row in checked]
            self._coordinator.note_unless_stopped.remote(
                self._process, RowReport(ended=ids, judged=judged_rows)
            )
            return pa.Table.from_pylist(checked, schema=self._schema)
        except Exception as error:
            report(self._coordinator, "a checker failed", error)
            raise

    def _check(self, row: dict[str, Any], state: IsolatedRow | None) -> dict[str, Any]:
        entry = self._entries[row["entry"]]
        if state is not None and state.end:
            return self._add_columns(row | ended_columns(state, "checker"), entry)
        if state is not None and not state.is_released and not self._passed:
            self._health_check(row["entry"])
        self._note_row(row["row_id"])
        on_error = partial(report_bug, self._coordinator, entry.benchmark)
        row = judge_row(row, entry, self._benchmarks[entry.benchmark], on_error)
        self._note_row("")
        return self._add_columns(row, entry)

    def _note_row(self, row_id: str) -> None:
        """Note the id of the row that this process judges; "" when it has judged the row."""
        self._passed = self._passed or not row_id
        self._crash_file.note(row_id)
        self._row_id, self._since = row_id, time.monotonic() if row_id else None

    def _health_check(self, entry_index: int) -> None:
        """Judge an empty episode of another entry than ``entry_index``, before an isolated row is
        judged. If this crashes, the crash does not count against the isolated row."""
        if len(self._entries) < 2:
            return
        entry = self._entries[(entry_index + 1) % len(self._entries)]
        self._since = time.monotonic()
        with suppress(Exception):  # an exception shows that the checker works
            self._benchmarks[entry.benchmark].verdicts(entry, Episode())

    def _tally_tuple(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the tuple for ``row`` that `Tally.add` counts. Only scored rows have scores."""
        scores = {}
        if row["status"] == "scored":
            for rules in self._benchmarks[row["benchmark"]].rule_sets:
                score = metrics_of(row[f"{rules}_metrics"]).get(SCORE)
                scores[rules] = float(row[f"{rules}_valid"]) if score is None else score
        tokens = row["prompt_tokens"] or 0, row["completion_tokens"] or 0
        return row["run"], row["benchmark"], row["language"], row["status"], scores, *tokens

    def _add_columns(self, row: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
        run = self._job.runs[row["run"]]
        return {
            **{name: value for name, value in row.items() if name not in ("entry", "attempt")},
            "run_id": run.run_id,
            "model": run.model.label,
            "seed": self._sampling.with_row_seed(row["sample"], *entry.path).seed,
            **entry_columns(entry),
        }
