"""Write and read the rows of a run: Parquet files, called parts, in the folder ``rows/``.

A part is written atomically under a unique name. It contains the ids of its rows, so no other index
needs to be updated. Readers ignore duplicates of a row in several parts (docs/reliability.md)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ace_ray.errors import UserError
from ace_ray.storage.object_store import Store
from ace_ray.storage.rows import (
    CHECK_FAILED,
    KILLED_FROM_OUTSIDE,
    ROWS,
    SET_ASIDE,
    check_values,
    result_columns,
    result_rows,
    rows_schema,
    rule_sets_in,
    verdict_names,
)
from ace_ray.types import ResultRow
from ace_ray.util import log

FOLDER = "rows/"
# Maximum uncompressed bytes of rows in one part. A single row may be larger.
PART_BYTES = 64 << 20

GROUP_ROWS = 256
# Maximum row groups of a part. A group has `GROUP_ROWS` rows, or more in a large part.
MOST_GROUPS = 16

# Maximum bytes of a part's file, and of its columns in memory.
MOST_BYTES = 4 * PART_BYTES
# Maximum rows of a part that is read.
MOST_ROWS = 1 << 20
# Rows that are unpacked before their size is checked.
_BATCH_ROWS = 4096

# Result of `read_part` for a part that was deleted after the folder was listed.
GONE = "it is gone"
# Maximum ignored files whose names are printed.
MOST_NAMED = 5
# Maximum attempts to list and read the parts while `compact` replaces them.
_LISTINGS = 5

_PART = re.compile(r"rows/part-[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.parquet")
_READ_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError)


def new_session(names: Sequence[str], salt: str) -> str:
    """Return a name for a new session, a pass that writes parts. ``names``: names of the stored
    parts; the new name sorts after their sessions. Sessions are numbered, since a clock may jump.
    ``salt`` makes the names of two writers differ."""
    numbers = [part.removeprefix(f"{FOLDER}part-").split("-")[0] for part in names]
    last = max((int(n) for n in numbers if n.isascii() and n.isdigit()), default=0)
    return f"{last + 1:014d}-{salt}"


def part_name(session: str, row_ids: Sequence[str]) -> str:
    """Return the path of a part: ``rows/part-<session>-<hash of its row ids>.parquet``.

    Session names sort by start time, so a later attempt at a row sorts after an earlier attempt.
    The same path occurs again only if a failed write of the same rows is repeated."""
    content = hashlib.sha256("\n".join(row_ids).encode()).hexdigest()[:16]
    return f"{FOLDER}part-{session}-{content}.parquet"


def write_parts(store: Store, session: str, table: pa.Table) -> list[str]:
    """Write ``table`` (`rows_schema`) as one or, if large, several parts. Return their paths."""
    if table.nbytes > PART_BYTES and table.num_rows > 1:
        half = table.num_rows // 2
        halves = (table.slice(0, half), table.slice(half))
        return [name for part in halves for name in write_parts(store, session, part)]
    name = part_name(session, table.column("row_id").to_pylist())
    sink = pa.BufferOutputStream()
    schema = rows_schema(rule_sets_in(table.column_names))
    pq.write_table(
        table.select(schema.names).cast(schema),
        sink,
        compression="zstd",
        # Small groups, so that one row can be read alone; few groups, for a small footer.
        row_group_size=max(GROUP_ROWS, -(-table.num_rows // MOST_GROUPS)),
        # Statistics of long strings are large and are not used.
        write_statistics=[f.name for f in schema if not pa.types.is_large_string(f.type)],
    )
    store.put(name, sink.getvalue().to_pybytes())
    return [name]


def part_names(store: Store) -> list[str]:
    return [item.path for item in store.list(FOLDER) if is_part_name(item.path)]


def is_part_name(path: str) -> bool:
    """Return whether ``path`` has the form of a part's path in any version of ace_ray."""
    return _PART.fullmatch(path) is not None


def read_part(
    store: Store,
    name: str,
    columns: Sequence[str],
    schema: pa.Schema = ROWS,
    row: int | None = None,
) -> pa.Table | str:
    """Read ``columns`` of one part. If the part cannot be read, return the reason as a string.

    ``schema``: schema of the run's rows. ``row``: index of the only row to read; None: all rows.
    Raises `UserError` if the store does not answer."""
    try:
        with store.open(name) as file:
            return read_bounded(file, columns, schema, row)
    except _READ_ERRORS:
        # The part is damaged, or the store has an outage. During an outage `get` raises.
        content = store.get(name)
    if content is None:
        return GONE
    try:
        return read_bounded(pa.BufferReader(content), columns, schema, row)
    except _READ_ERRORS as error:
        return " ".join(str(error).split())[:200]


def read_bounded(
    source: pa.NativeFile, columns: Sequence[str], schema: pa.Schema, row: int | None
) -> pa.Table:
    """Read ``columns`` of a Parquet file that has at least the columns of ``schema``.
    ``row``: index of the only row to return, whose row group alone is read; None: all rows.

    The file is not trusted: a few bytes may unpack to gigabytes. So strings stay encoded as
    dictionaries until their full size is known, and reading stops when a limit is exceeded.

    Raises `ValueError`, `OSError` or `pa.ArrowException` if the file is damaged, has other columns,
    or is too large."""
    size = source.size()
    if size > MOST_BYTES:
        raise ValueError(f"it has {size >> 20} MiB, more than {MOST_BYTES >> 20}")
    # The second limit is needed because pyarrow reads the schema recursively.
    limits = {"thrift_string_size_limit": 4 << 20, "thrift_container_size_limit": 1_000}
    column_schema = pa.schema([schema.field(column) for column in columns])
    footer = pq.ParquetFile(source, **limits)
    names = footer.schema_arrow.names
    texts = [f.name for f in column_schema if f.type in (pa.string(), pa.large_string())]
    texts = [name for name in texts if name in names]
    file = pq.ParquetFile(
        source, metadata=footer.metadata, read_dictionary=texts, pre_buffer=True, **limits
    )
    if any(pa.types.is_nested(kind) for kind in file.schema_arrow.types):
        raise ValueError("its columns are nested")
    # A run that has grown by a benchmark has parts without the columns of its rule sets.
    missing = {*schema.names} - {*names} if rule_sets_in(names) else set()
    later = missing & {*verdict_names(rule_sets_in(missing))}
    if name := next((n for n in schema.names if names.count(n) != 1 and n not in later), None):
        raise ValueError(f"it has {'two columns' if name in names else 'no column'} {name}")
    # A row id takes more than one byte even if packed, so a valid file has fewer rows than bytes.
    most_rows = min(MOST_ROWS, size)
    groups, index = (None, 0) if row is None else _group_of(file, row)
    batches: list[pa.Table] = []
    rows = unpacked = 0
    stored = [name for name in columns if name not in later] or ["row_id"]
    for batch in file.iter_batches(_BATCH_ROWS, groups, columns=stored, use_threads=False):
        rows += batch.num_rows
        unpacked += sum(map(_full_size, batch.columns))
        if rows > most_rows:
            raise ValueError(f"it has more than {most_rows} rows")
        if unpacked > MOST_BYTES:
            raise ValueError(f"its columns take more than {MOST_BYTES >> 20} MiB unpacked")
        arrays = [batch[c] if c in stored else pa.nulls(len(batch)) for c in columns]
        batches.append(pa.table(arrays, columns).cast(column_schema))
    table = pa.concat_tables(batches) if batches else column_schema.empty_table()
    if row is not None:
        if table.num_rows <= index:
            raise ValueError("its footer is damaged")
        table = table.slice(index, 1)
    # Check UTF-8 here; otherwise later code would raise an error.
    table.validate(full=True)
    check_values(table)
    return table


def _group_of(file: pq.ParquetFile, row: int) -> tuple[list[int], int]:
    """Return a list with the number of ``row``'s row group, and the row's index in this group."""
    begins = 0
    for number in range(file.metadata.num_row_groups):
        # Do not call `.column()` on metadata: pyarrow 26 aborts the process if it is damaged.
        rows = file.metadata.row_group(number).num_rows
        if begins <= row < begins + rows:
            return [number], row - begins
        begins += rows
    raise ValueError(f"row {row} is missing")


def _full_size(column: pa.Array) -> int:
    """Return the size of a column in bytes without dictionary encoding."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary)
    return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0) + 8 * len(column)


# Type of `read_part`.
ReadPart = Callable[[Store, str, Sequence[str], pa.Schema, int | None], "pa.Table | str"]

# Error classes of failed rows that only the next command retries, not the same command.
NOT_RETRYABLE = (CHECK_FAILED, KILLED_FROM_OUTSIDE)


@dataclass(frozen=True)
class Ledger:
    """Index of the stored rows, about 60 bytes a row. The arrays have one element per row id.

    If several stored rows have the same id, only one of them counts: an evaluated row rather than a
    failed attempt, and a later attempt rather than an earlier attempt."""

    store: Store
    ids: np.ndarray = field(default_factory=lambda: np.array([], dtype="S32"))
    """The ids of all stored rows, each once, sorted."""
    settled: np.ndarray = field(default_factory=lambda: np.array([], dtype=bool))
    """True for a row that needs no further attempt: any status but ``infra_error``."""
    attempts: np.ndarray = field(default_factory=lambda: np.array([], dtype=np.int32))
    retryable: np.ndarray = field(default_factory=lambda: np.array([], dtype=bool))
    """False for a failed row that only the next command retries, because its checker failed or its
    engines were repeatedly killed from outside."""
    set_aside: np.ndarray = field(default_factory=lambda: np.array([], dtype="S8"))
    """Kind of process that crashed on a row that is retried last (`SET_ASIDE`); else ""."""
    part: np.ndarray = field(default_factory=lambda: np.array([], dtype=np.int32))
    """Index into ``parts`` of the part that contains the row that counts."""
    position: np.ndarray = field(default_factory=lambda: np.array([], dtype=np.int32))
    """Index of the row in its part."""
    parts: tuple[str, ...] = ()
    """Every part that was read."""
    dominated: int = 0
    """Number of stored rows that do not count, because another row with their id does."""
    ignored: dict[str, str] = field(default_factory=dict)
    """File -> the reason why it was not read."""
    schema: pa.Schema = ROWS
    """Schema of the rows (`rows_schema`)."""
    read: ReadPart = read_part

    @property
    def rule_sets(self) -> tuple[str, ...]:
        return rule_sets_in(self.schema.names)

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Return the index of each of ``ids`` in the arrays; -1 for an id that is not stored."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        at = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        return np.where(self.ids[at] == ids, at, -1)

    @cached_property
    def _part_order(self) -> np.ndarray:
        """Indices of the rows, ordered by part and by the position in the part."""
        return np.lexsort((self.position, self.part))

    def tables(self, columns: Sequence[str], ids: np.ndarray | None = None) -> Iterator[pa.Table]:
        """Yield ``columns`` of the rows that count, one table per part that has such rows. ``ids``:
        ids of the rows to yield; None: all. If a part has only one of these rows, only its row
        group is read. If `compact` merges parts meanwhile, the new parts are read instead. Raises
        `UserError` if a part cannot be read."""
        rows = self._part_order
        if ids is not None:
            mask = np.zeros(len(self.ids) + 1, dtype=bool)
            mask[self.find(ids)] = True  # the last element is for ids that are not stored
            rows = rows[mask[rows]]
        ends = np.searchsorted(self.part[rows], np.arange(len(self.parts) + 1))
        for name, begin, end in zip(self.parts, ends[:-1], ends[1:], strict=True):
            if begin == end:
                continue
            positions = self.position[rows[begin:end]]
            single = int(positions[0]) if ids is not None and len(positions) == 1 else None
            table = self.read(self.store, name, columns, self.schema, single)
            if table == GONE:
                remaining_ids = self.ids[np.sort(rows[begin:])]
                yield from self._reload(remaining_ids).tables(columns, remaining_ids)
                return
            if isinstance(table, str):
                fix = "remove it and evaluate the run again; its rows are pending then"
                raise UserError(f"is damaged: {table}", where=f"{self.store.root}/{name}", fix=fix)
            yield table if single is not None else table.take(positions)

    def _reload(self, ids: np.ndarray) -> Ledger:
        """Read the ledger again. Raises `UserError` if the new ledger lacks any of ``ids``."""
        ledger = read_ledger(self.store, schema=self.schema, read=self.read)
        if lost := int((ledger.find(ids) < 0).sum()):
            problem = f"{lost} rows disappeared while they were read"
            raise UserError(problem, where=self.store.root, fix="run the same command again")
        return ledger

    def rows(self) -> Iterator[ResultRow]:
        """Yield the rows that count, one at a time."""
        return result_rows(self.tables(result_columns(self.rule_sets)))


def read_ledger(
    store: Store,
    warn: Callable[[str], None] = log.caution,
    schema: pa.Schema = ROWS,
    read: ReadPart = read_part,
) -> Ledger:
    """Read the index of a run's stored rows, without reading prompts and answers.

    ``warn`` receives a line for each part that is ignored. ``read`` replaces `read_part`, for
    example to cache parts. Raises `UserError` if the store does not answer."""
    for _ in range(_LISTINGS):
        ledger = _build_ledger(store, schema, read)
        if GONE not in ledger.ignored.values():
            break
        # `compact` has replaced the listed parts by new parts with the same rows. List again.
    for line in ignored_warnings(ledger):
        warn(line)
    return ledger


def ignored_warnings(ledger: Ledger) -> Iterator[str]:
    """Yield a line for each file of the run that was not read, with the reason."""
    for name, why in list(ledger.ignored.items())[:MOST_NAMED]:
        yield f"{ledger.store.root}/{name} is ignored, its rows are pending: {why}"
    if (more := len(ledger.ignored) - MOST_NAMED) > 0:
        yield f"{ledger.store.root}: {more} more parts are ignored, their rows are pending"


def _build_ledger(store: Store, schema: pa.Schema, read: ReadPart) -> Ledger:
    """Build a ledger from the parts that the folder contains now."""
    names: list[str] = []
    ignored: dict[str, str] = {}
    pieces: list[dict[str, Any]] = []
    for name in part_names(store):
        keys = ["row_id", "status", "attempts", "error_class"]
        table = read(store, name, keys, schema, None)
        if not isinstance(table, str):
            try:
                ids = _ids(table)
            except ValueError as error:
                table = str(error)
        if isinstance(table, str):
            ignored[name] = table
            continue
        settled = np.asarray(table.column("status").to_pylist()) != "infra_error"
        classes = table.column("error_class").to_pylist()
        set_aside = np.array([SET_ASIDE.get(error, "") for error in classes], "S8")
        set_aside[settled] = b""
        pieces.append(
            {
                "ids": ids,
                "settled": settled,
                "attempts": np.asarray(table.column("attempts").fill_null(1), dtype=np.int32),
                "retryable": np.array([error not in NOT_RETRYABLE for error in classes], bool),
                "set_aside": set_aside,
                "part": np.full(len(ids), len(names), dtype=np.int32),
                "position": np.arange(len(ids), dtype=np.int32),
            }
        )
        names.append(name)
    if not pieces:
        return Ledger(store, ignored=ignored, schema=schema, read=read)
    # Join one column at a time and free its pieces, since a large run needs much memory.
    arrays: dict[str, Any] = {
        name: np.concatenate([piece.pop(name) for piece in pieces]) for name in tuple(pieces[0])
    }
    ids = arrays["ids"]
    # Parts are read oldest first, so among equal ids a stable sort puts the row that counts last.
    order = np.lexsort((arrays["settled"], ids))
    ordered = ids[order]
    wins = order[np.append(ordered[1:] != ordered[:-1], True)]
    del order, ordered
    return Ledger(
        store,
        **{name: array[wins] for name, array in arrays.items()},
        parts=tuple(names),
        dominated=len(ids) - len(wins),
        ignored=ignored,
        schema=schema,
        read=read,
    )


def _ids(table: pa.Table) -> np.ndarray:
    """Return the row ids of a table. Raises `ValueError` if an id does not have the right form."""
    texts = table.column("row_id").to_pylist()
    if any(text is None or len(text) > 32 or not text.isascii() for text in texts):
        raise ValueError("it contains an invalid row id")
    return np.array(texts, dtype="S32")


def compact(
    store: Store, ledger: Ledger, session: str, check: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """Merge all parts into a few large parts, without the rows that do not count. Return the number
    of parts before and after.

    New parts are stored before the old parts are deleted. After a crash in between, rows are stored
    twice, which readers ignore. The caller has the run's lease; ``check`` raises if it was lost."""
    new: list[str] = []
    waiting: list[pa.Table] = []
    for table in ledger.tables(ledger.schema.names):
        waiting.append(table)
        if sum(part.nbytes for part in waiting) >= PART_BYTES // 2:
            new += write_parts(store, session, pa.concat_tables(waiting))
            waiting = []
    if waiting:
        new += write_parts(store, session, pa.concat_tables(waiting))
    check()
    # Keep parts that the ledger has not read: their rows are not in the new parts.
    for name in ledger.parts:
        store.delete(name)
    return len(ledger.parts), len(new)
