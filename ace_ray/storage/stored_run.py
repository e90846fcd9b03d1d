"""Read a stored run: the one class for the Python API, reports, viewer, exports and trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ace_ray.errors import UserError
from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import FOLDER, Ledger, ReadPart, read_ledger, read_part
from ace_ray.storage.rows import rows_of, rows_schema
from ace_ray.storage.stored import MANIFEST, SUCCESS, Summary, read_manifest, read_summary
from ace_ray.types import ResultRow
from ace_ray.util import log
from ace_ray.util.sanitizing import one_line


class StoredRun:
    """A stored run, complete or not, which another person may have made.

    The manifest is read at once; summary, ledger and rows are read when they are first needed. All
    files are read and checked once. Rows that are stored later are not visible."""

    def __init__(
        self, store: Store, warn: Callable[[str], None] = log.caution, read: ReadPart = read_part
    ) -> None:
        """Open the run in ``store``. ``warn`` receives a line for each file that is ignored;
        ``read`` reads one part. Raises `UserError` if ``store`` is not a run."""
        self.store, self.uri = store, store.root
        self.manifest = read_manifest(store)
        self._warn, self._read = warn, read
        self.label = ""
        """Name of the run in a report."""

    def __repr__(self) -> str:
        name = one_line(self.label) or self.uri
        return f"<Run {name}: {len(self.ledger.ids)} of {self.manifest.declared} rows>"

    @cached_property
    def is_finished(self) -> bool:
        return self.store.get(SUCCESS) is not None

    @cached_property
    def summary(self) -> Summary:
        """The stored summary, or an empty record. Raises `UserError` if it is damaged."""
        return read_summary(self.store) or Summary()

    @cached_property
    def ledger(self) -> Ledger:
        """The index of the rows.

        Raises `UserError` if the store does not answer, or has more rows than the manifest
        declares: an untrusted run must not contain an unlimited number of rows."""
        schema = rows_schema(self.manifest.all_rule_sets)
        ledger = read_ledger(self.store, self._warn, schema, self._read)
        if len(ledger.ids) > self.manifest.declared:
            raise UserError(
                f"the run declares {self.manifest.declared} rows in {MANIFEST} but contains "
                f"{len(ledger.ids)}",
                where=self.uri,
                fix=f"remove the files in {FOLDER} that do not belong to this run, or name "
                "an intact run",
            )
        return ledger

    @cached_property
    def rows(self) -> list[ResultRow]:
        """All rows as they are stored. Raises `UserError` if the run has none that can be read."""
        if rows := list(self.ledger.rows()):
            return rows
        if not (ignored := list(self.ledger.ignored.items())):
            fix = "evaluate the run, or wait until it has rows"
            raise UserError("the run has no rows yet", where=self.uri, fix=fix)
        name, why = ignored[0]
        more = f", and {len(ignored) - 1} more parts" if len(ignored) > 1 else ""
        raise UserError(
            f"no row of the run can be read; {name}{more} cannot be read: {why}",
            where=self.uri,
            fix="remove these files and evaluate the run again",
        )

    def rows_of(self, benchmark: str, *, repeats: bool = False) -> list[ResultRow]:
        """Return the rows of ``benchmark`` that affect scores; with ``repeats``, the rows that were
        generated again to measure noise."""
        return [r for r in self.rows if r.benchmark == benchmark and bool(r.repeat) == repeats]

    def tables(self, rows: Sequence[ResultRow], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield ``columns`` of ``rows`` by part. Raises `UserError` if a part is damaged."""
        return self.ledger.tables(columns, np.array([row.row_id for row in rows], dtype="S32"))

    def read_columns(
        self, rows: Sequence[ResultRow], columns: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield ``row_id`` and ``columns`` of ``rows``. Raises `UserError` for a damaged part."""
        for table in self.tables(rows, list(dict.fromkeys(["row_id", *columns]))):
            yield from rows_of(table)
