"""Keep the rows of a run for the pages of the viewer, and read new rows while the run grows.

The columns that lists show are read once per part and kept in memory. Texts are not kept: to show a
row, one row group is read; to search, one part is read at a time."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ace_ray.errors import UserError
from ace_ray.reports.explain import explain
from ace_ray.reports.runs import read_run
from ace_ray.reports.sweeps import run_folders
from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import ignored_lines, part_names, read_part, stored_rows, unreadable
from ace_ray.storage.rows import result_columns, result_rows, rows_schema, verdict_names
from ace_ray.storage.stored import SUCCESS, Manifest, read_manifest, versions_line
from ace_ray.types import ResultRow
from ace_ray.util import log
from ace_ray.viewer.episode import COLUMNS, EpisodeView, episode_view
from ace_ray.viewer.select import Filter, class_of, entry_order, is_changed, key_of

# Columns for full-text search, besides the errors of verdicts.
SEARCHED = ("id", "messages", "output", "reasoning", "state", "error", "gold")
NOT_SCORED = "not scored"
RIGHT, WRONG = "right", "wrong"


def tables_of(stores: Sequence[Store]) -> list[RunTable]:
    """Open the runs in ``stores``. For a sweep, open all of its runs that have started.

    Raises `UserError`: a store is not a run or sweep, or none of the sweep's runs has started."""
    runs: list[Store] = []
    for named in stores:
        folders = run_folders(named)
        runs += [named] if folders is None else [named.child(folder) for folder in folders]
    if not runs:
        raise UserError(
            "no run of the sweep has started",
            where=stores[0].root,
            fix="wait until the first run has started",
        )
    return [RunTable(store) for store in runs]


@dataclass(frozen=True, slots=True)
class Query:
    """A filter of rows; "" matches every row. ``verdict``: `RIGHT`, `WRONG`, `NOT_SCORED`, or
    "changed" (another verdict in the other run). ``rules``: rule set of the verdict. ``cause``: why
    the row differs from the other run (`ace_ray.reports.explain.CAUSES`)."""

    benchmark: str = ""
    category: str = ""
    language: str = ""
    verdict: str = ""
    error_type: str = ""
    rules: str = ""
    cause: str = ""
    text: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Query:
        return cls(**{f.name: asked.get(f.name, "") for f in fields(cls)})

    def as_dict(self) -> dict[str, str]:
        """Return the fields that are set."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name))}

    @property
    def filter(self) -> Filter:
        """A `Filter` for the keys and the error type, and for the verdict if `RIGHT` or `WRONG`."""
        valid = {RIGHT: True, WRONG: False}.get(self.verdict)
        keys = (self.benchmark, self.category, self.language)
        return Filter("", *keys, valid=valid, error_type=self.error_type)


class RunTable:
    """A stored run, complete or not, that is read again when it has grown.

    Threads may share it. A thread waits for another one only while that one reads new parts, or
    finds causes for the same filter."""

    def __init__(self, store: Store) -> None:
        """Open a run. Raises `UserError`: ``store`` is not a run, or it cannot be read."""
        self._store = store
        self._reading, self._explaining = threading.Lock(), threading.Lock()
        self.manifest: Manifest = read_manifest(store)
        self.rule_sets: tuple[str, ...] = tuple(self.manifest.all_rule_sets)
        self._schema = rows_schema(self.rule_sets)
        self._narrow = list(dict.fromkeys([*result_columns(self.rule_sets), "attempts"]))
        self._parts: dict[str, pa.Table] = {}
        self._names: list[str] | None = None
        # Text of the last search, and a mask of the matching rows of each part.
        self._searched: tuple[str, dict[str, np.ndarray]] = ("", {})
        # The parts of the last `_causes`, and its result.
        self._explained: tuple[tuple[object, ...], dict[tuple[object, ...], str]] = ((), {})
        self._say_once = cache(log.caution)
        self._ignored: list[str] = []
        # Row id -> name of its part, and its index in the part.
        self._places: dict[str, tuple[str, int]] = {}
        self.finished = False
        # Rows that count, in the order of their entries.
        self.rows: list[ResultRow] = []
        self.by_id: dict[str, ResultRow] = {}
        # Rows by `key_of`, to find the row of another run.
        self.by_key: dict[tuple[object, ...], ResultRow] = {}
        self.refresh()

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    def refresh(self) -> bool:
        """Read new parts; return whether the parts changed. Raises `UserError`: the store does not
        answer."""
        with self._reading:
            return self._refresh()

    def _refresh(self) -> bool:
        # Also look at the parts of a finished run: they may still be merged.
        names = part_names(self._store)
        self.finished = self.finished or self._store.get(SUCCESS) is not None
        if names == self._names:
            return False
        ledger = stored_rows(self._store, self.manifest, self._say_once, self._read)
        for gone in self._parts.keys() - set(names):
            del self._parts[gone]
        places: dict[str, tuple[str, int]] = {}
        rows: list[ResultRow] = []
        for name, positions in ledger.kept.items():
            kept = list(result_rows([self._parts[name].take(positions)]))
            rows += kept
            for row, place in zip(kept, positions, strict=True):
                places[row.row_id] = (name, int(place))
        self._places = places
        self.rows = sorted(rows, key=entry_order)
        self.by_id = {row.row_id: row for row in self.rows}
        self.by_key = {key_of(row): row for row in self.rows}
        self._ignored, self._names = list(ignored_lines(ledger)), names
        self._searched = ("", {})
        return True

    def _read(
        self, store: Store, name: str, columns: Sequence[str], schema: pa.Schema
    ) -> pa.Table | str:
        """Return columns of a part like `read_part`, but read each part only once."""
        if name not in self._parts:
            table = read_part(store, name, self._narrow, schema)
            if isinstance(table, str):
                return table
            self._parts[name] = table
        return self._parts[name].select(columns)

    def rules_of(self, asked: str) -> str:
        return asked if asked in self.rule_sets else self.rule_sets[0]

    def select(self, query: Query, other: RunTable | None = None) -> list[ResultRow]:
        """Return the rows that match ``query``, in the order of their entries. Raises `UserError`:
        texts cannot be read."""
        rules = self.rules_of(query.rules)
        wanted = query.filter
        rows = [row for row in self.rows if wanted.takes(row, rules)]
        if query.verdict == NOT_SCORED:
            rows = [row for row in rows if rules not in row.verdicts]
        if query.verdict == "changed":
            theirs = other.by_key if other is not None and rules in other.rule_sets else {}
            rows = [row for row in rows if is_changed(row, theirs, rules)]
        if query.cause:
            causes = self._causes(other) if other is not None else {}
            rows = [row for row in rows if causes.get(key_of(row)) == query.cause]
        if query.text:
            rows = self._holding(query.text, rows)
        return rows

    def _causes(self, other: RunTable) -> Mapping[tuple[object, ...], str]:
        """Return why rows differ from their rows in ``other``. The last result is kept."""
        with self._explaining:
            read = (other, *(other._names or ()), *(self._names or ()))
            if self._explained[0] != read:
                found = explain(*(read_run(table._store) for table in (other, self)))
                self._explained = (read, {(*one.key, 0): one.cause for one in found.differences})
            return self._explained[1]

    def counts(self, value: Callable[[ResultRow], str]) -> list[tuple[str, int]]:
        """Return (value, number of rows), most frequent first. The value "" is left out."""
        found = Counter(filter(None, map(value, self.rows)))
        return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))

    def facts(self) -> dict[str, Any]:
        """Return the values for the run's line in the list of runs."""
        return {
            "model": self.manifest.model.source,
            "rows": len(self.rows),
            "declared": self.manifest.declared,
            "finished": self.finished,
            "notes": list(self._notes()),
        }

    def _notes(self) -> Iterator[str]:
        """Yield notes on the numbers of the run: limits, mixed versions and unreadable parts."""
        limits = (
            self.manifest.restriction(name).words for name in self.manifest.identity.benchmarks
        )
        for words in dict.fromkeys(filter(None, limits)):
            yield f"limited to {words}: a sample of the benchmark, not its score"
        if mixed := versions_line(self.manifest.mixed_versions):
            yield mixed
        yield from self._ignored

    def episode(self, row: ResultRow) -> EpisodeView:
        """Read a complete row. Raises `UserError`: it cannot be read."""
        name, place = self._places[row.row_id]
        columns = [*COLUMNS, *verdict_names(self.rule_sets)]
        found = read_part(self._store, name, columns, self._schema, place)
        if isinstance(found, str):
            raise unreadable(self._store, name, found)
        (whole,) = found.to_pylist()
        return episode_view(whole, class_of(self.manifest, row.benchmark))

    def _holding(self, text: str, rows: Sequence[ResultRow]) -> list[ResultRow]:
        """Return the ``rows`` that contain ``text``, ignoring case. Only parts that contain some
        of the ``rows`` are read."""
        searched = self._searched
        if searched[0] != text:
            searched = self._searched = (text, {})
        found = searched[1]
        places = [self._places[row.row_id] for row in rows]
        for name, _ in places:
            if name not in found:
                found[name] = self._search(name, text)
        return [row for row, (name, at) in zip(rows, places, strict=True) if found[name][at]]

    def _search(self, name: str, text: str) -> np.ndarray:
        """Return a mask of the rows of a part that contain ``text``."""
        reasons = [f"{rules}_error" for rules in self.rule_sets]
        table = read_part(self._store, name, [*SEARCHED, *reasons], self._schema)
        if isinstance(table, str):
            raise unreadable(self._store, name, table)
        holds = np.zeros(table.num_rows, bool)
        # Also search for the escaped form, since columns with JSON escape quotes and line breaks.
        for form in {text, json.dumps(text, ensure_ascii=False)[1:-1]}:
            for column in table.columns:
                matches = pc.match_substring(column, form, ignore_case=True)
                holds |= np.asarray(pc.fill_null(matches, fill_value=False))
        return holds
