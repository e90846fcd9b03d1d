"""Select rows of a run by keys, by verdicts, or by verdicts that differ from another run's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import recorded_class
from ace_ray.errors import UserError
from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import Ledger, no_rows, stored_rows
from ace_ray.storage.rows import rows_of, verdict_names
from ace_ray.storage.stored import Manifest, read_manifest
from ace_ray.types import STATUSES, ResultRow
from ace_ray.viewer.episode import COLUMNS, KEYS, EpisodeView, episode_view

# Minimum characters of a row id that identify a row.
SHORTEST_ID = 6
# Maximum characters of rows in memory; a single row may have more.
MOST_HELD = 32 << 20


def class_of(manifest: Manifest, benchmark: str) -> type[Benchmark]:
    """Return the class of a benchmark of a stored run."""
    groups = manifest.groups.get(benchmark, {})
    return recorded_class(benchmark, manifest.rule_sets_of(benchmark), groups)


class StoredRun:
    """A stored run, complete or not, with its rows in the order of their keys."""

    def __init__(self, store: Store) -> None:
        """Open a run. Raises `UserError`: ``store`` is not a run, or it cannot be read."""
        self.uri = store.root
        self.manifest: Manifest = read_manifest(store)
        self.ledger: Ledger = stored_rows(store, self.manifest)
        self._class_of = cache(partial(class_of, self.manifest))

    @cached_property
    def rows(self) -> list[ResultRow]:
        """The rows in `entry_order`. Raises `UserError`: the run is empty or cannot be read."""
        rows = sorted(self.ledger.rows(), key=entry_order)
        if not rows:
            raise no_rows(self.ledger, "evaluate the run, or wait until it has rows")
        return rows

    def class_of(self, row: ResultRow) -> type[Benchmark]:
        """Return the class of the benchmark of ``row``."""
        return self._class_of(row.benchmark)

    def whole(self, rows: Sequence[ResultRow]) -> Iterator[EpisodeView]:
        """Yield ``rows`` with their texts. Rows that no longer exist are left out.

        To bound memory, texts are read in groups of about `MOST_HELD` characters. The order of
        ``rows`` is kept only within a group."""
        wanted = {row.row_id: place for place, row in enumerate(rows)}
        ids = np.sort(np.array(list(wanted), dtype="S32"))
        columns = [*COLUMNS, *verdict_names(self.manifest.all_rule_sets)]
        held: list[tuple[int, dict[str, Any]]] = []
        chars = 0
        for table in self.ledger.tables(columns, ids):
            for one in rows_of(table):
                held.append((wanted[one["row_id"]], one))
                chars += sum(len(value) for value in one.values() if isinstance(value, str))
                if chars > MOST_HELD:
                    yield from self._views(rows, held)
                    held, chars = [], 0
        yield from self._views(rows, held)

    def _views(
        self, rows: Sequence[ResultRow], stored: list[tuple[int, dict[str, Any]]]
    ) -> Iterator[EpisodeView]:
        for place, one in sorted(stored, key=lambda pair: pair[0]):
            yield episode_view(one, self.class_of(rows[place]))


def entry_order(row: ResultRow) -> tuple[object, ...]:
    """Return the sort key of a row. Numbers in ids are compared as numbers."""
    numbered = [
        (0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part)
        for part in row.id.replace("-", "_").split("_")
    ]
    keys = (row.benchmark, row.language, row.category)
    return (*keys, numbered, row.id, row.sample, row.repeat)


def key_of(row: ResultRow) -> tuple[object, ...]:
    """Return the key by which a row is found in another run."""
    return (row.benchmark, row.language, row.category, row.id, row.sample, row.repeat)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of rows; None and "" match every row.

    ``valid`` and ``error_type`` refer to the rule set ``rules``, by default the first of each
    benchmark. ``entry``: the id of an entry, or the beginning of a row id.
    """

    entry: str = ""
    benchmark: str = ""
    category: str = ""
    language: str = ""
    sample: int | None = None
    status: str = ""
    rules: str = ""
    valid: bool | None = None
    error_type: str = ""

    def check(self, run: StoredRun) -> None:
        """Raise `UserError` if a value of the filter does not occur in ``run``."""
        known = {name: {getattr(row, name) for row in run.rows} for name in KEYS[:3]}
        known |= {"rules": {*run.manifest.all_rule_sets}, "status": {*STATUSES}}
        for name, values in known.items():
            if (asked := getattr(self, name)) and asked not in values:
                raise UserError(
                    f"{run.uri} has no row with {asked!r}",
                    where=f"--{name}",
                    fix=f"name one of {', '.join(sorted(values))}",
                )

    def takes(self, row: ResultRow, rules: str) -> bool:
        """Return whether ``row`` matches. ``rules``: rule set of the verdict to compare."""
        for name in (*KEYS[:3], "status"):
            if getattr(self, name) and getattr(self, name) != getattr(row, name):
                return False
        if self.entry and not _is_called(row, self.entry):
            return False
        if self.sample is not None and row.sample != self.sample:
            return False
        if self.valid is None and not self.error_type:
            return True
        verdict = row.verdicts.get(rules)
        if verdict is None or (self.valid is not None and verdict.valid != self.valid):
            return False
        return self.error_type in ("", verdict.error_type)


def _is_called(row: ResultRow, name: str) -> bool:
    return row.id == name or (len(name) >= SHORTEST_ID and row.row_id.startswith(name))


def select(run: StoredRun, wanted: Filter, other: StoredRun | None = None) -> list[ResultRow]:
    """Return the rows of ``run`` that match ``wanted``. If ``other`` is a run, return only rows
    that have another verdict there."""
    theirs = None if other is None else {key_of(row): row for row in other.rows}
    found = []
    for row in run.rows:
        rules = wanted.rules or run.class_of(row).rule_sets[0]
        if wanted.takes(row, rules) and (theirs is None or is_changed(row, theirs, rules)):
            found.append(row)
    return found


def is_changed(row: ResultRow, others: Mapping[tuple[object, ...], ResultRow], rules: str) -> bool:
    """Return whether ``others`` contains the row with another verdict under ``rules``."""
    other = others.get(key_of(row))
    return other is not None and is_right(other, rules) != is_right(row, rules)


def is_right(row: ResultRow, rules: str) -> bool | None:
    """Return whether the row is right under ``rules``; None if it has no verdict."""
    verdict = row.verdicts.get(rules)
    return None if verdict is None else verdict.valid


def outcome(row: ResultRow, rules: str) -> str:
    """Return ``right``, the error type of a wrong row, or the status of a row without a verdict."""
    verdict = row.verdicts.get(rules)
    if verdict is None:
        return row.status
    return "right" if verdict.valid else verdict.error_type or "wrong"
