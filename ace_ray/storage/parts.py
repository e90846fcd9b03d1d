"""Parquet parts under ``rows/``: written whole under a unique name, read back without duplicates.

A part is its own ledger. The row ids are one of its columns, so rows and ids become visible in one
step (docs/reliability.md).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
    ResultRow,
    check_values,
    result_columns,
    result_rows,
    rows_schema,
    rule_sets_in,
)
from ace_ray.storage.stored import MANIFEST, Manifest
from ace_ray.util import log

FOLDER = "rows/"
# Maximum uncompressed bytes of rows in one part. A single row may be larger.
PART_BYTES = 64 << 20

GROUP_ROWS = 256
# Columns that parts of earlier versions lack. They are read as null.
ADDED = ("output_token_ids",)
# Maximum row groups of a part. Groups hold `GROUP_ROWS` rows, or more in a large part.
MOST_GROUPS = 16

# Maximum bytes of a part: of its file, and of its columns in memory.
MOST_BYTES = 4 * PART_BYTES
# Maximum rows of a part that is read.
MOST_ROWS = 1 << 20
# Rows that are unpacked before their size is checked.
_BATCH_ROWS = 4096

# The reason for a part that was deleted after the folder was listed.
GONE = "it is gone"
# Maximum ignored files that are named on screen.
MOST_NAMED = 5
# Maximum listings of the parts while a merge replaces them.
_LISTINGS = 5

_PART = re.compile(r"rows/part-[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.parquet")
_READ_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError)


def new_session(names: Sequence[str], salt: str) -> str:
    """Return the name of a new session, which sorts after the sessions of the parts ``names``.

    Sessions are numbered, since a clock may jump. ``salt`` keeps two writers apart.
    """
    numbers = [part.removeprefix(f"{FOLDER}part-").split("-")[0] for part in names]
    last = max((int(n) for n in numbers if n.isascii() and n.isdigit()), default=0)
    return f"{last + 1:014d}-{salt}"


def part_name(session: str, row_ids: Sequence[str]) -> str:
    """``part-<session>-<hash of its row ids>.parquet``.

    Sessions sort in the order in which they began, so a later attempt at a row sorts after an
    earlier one. A name is used twice only when storing the same rows is tried again.
    """
    content = hashlib.sha256("\n".join(row_ids).encode()).hexdigest()[:16]
    return f"{FOLDER}part-{session}-{content}.parquet"


def write_parts(store: Store, session: str, table: pa.Table) -> list[str]:
    """Store ``table`` (`rows_schema`) as one part, or several if it is large; return the names."""
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
        # One row can be read without the others, and the footer stays small.
        row_group_size=max(GROUP_ROWS, -(-table.num_rows // MOST_GROUPS)),
        # Statistics of long texts are large and of no use.
        write_statistics=[f.name for f in schema if not pa.types.is_large_string(f.type)],
    )
    store.put(name, sink.getvalue().to_pybytes())
    return [name]


def part_names(store: Store) -> list[str]:
    return [item.path for item in store.list(FOLDER) if is_part_name(item.path)]


def is_part_name(path: str) -> bool:
    """Return whether ``path`` has the form of a part's name, of any version."""
    return _PART.fullmatch(path) is not None


def read_part(
    store: Store,
    name: str,
    columns: Sequence[str],
    schema: pa.Schema = ROWS,
    row: int | None = None,
) -> pa.Table | str:
    """Return ``columns`` of one part, or the reason why it cannot be read: torn, or foreign.

    ``schema`` describes the run's rows. ``row`` is the place of the only row to read.

    Raises `UserError` when the store does not answer.
    """
    try:
        with store.open(name) as file:
            return _columns(file, columns, schema, row)
    except _READ_ERRORS:
        # Torn or out of reach. `get` tells which, since it raises on an outage.
        content = store.get(name)
    if content is None:
        return GONE
    try:
        return _columns(pa.BufferReader(content), columns, schema, row)
    except _READ_ERRORS as error:
        return " ".join(str(error).split())[:200]


def _columns(
    source: Any, columns: Sequence[str], schema: pa.Schema, row: int | None = None
) -> pa.Table:
    wanted = pa.schema([schema.field(column) for column in columns])
    table = read_bounded(source, wanted, schema.names, row)
    check_values(table)
    return table


def read_bounded(
    source: pa.NativeFile, schema: pa.Schema, names: Sequence[str], row: int | None = None
) -> pa.Table:
    """Read the columns of ``schema`` from a Parquet file that has the columns ``names``. With the
    place of a ``row``, read the row group that holds it, and return that row.

    The file is not trusted: a few bytes may unpack to gigabytes. So texts stay dictionaries until
    their full size is known, and reading stops at the first batch that is too large.

    Raises `ValueError`, `OSError` or `pa.ArrowException`: the file is damaged, of another shape, or
    too large.
    """
    size = source.size()
    if size > MOST_BYTES:
        raise ValueError(f"it has {size >> 20} MiB, more than {MOST_BYTES >> 20}")
    texts = [f.name for f in schema if f.type in (pa.string(), pa.large_string())]
    try:
        file = pq.ParquetFile(
            source,
            read_dictionary=texts,
            pre_buffer=True,
            thrift_string_size_limit=4 << 20,
            # pyarrow walks the schema recursively.
            thrift_container_size_limit=1_000,
        )
    except KeyError as error:  # of `read_dictionary`
        if not set(ADDED) & set(texts):
            raise ValueError("it lacks a column of the run's rows") from error
        older = pa.schema([column for column in schema if column.name not in ADDED])
        table = read_bounded(source, older, names, row)
        for column in (column for column in schema if column.name in ADDED):
            table = table.append_column(column, pa.nulls(table.num_rows, column.type))
        return table.select(schema.names)
    _check_columns(file.schema_arrow, [*set(names).difference(ADDED), *schema.names])
    # A row id takes more than one packed byte. A file with more rows than bytes repeats rows.
    most = min(MOST_ROWS, size)
    groups, place = (None, 0) if row is None else _group_of(file, row)
    batches: list[pa.Table] = []
    rows = unpacked = 0
    for batch in file.iter_batches(_BATCH_ROWS, groups, columns=schema.names, use_threads=False):
        rows += batch.num_rows
        unpacked += sum(map(_full_size, batch.columns))
        if rows > most:
            raise ValueError(f"it has more than {most} rows")
        if unpacked > MOST_BYTES:
            raise ValueError(f"its columns take more than {MOST_BYTES >> 20} MiB unpacked")
        batches.append(pa.table(batch).select(schema.names).cast(schema))
    table = pa.concat_tables(batches) if batches else schema.empty_table()
    if row is not None:
        if table.num_rows <= place:
            raise ValueError("its footer is damaged")
        table = table.slice(place, 1)
    # Invalid UTF-8 would raise far from here.
    table.validate(full=True)
    return table


def _check_columns(found: pa.Schema, names: Iterable[str]) -> None:
    if any(pa.types.is_nested(kind) for kind in found.types):
        raise ValueError("its columns are nested")
    for name in names:
        if found.names.count(name) != 1:
            count = "two columns" if name in found.names else "no column"
            raise ValueError(f"it has {count} {name}")


def _group_of(file: pq.ParquetFile, row: int) -> tuple[list[int], int]:
    """Return the number of the row group that holds ``row``, and the row's place in it."""
    begins = 0
    for number in range(file.metadata.num_row_groups):
        # Do not call `.column()` on metadata: pyarrow 26 aborts the process if it is damaged.
        rows = file.metadata.row_group(number).num_rows
        if begins <= row < begins + rows:
            return [number], row - begins
        begins += rows
    raise ValueError(f"row {row} is missing")


def _full_size(column: pa.Array) -> int:
    """Return the bytes of a column with nothing shared between its values."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary)
    return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0) + 8 * len(column)


# Error classes of rows that another attempt of the same command cannot help.
NOT_RETRYABLE = (CHECK_FAILED, KILLED_FROM_OUTSIDE)


@dataclass(frozen=True)
class Ledger:
    """The rows that are stored, and the place of each row that counts; about 60 bytes a row.

    An evaluated row wins over a failed attempt, and a later attempt wins over an earlier one.
    """

    store: Store
    ids: np.ndarray = field(default_factory=lambda: np.array([], dtype="S32"))
    """The ids of all stored rows, each once, sorted."""
    settled: np.ndarray = field(default_factory=lambda: np.array([], dtype=bool))
    """True for a row that needs no further attempt: any status but ``infra_error``."""
    attempts: np.ndarray = field(default_factory=lambda: np.array([], dtype=np.int32))
    retryable: np.ndarray = field(default_factory=lambda: np.array([], dtype=bool))
    """False for a row that another attempt of the same command cannot help: its checker failed, or
    engines were repeatedly killed on it."""
    set_aside: np.ndarray = field(default_factory=lambda: np.array([], dtype="S8"))
    """The kind of process that the row has killed, if it waits for all other rows (`SET_ASIDE`)."""
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    """Part -> positions of the rows in it that count."""
    parts: tuple[str, ...] = ()
    """Every part that was read."""
    dominated: int = 0
    """Number of stored rows that do not count."""
    ignored: dict[str, str] = field(default_factory=dict)
    """File -> the reason why it was not read."""
    schema: pa.Schema = ROWS
    """Schema of the rows (`rows_schema`)."""

    @property
    def rule_sets(self) -> tuple[str, ...]:
        return rule_sets_in(self.schema.names)

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Return the position of each of ``ids`` in this ledger; -1 if it is not stored."""
        return _positions(self.ids, ids)

    def tables(self, columns: Sequence[str], known: np.ndarray | None = None) -> Iterator[pa.Table]:
        """Yield the rows that count, part by part; if given, only rows with the sorted ids
        ``known``. If `compact` merges parts meanwhile, the other rows come from the new parts.

        Raises `UserError`: a part cannot be read."""
        done: list[np.ndarray] = []
        for name, positions in self.kept.items():
            wanted = list(dict.fromkeys(["row_id", *columns]))
            table = read_part(self.store, name, wanted, self.schema)
            if table == GONE:
                left = np.setdiff1d(self.ids, np.concatenate([*done, self.ids[:0]]))
                yield from self._now(left).tables(
                    columns, left if known is None else np.intersect1d(left, known)
                )
                return
            if isinstance(table, str):
                raise unreadable(self.store, name, table)
            table = table.take(positions)
            ids = _ids(table)
            done.append(ids)
            if known is not None:
                table = table.filter(pa.array(_positions(known, ids) >= 0))
            yield table.select(columns)

    def _now(self, ids: np.ndarray) -> Ledger:
        """Read the ledger again. Raises `UserError`: ``ids`` are no longer in it."""
        now = read_ledger(self.store, schema=self.schema)
        if lost := int((now.find(ids) < 0).sum()):
            raise UserError(
                f"{lost} rows disappeared while they were read",
                where=self.store.root,
                fix="run the same command again",
            )
        return now

    def rows(self, known: np.ndarray | None = None) -> Iterator[ResultRow]:
        """Yield the rows that count, one at a time."""
        return result_rows(self.tables(result_columns(self.rule_sets), known))


def unreadable(store: Store, name: str, why: str) -> UserError:
    """Return the error of a part that `read_part` cannot read."""
    where = f"{store.root}/{name}"
    if why == GONE:
        return UserError(
            "has been merged into another part meanwhile",
            where=where,
            fix="run the same command again",
        )
    return UserError(
        f"is damaged: {why}",
        where=where,
        fix="remove it and evaluate the run again; its rows are pending then",
    )


ReadPart = Callable[[Store, str, Sequence[str], pa.Schema], "pa.Table | str"]


def read_ledger(
    store: Store,
    say: Callable[[str], None] = log.caution,
    schema: pa.Schema = ROWS,
    read: ReadPart = read_part,
) -> Ledger:
    """Read which rows the run holds; time and memory grow with the number of rows only.

    ``schema`` describes the rows; ``say`` gets a line for each ignored part; ``read`` may cache
    parts. Raises `UserError` when the store is away.
    """
    for _ in range(_LISTINGS):
        ledger = _read_listed(store, schema, read)
        if GONE not in ledger.ignored.values():
            break
        # `compact` has replaced the parts that were listed. New parts hold their rows.
    for line in ignored_lines(ledger):
        say(log.warning(line))
    return ledger


def ignored_lines(ledger: Ledger) -> Iterator[str]:
    """Name the files of the run that were not read, and why."""
    for name, why in list(ledger.ignored.items())[:MOST_NAMED]:
        yield f"{ledger.store.root}/{name} is ignored, its rows are pending: {why}"
    if (more := len(ledger.ignored) - MOST_NAMED) > 0:
        yield f"{ledger.store.root}: {more} more parts are ignored, their rows are pending"


def _read_listed(store: Store, schema: pa.Schema, read: ReadPart) -> Ledger:
    """Read the parts that the folder lists now."""
    names: list[str] = []
    ignored: dict[str, str] = {}
    columns: list[list[np.ndarray]] = []
    for name in part_names(store):
        keys = ["row_id", "status", "attempts", "error_class"]
        table = read(store, name, keys, schema)
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
        retryable = np.array([one not in NOT_RETRYABLE for one in classes], bool)
        waits = np.array([SET_ASIDE.get(one, "") for one in classes], "S8")
        waits[settled] = b""
        attempts = np.asarray(table.column("attempts").fill_null(1), dtype=np.int32)
        part = np.full(len(ids), len(names), dtype=np.int32)
        place = np.arange(len(ids), dtype=np.int32)
        columns.append([ids, settled, attempts, retryable, waits, part, place])
        names.append(name)
    if not columns:
        return Ledger(store, ignored=ignored, schema=schema)
    # Each column replaces its parts at once: the rows of a large run fill the driver's memory.
    ids, settled, attempts, retryable, waits, part, position = (
        np.concatenate([table.pop(0) for table in columns]) for _ in range(7)
    )
    # Parts are read oldest first, so a stable sort puts the row that counts last.
    order = np.lexsort((settled, ids))
    ordered = ids[order]
    wins = order[np.append(ordered[1:] != ordered[:-1], True)]
    del order, ordered
    by_part = wins[np.lexsort((position[wins], part[wins]))]
    ends = np.searchsorted(part[by_part], np.arange(len(names) + 1))
    kept = {
        name: position[by_part[ends[index] : ends[index + 1]]] for index, name in enumerate(names)
    }
    dominated = len(ids) - len(wins)
    ids = ids[wins]
    return Ledger(
        store,
        ids,
        settled[wins],
        attempts[wins],
        retryable[wins],
        waits[wins],
        {name: positions for name, positions in kept.items() if len(positions)},
        tuple(names),
        dominated,
        ignored,
        schema,
    )


def no_rows(ledger: Ledger, fix: str) -> UserError:
    """Return the error of a run whose rows cannot be read; ``fix`` is for a run without parts."""
    where = ledger.store.root
    if not ledger.ignored:
        return UserError("the run has no rows yet", where=where, fix=fix)
    name, why = next(iter(ledger.ignored.items()))
    more = f", and {len(ledger.ignored) - 1} more parts" if len(ledger.ignored) > 1 else ""
    return UserError(
        f"no row of the run can be read: {name}{more} cannot be read: {why}",
        where=where,
        fix="remove these files and evaluate the run again",
    )


def _positions(ordered: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the position of each of ``ids`` in ``ordered``; -1 if it is not there."""
    if not len(ordered):
        return np.full(len(ids), -1)
    at = np.searchsorted(ordered, ids).clip(max=len(ordered) - 1)
    return np.where(ordered[at] == ids, at, -1)


def _ids(table: pa.Table) -> np.ndarray:
    """Return the row ids of a table. Raises `ValueError`: they have not the form of row ids."""
    texts = table.column("row_id").to_pylist()
    if any(text is None or len(text) > 32 or not text.isascii() for text in texts):
        raise ValueError("its row ids do not have the form of row ids")
    return np.array(texts, dtype="S32")


def compact(
    store: Store, ledger: Ledger, session: str, check: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """Merge all parts into a few large ones, without the rows that do not count. Return the number
    of parts before and after.

    New parts are stored before old ones are deleted. A crash in between leaves duplicates, which
    readers count once. The caller holds the run's lease, and ``check`` raises when it is lost.
    """
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
    # Parts that the ledger has not read stay: their rows are not in the new parts.
    for name in ledger.parts:
        store.delete(name)
    return len(ledger.parts), len(new)


def stored_rows(
    store: Store,
    manifest: Manifest,
    say: Callable[[str], None] = log.caution,
    read: ReadPart = read_part,
) -> Ledger:
    """Read the ledger of the run with this ``manifest``, as `read_ledger`.

    Raises `UserError` also when the run holds more rows than it declares: nothing else bounds
    their number.
    """
    ledger = read_ledger(store, say, rows_schema(manifest.all_rule_sets), read)
    if len(ledger.ids) > manifest.declared:
        raise UserError(
            f"the run declares {manifest.declared} rows in {MANIFEST} but contains "
            f"{len(ledger.ids)}",
            where=store.root,
            fix=f"remove the files in {FOLDER} that do not belong to this run, or name "
            "an intact run",
        )
    return ledger
