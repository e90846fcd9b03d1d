"""The entry table: entries with the prompts that open their episodes. The processes of a node share
it, and each parses an entry once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ace_ray.types import Entry

_NAMES = ("benchmark", "category", "language", "id", "group")
_JSON = ("data", "gold", "prompt")
SCHEMA = pa.schema(
    [(name, pa.string()) for name in _NAMES]
    + [(name, pa.large_string()) for name in (*_JSON, "opening")]
)
PARSED = 256
"""Parsed entries that a process keeps. Samples of an entry come one after another."""

Opening = tuple[list[dict[str, Any]], list[dict[str, Any]] | None]
"""Messages and tools that open an episode."""


def ordered_json(value: Any) -> str:
    """Return JSON that keeps key order: prompts print entries in the order they were published."""
    return json.dumps(value, ensure_ascii=True)


def entry_table(entries: Sequence[Entry], openings: Sequence[str]) -> pa.Table:
    """Return the entry table. ``openings``: `Opening` of each entry, as JSON."""
    columns = {name: [getattr(entry, name) for entry in entries] for name in (*_NAMES, *_JSON)}
    texts = {name: [ordered_json(value) for value in columns[name]] for name in _JSON}
    return pa.table({**columns, **texts, "opening": list(openings)}, schema=SCHEMA)


class Entries:
    """The entries of an `entry_table`."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._entry = lru_cache(PARSED)(self._parsed)
        self._opening = lru_cache(PARSED)(lambda index: json.loads(self._text("opening", index)))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> Entry:
        return self._entry(index)

    def opening(self, index: int) -> Opening:
        messages, tools = self._opening(index)
        return messages, tools

    def _parsed(self, index: int) -> Entry:
        names = {name: self._text(name, index) for name in _NAMES}
        return Entry(**names, **{name: json.loads(self._text(name, index)) for name in _JSON})

    def _text(self, name: str, index: int) -> Any:
        return self._table.column(name)[index].as_py()
