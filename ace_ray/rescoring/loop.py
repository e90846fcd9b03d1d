"""The loop that writes stored rows again, for ``score RUN`` and ``reread``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import Ledger, new_session, part_names, write_parts
from ace_ray.storage.rows import AT_ONCE

Row = dict[str, Any]
Change = Callable[[list[Row]], list[Row]]


def rewrite_rows(
    ledger: Ledger, target: Store, change: Change, *, part_rows: int | None = None
) -> None:
    """Write all rows of ``ledger``, changed by ``change`` in batches, to new Parquet parts of
    ``target``.

    ``part_rows``: maximum rows of a part, which limits what an interrupted command loses. If None,
    a new part has as many rows as the stored part."""
    session = new_session(part_names(target), os.urandom(3).hex())
    for table in ledger.tables(ledger.schema.names):
        size = part_rows or max(1, len(table))
        for start in range(0, len(table), size):
            part, tables = table.slice(start, size), []
            for first in range(0, len(part), AT_ONCE):
                rows = change(part.slice(first, AT_ONCE).to_pylist())
                tables.append(pa.Table.from_pylist(rows, schema=ledger.schema))
            write_parts(target, session, pa.concat_tables(tables))
