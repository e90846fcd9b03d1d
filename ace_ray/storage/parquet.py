"""Flat Parquet files that others wrote: no more memory than the caller allows.

A file's own figures are not trusted. A few bytes may stand for gigabytes in three ways, and each is
looked at before anything is unpacked: pages (their headers say how large they are unpacked; pyarrow
allocates as much), repeated values (texts stay a dictionary until their full size is known), and
the schema (pyarrow walks it recursively). Only encodings that `pyarrow` writes by itself are read.

The footer is read here, and not by ``pyarrow.parquet.read_metadata``: pyarrow 26 ends the process
(SIGABRT) when it is asked for a column of some damaged footers; reading the rows raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MOST_FOOTER_BYTES = 4 << 20
_TAIL_BYTES = 64 << 10
_GAP_BYTES = 1 << 20
"""Ranges that are closer than this are fetched as one."""
_ENCODINGS = frozenset({0, 2, 3, 4, 8})
"""PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY: none shares bytes between values."""

_I32, _I64, _TEXT, _LIST, _STRUCT = 5, 6, 8, 9, 12
"""Kinds of values in Thrift's compact protocol."""


class Fields(dict[int, Any]):
    """A Thrift structure: field id -> value."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[int, int] = {}

    def of(self, key: int, kind: int) -> Any:
        """The value of a field, None where there is none. Raises `ValueError`: it is of another
        ``kind``, so that pyarrow would pass it over."""
        if self.kinds.get(key, kind) != kind:
            raise ValueError(_DAMAGED)
        return self.get(key)


_DAMAGED, _CUT_OFF = "its footer is damaged", "it is cut off"


@dataclass(frozen=True, slots=True)
class Limits:
    """``file_bytes``: of the file, and of what is unpacked of it; ``rows``: in it, of which a file
    has no more than bytes."""

    file_bytes: int
    rows: int


def read_flat(
    file: pa.NativeFile,
    schema: pa.Schema,
    limits: Limits,
    lacks: Sequence[str],
    row: int | None = None,
) -> pa.Table:
    """The columns of ``schema``, cast to it; the file also has those named in ``lacks``.
    With the place of a ``row`` only this one: nothing but its group of rows is fetched.

    Raises `ValueError` or `pa.ArrowException`: it is damaged, of another shape, or too large.
    """
    size = file.size()
    if size > limits.file_bytes:
        raise ValueError(f"it has {size >> 20} MiB, more than {limits.file_bytes >> 20}")
    if size < 12:
        raise ValueError(_CUT_OFF)
    # Untouched pages of it take no memory: only what is wanted is fetched.
    buffer = bytearray(size)
    _fetch(file, buffer, max(0, size - _TAIL_BYTES), size)
    length = int.from_bytes(buffer[-8:-4], "little")
    if buffer[-4:] != b"PAR1" or length + 12 > size:
        raise ValueError("it is cut off or no Parquet file")
    if length > MOST_FOOTER_BYTES:
        raise ValueError(f"its footer has more than {MOST_FOOTER_BYTES >> 20} MiB")
    _fetch(file, buffer, size - 8 - length, max(0, size - _TAIL_BYTES))
    footer, _ = _Thrift(buffer, size - 8).struct(size - 8 - length)
    names = _names(footer)
    for name in [*lacks, *schema.names]:
        if names.count(name) != 1:
            raise ValueError(
                f"it has no column {name}" if name not in names else f"it has two columns {name}"
            )
    rows = _number(footer, 3, _I64)
    # An id of a row takes more than a byte however it is packed: fewer bytes repeat their rows.
    most = min(limits.rows, size)
    if not 0 <= rows <= most:
        raise ValueError(f"it has {rows} rows, more than {most}")
    group, place = (None, 0) if row is None else _group_of(footer, row)
    chunks = list(_chunks(footer, set(schema.names), size, group))
    if sum(chunk.rows for chunk in chunks) > most * len(schema.names):
        raise ValueError(f"it has more than {most} rows")
    for start, end in _joined([(chunk.start, chunk.end) for chunk in chunks]):
        _fetch(file, buffer, start, end)
    unpacked = 0
    for chunk in chunks:
        unpacked += _unpacked(buffer, chunk)
        _check(unpacked, limits)
    texts = [
        f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)
    ]
    opened = pq.ParquetFile(pa.BufferReader(pa.py_buffer(buffer)), read_dictionary=texts)
    asked = {"columns": schema.names, "use_threads": False}
    table = opened.read(**asked) if group is None else opened.read_row_group(group, **asked)
    if table.num_rows > most:
        raise ValueError(f"it has more than {most} rows")
    _check(sum(_full_size(column) for column in table.columns), limits)
    if group is not None:
        if place >= table.num_rows:
            raise ValueError(_DAMAGED)
        table = table.slice(place, 1)
    table = table.select(schema.names).cast(schema)
    # Texts that are no UTF-8 would surface far from here.
    table.validate(full=True)
    return table


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One column of one group of rows, as the footer places it."""

    start: int
    end: int
    rows: int


def _fetch(file: pa.NativeFile, buffer: bytearray, start: int, end: int) -> None:
    if start < end:
        content = file.read_at(end - start, start)
        if len(content) != end - start:
            raise ValueError(_CUT_OFF)
        buffer[start:end] = content


def _names(footer: Fields) -> list[str]:
    root, *columns = _listed(footer, 2)
    if any(column.of(5, _I32) for column in columns) or root.of(5, _I32) != len(columns):
        raise ValueError("its columns are nested")
    if any(column.of(3, _I32) == 2 for column in columns):
        raise ValueError("its columns hold lists")
    return [_text(column.of(4, _TEXT)) for column in columns]


def _group_of(footer: Fields, row: int) -> tuple[int, int]:
    """The number of the group that holds ``row``, and the row's place in it."""
    begins = 0
    for number, group in enumerate(_listed(footer, 4)):
        rows = _number(group, 3, _I64)
        if rows < 0:
            raise ValueError(_DAMAGED)
        if begins <= row < begins + rows:
            return number, row - begins
        begins += rows
    raise ValueError(f"it has no row {row}")


def _chunks(
    footer: Fields, wanted: set[str], size: int, number: int | None = None
) -> Iterator[_Chunk]:
    """Of all groups of rows, or of one."""
    groups = _listed(footer, 4)
    for group in groups if number is None else [groups[number]]:
        for column in _listed(group, 1):
            about = column.of(3, _STRUCT)
            if 1 in column or about is None:
                raise ValueError("its columns are in another file")
            path = [_text(part) for part in about.of(3, _LIST) or []]
            if len(path) != 1 or path[0] not in wanted:
                continue
            start = min(
                at for at in (about.of(9, _I64), about.of(11, _I64)) if at is not None and at > 0
            )
            end, rows = start + _number(about, 7, _I64), _number(about, 5, _I64)
            if not 4 <= start <= end <= size or rows < 0:
                raise ValueError("its columns are not where it says")
            yield _Chunk(start, end, rows)


def _unpacked(buffer: bytearray, chunk: _Chunk) -> int:
    """The bytes of all pages of a chunk once they are unpacked, by their own headers."""
    at, total = chunk.start, 0
    reader = _Thrift(buffer, chunk.end)
    while at < chunk.end:
        page, at = reader.struct(at)
        large, packed = _number(page, 2, _I32), _number(page, 3, _I32)
        if large < 0 or packed < 0:
            raise ValueError("its pages are damaged")
        # Of a page of values, old form and new, and of a dictionary.
        for header, encoding in ((5, 2), (8, 4), (7, 2)):
            about = page.of(header, _STRUCT)
            if about is not None and _number(about, encoding, _I32) not in _ENCODINGS:
                raise ValueError("its encoding is none that ace_ray writes")
        total += large
        at += packed
    return total


def _full_size(column: pa.ChunkedArray) -> int:
    """Bytes of a column with nothing shared between its values."""
    total = 0
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0).cast(pa.int64())
            total += (pc.sum(lengths.take(chunk.indices)).as_py() or 0) + 9 * len(chunk)
        else:
            total += chunk.nbytes
    return total


def _check(count: int, limits: Limits) -> None:
    if count > limits.file_bytes:
        raise ValueError(f"unpacked it has more than {limits.file_bytes >> 20} MiB")


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] < _GAP_BYTES:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _number(fields: Fields, key: int, kind: int) -> int:
    value = fields.of(key, kind)
    if value is None:
        raise ValueError(_DAMAGED)
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise ValueError(_DAMAGED)
    return value.decode("utf-8", "replace")


def _listed(fields: Fields, key: int) -> list[Fields]:
    value: list[Any] = fields.of(key, _LIST) or []
    # A table without rows has no groups.
    if (not value and key != 4) or any(not isinstance(item, Fields) for item in value):
        raise ValueError(_DAMAGED)
    return value


class _Thrift:
    """Thrift's compact protocol, as far as Parquet uses it. Raises `ValueError` at the end of
    what it may read, and for what is nested deeper than Parquet is."""

    DEPTH = 12

    def __init__(self, data: bytearray, end: int) -> None:
        self._data, self._end = data, end

    def struct(self, at: int, depth: int = 0) -> tuple[Fields, int]:
        """(field id -> value, position behind it)"""
        if depth > self.DEPTH:
            raise ValueError(_DAMAGED)
        fields = Fields()
        key, end, data = 0, self._end, self._data
        while True:
            if at >= end:
                raise ValueError(_CUT_OFF)
            byte = data[at]
            at += 1
            if byte == 0:
                return fields, at
            if byte >> 4:
                key += byte >> 4
            else:
                key, at = self._zigzag(at)
            # Readers differ in which of two fields of one number they take, and in how they cut
            # down a number that is too large.
            if key in fields or not 0 < key < 1 << 15:
                raise ValueError(_DAMAGED)
            kind = byte & 15
            fields.kinds[key] = kind
            # Most fields are numbers, of which a summary of a million rows reads millions.
            if kind in (5, 6):
                fields[key], at = self._zigzag(at)
            else:
                fields[key], at = self._value(kind, at, depth, alone=True)

    def _value(self, kind: int, at: int, depth: int, *, alone: bool) -> tuple[Any, int]:
        if kind in (4, 5, 6):
            return self._zigzag(at)
        if kind == 8:
            length, at = self._varint(at)
            end = self._skip(at, length)
            return bytes(self._data[at:end]), end
        if kind == 12:
            return self.struct(at, depth + 1)
        if kind in (1, 2):  # a flag is its field's kind, in lists a byte
            if alone:
                return kind == 1, at
            byte, at = self._byte(at)
            return byte == 1, at
        if kind == 3:
            return self._byte(at)
        if kind == 7:
            return None, self._skip(at, 8)
        if kind in (9, 10):
            return self._list(at, depth)
        raise ValueError(_DAMAGED)

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        byte, at = self._byte(at)
        count = byte >> 4
        if count == 15:
            count, at = self._varint(at)
        if count > self._end - at or depth > self.DEPTH:
            raise ValueError(_DAMAGED)
        items = []
        for _ in range(count):
            item, at = self._value(byte & 15, at, depth + 1, alone=False)
            items.append(item)
        return items, at

    def _zigzag(self, at: int) -> tuple[int, int]:
        if at < self._end and (value := self._data[at]) < 128:
            return (value >> 1) ^ -(value & 1), at + 1
        value, at = self._varint(at)
        return (value >> 1) ^ -(value & 1), at

    def _varint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        data, end = self._data, self._end
        while at < end:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
            if shift > 63:
                raise ValueError(_DAMAGED)
        raise ValueError(_CUT_OFF)

    def _byte(self, at: int) -> tuple[int, int]:
        if at >= self._end:
            raise ValueError(_CUT_OFF)
        return self._data[at], at + 1

    def _skip(self, at: int, count: int) -> int:
        if count > self._end - at:
            raise ValueError(_CUT_OFF)
        return at + count
