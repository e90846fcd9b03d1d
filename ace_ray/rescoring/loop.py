"""The loop that writes stored rows again, for ``score RUN`` and ``reread``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import Ledger, new_session, part_names, write_parts
from ace_ray.storage.rows import AT_ONCE, rows_of

Row = dict[str, Any]


def write_again(
    ledger: Ledger,
    target: Store,
    change: Callable[[list[Row]], list[Row]],
    *,
    part_rows: int | None = None,
) -> None:
    """Write all rows of ``ledger`` to new parts of ``target``, as ``change`` returns them.

    ``part_rows``: maximum rows of a part, which limits what an interrupted command loses; None: the
    rows of the stored part."""
    session = new_session(part_names(target), os.urandom(3).hex())
    for table in ledger.tables(ledger.schema.names):
        size = part_rows or max(1, len(table))
        for start in range(0, len(table), size):
            part = table.slice(start, size)
            tables = [
                pa.Table.from_pylist(change(list(rows_of(batch))), schema=ledger.schema)
                for first in range(0, len(part), AT_ONCE)
                for batch in [part.slice(first, AT_ONCE)]
            ]
            write_parts(target, session, pa.concat_tables(tables))
