"""Keep the rows of a run for the pages of the viewer, and read new rows while the run grows.

The columns that lists show are read once per Parquet part and kept in memory; texts are not."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ace_ray.errors import UserError
from ace_ray.reports.explain import explain
from ace_ray.reports.sweeps import run_folders
from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import ignored_warnings, part_names, read_part
from ace_ray.storage.rows import result_columns, rule_sets_in
from ace_ray.storage.stored import SUCCESS, versions_line
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import ResultRow
from ace_ray.util import log
from ace_ray.viewer.episode import EpisodeView
from ace_ray.viewer.row_filter import Filter, entry_order, episodes, is_changed, is_right, key_of

# Columns for full-text search, besides the errors of verdicts.
SEARCHED = ("id", "messages", "output", "reasoning", "state", "error", "gold")
NOT_SCORED = "not scored"
RIGHT, WRONG = "right", "wrong"


def tables_of(stores: Sequence[Store]) -> list[RunTable]:
    """Open the runs in ``stores``. For a sweep, open all runs that have started.

    Raises `UserError` if a store has no run and no sweep, or no run of the sweep has started."""
    runs: list[Store] = []
    for store in stores:
        folders = run_folders(store)
        runs += [store] if folders is None else [store.child(folder) for folder in folders]
    if not runs:
        raise UserError(
            "no run of the sweep has started",
            where=stores[0].root,
            fix="wait until the first run has started",
        )
    return [RunTable(store) for store in runs]


# Fields of a `Query` that a URL may contain.
_IN_URL = ("benchmark", "category", "language", "verdict", "error_type", "rules", "cause", "text")


@dataclass(frozen=True, slots=True)
class Query(Filter):
    """A filter from a URL. ``verdict``: `RIGHT`, `WRONG`, `NOT_SCORED`, or "changed" (the verdict
    in the run to compare with differs). ``cause``: why the row differs from that run
    (`ace_ray.reports.explain.CAUSES`). ``text``: a text that the row contains."""

    verdict: str = ""
    cause: str = ""
    text: str = ""

    @classmethod
    def from_params(cls, params: Mapping[str, str]) -> Query:
        values: dict[str, Any] = {name: params.get(name, "") for name in _IN_URL}
        return cls(**values)

    def as_dict(self) -> dict[str, str]:
        """Return the fields that are set."""
        return {name: value for name in _IN_URL if (value := getattr(self, name))}


class RunTable:
    """A stored run, complete or not, that is read again when it has grown.

    Threads may share it. A thread waits only while another thread reads new parts, or explains why
    rows differ from another run."""

    def __init__(self, store: Store) -> None:
        """Open a run. Raises `UserError` if ``store`` has no run, or cannot be read."""
        self._store = store
        self._reading, self._explaining = threading.Lock(), threading.Lock()
        # Columns of each part that lists show.
        self._parts: dict[str, pa.Table] = {}
        self._names: list[str] | None = None
        # Text of the last search, and the ids of rows that were searched -> whether they have it.
        self._searched: tuple[str, dict[str, bool]] = ("", {})
        # The runs of the last `_causes`, and its result.
        self._explained: tuple[tuple[object, ...], dict[tuple[object, ...], str]] = ((), {})
        self._warn_once = cache(log.caution)
        self.finished = False
        self.refresh()

    @property
    def run_id(self) -> str:
        return self.run.manifest.run_id

    @property
    def rule_sets(self) -> tuple[str, ...]:
        return self.run.manifest.all_rule_sets

    def refresh(self) -> bool:
        """Read the rows again if the stored parts have changed, and return whether they have.
        Raises `UserError` if the store cannot be read."""
        with self._reading:
            # Also look at the parts of a finished run: they may still be merged.
            names = part_names(self._store)
            self.finished = self.finished or self._store.get(SUCCESS) is not None
            if names == self._names:
                return False
            run = StoredRun(self._store, self._warn_once, self._read)
            run.rows = list(run.ledger.rows())  # a run that has just started has none
            # In the order of their entries.
            self.rows = sorted(run.rows, key=entry_order)
            self.by_id = {row.row_id: row for row in self.rows}
            # To find the row of another run.
            self.by_key = {key_of(row): row for row in self.rows}
            for name in self._parts.keys() - set(names):
                del self._parts[name]
            self.run, self._names, self._searched = run, names, ("", {})
            return True

    def _read(
        self, store: Store, name: str, columns: Sequence[str], schema: pa.Schema, row: int | None
    ) -> pa.Table | str:
        """Read columns of a part like `read_part`; keep the columns that lists show in memory."""
        narrow = [*result_columns(rule_sets_in(schema.names)), "attempts"]
        if not set(columns) <= set(narrow):
            return read_part(store, name, columns, schema, row)
        if name not in self._parts:
            table = read_part(store, name, narrow, schema)
            if isinstance(table, str):
                return table
            self._parts[name] = table
        table = self._parts[name].select(columns)
        return table if row is None else table.slice(row, 1)

    def rules_of(self, name: str) -> str:
        return name if name in self.rule_sets else self.rule_sets[0]

    def select(self, query: Query, base: RunTable | None = None) -> list[ResultRow]:
        """Return the rows that match ``query``, in `entry_order`. ``base``: run to compare with.
        Raises `UserError` if the texts of rows cannot be read."""
        rules = self.rules_of(query.rules)
        rows = [row for row in self.rows if query.is_match(row, rules)]
        if query.verdict in (RIGHT, WRONG):
            rows = [row for row in rows if is_right(row, rules) is (query.verdict == RIGHT)]
        if query.verdict == NOT_SCORED:
            rows = [row for row in rows if rules not in row.verdicts]
        if query.verdict == "changed":
            theirs = base.by_key if base is not None and rules in base.rule_sets else {}
            rows = [row for row in rows if is_changed(row, theirs, rules)]
        if query.cause:
            causes = self._causes(base) if base is not None else {}
            rows = [row for row in rows if causes.get(key_of(row)) == query.cause]
        if query.text:
            rows = self._search_rows(query.text, rows)
        return rows

    def _causes(self, base: RunTable) -> Mapping[tuple[object, ...], str]:
        """Return `key_of` -> cause for each row that differs in ``base``; keep the last result."""
        with self._explaining:
            runs = (base.run, self.run)
            if self._explained[0] != runs:
                explanation = explain(*runs)
                self._explained = (runs, {(*d.key, 0): d.cause for d in explanation.differences})
            return self._explained[1]

    def counts(self, value: Callable[[ResultRow], str]) -> list[tuple[str, int]]:
        """Count the rows by ``value(row)``. Return (value, count), the most frequent first and
        without the value ""."""
        counts = Counter(filter(None, map(value, self.rows)))
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))

    def facts(self) -> dict[str, Any]:
        """Return the values for the run's line in the list of runs."""
        return {
            "model": self.run.manifest.model.source,
            "rows": len(self.rows),
            "declared": self.run.manifest.declared,
            "finished": self.finished,
            "notes": list(self._notes()),
        }

    def _notes(self) -> Iterator[str]:
        """Yield notes on the numbers of the run: limits, mixed versions and unreadable parts."""
        manifest = self.run.manifest
        limits = (manifest.restriction(name).description for name in manifest.identity.benchmarks)
        for words in dict.fromkeys(filter(None, limits)):
            yield f"limited to {words}: a sample of the benchmark, not its score"
        if mixed := versions_line(manifest.mixed_versions):
            yield mixed
        yield from ignored_warnings(self.run.ledger)

    def episode(self, row: ResultRow) -> EpisodeView:
        """Read a complete row. Raises `UserError` if the row cannot be read."""
        (view,) = episodes(self.run, [row])
        return view

    def _search_rows(self, text: str, rows: Sequence[ResultRow]) -> list[ResultRow]:
        """Return the ``rows`` that contain ``text``, ignoring case. Only parts that contain some
        of the ``rows`` are read."""
        if self._searched[0] != text:
            self._searched = (text, {})
        holds = self._searched[1]
        columns = ["row_id", *SEARCHED, *(f"{rules}_error" for rules in self.rule_sets)]
        for table in self.run.tables([row for row in rows if row.row_id not in holds], columns):
            ids = table.column("row_id").to_pylist()
            holds |= zip(ids, _text_matches(table.drop_columns("row_id"), text), strict=True)
        return [row for row in rows if holds.get(row.row_id)]


def _text_matches(table: pa.Table, text: str) -> list[bool]:
    """Return for each row whether a column contains ``text``."""
    holds = np.zeros(table.num_rows, bool)
    # Also search for the escaped form, since columns with JSON escape quotes and line breaks.
    for form in {text, json.dumps(text, ensure_ascii=False)[1:-1]}:
        for column in table.columns:
            matches = pc.match_substring(column, form, ignore_case=True)
            holds |= np.asarray(pc.fill_null(matches, fill_value=False))
    return list(map(bool, holds))
