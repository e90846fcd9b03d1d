"""Parquet parts under ``rows/``: written whole under a unique name, read back without doubles."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.errors import UserError
from ace_ray.run.rows import RESULT_COLUMNS, ROWS, ResultRow, result_rows
from ace_ray.store import Store

FOLDER = "rows/"


def part_name(session: str, row_ids: Sequence[str]) -> str:
    """``part-<session>-<hash of its row ids>.parquet``.

    Sessions sort by time, so a later attempt at a row sorts after an earlier one; a write task
    that Ray repeats overwrites its own part.
    """
    content = hashlib.sha256("\n".join(row_ids).encode()).hexdigest()[:16]
    return f"{FOLDER}part-{session}-{content}.parquet"


def write_part(store: Store, session: str, table: pa.Table) -> str:
    """Store ``table`` (schema `ROWS`) as one part; returns its name."""
    name = part_name(session, table.column("row_id").to_pylist())
    sink = pa.BufferOutputStream()
    pq.write_table(table.select(ROWS.names).cast(ROWS), sink, compression="zstd")
    store.put(name, sink.getvalue().to_pybytes())
    return name


def part_names(store: Store) -> list[str]:
    return [o.path for o in store.list(FOLDER) if o.path.endswith(".parquet")]


def read_parts(store: Store, columns: Sequence[str]) -> Iterator[pa.Table]:
    """All parts, oldest first, one at a time. Raises `UserError` on an unreadable part."""
    for name in part_names(store):
        try:
            with store.open(name) as file:
                table = pq.read_table(file, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise UserError(
                f"cannot be read as a part of this run: {error}",
                where=f"{store.root}/{name}",
                fix="remove the file: its rows are evaluated again",
            ) from error
        yield table


def latest_rows(store: Store) -> dict[str, ResultRow]:
    """Every row once, by id: an evaluated row wins over a failed one, a later over an earlier."""
    rows: dict[str, ResultRow] = {}
    for row in result_rows(read_parts(store, RESULT_COLUMNS)):
        known = rows.get(row.row_id)
        if known is None or known.status == "infra_error" or row.status != "infra_error":
            rows[row.row_id] = row
    return rows


def settled_ids(store: Store) -> set[str]:
    """Ids of rows that need no further attempt; failed ones are owed again."""
    settled: set[str] = set()
    for table in read_parts(store, ["row_id", "status"]):
        for row_id, status in zip(*(c.to_pylist() for c in table.columns), strict=True):
            if status != "infra_error":
                settled.add(row_id)
    return settled
