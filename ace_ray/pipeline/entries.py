"""Choose the entries of a run by `ids`, then by `limit`, and share them as a table.

The entry table contains the entries and the prompts that open their episodes. The processes of a
node share the table. Each process keeps recently parsed entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from ace_ray.benchmarks.base import Benchmark
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.types import Entry
from ace_ray.util.grouping import grouped

_NAMES = ("benchmark", "category", "language", "id", "group")
_JSON = ("data", "gold", "prompt")
SCHEMA = pa.schema(
    [(name, pa.string()) for name in _NAMES]
    + [(name, pa.large_string()) for name in (*_JSON, "opening")]
)
# Number of parsed entries that a process keeps. Samples of one entry come one after another.
PARSED = 256

# (messages, tools or None) with which an episode starts.
Opening = tuple[list[dict[str, Any]], list[dict[str, Any]] | None]


def opening_json(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    """Return an `Opening` as JSON, tools first, as most chat templates print them."""
    return json.dumps([tools, messages])


def read_opening(text: str) -> Opening:
    """Return the `Opening` in the JSON of `opening_json`."""
    tools, messages = json.loads(text)
    return messages, tools


def entry_table(entries: Sequence[Entry], openings: Sequence[str]) -> pa.Table:
    """Return the entry table. ``openings`` has the `opening_json` of each entry. JSON values keep
    the order of their keys, since prompts print the keys in this order."""
    columns = {name: [getattr(entry, name) for entry in entries] for name in (*_NAMES, *_JSON)}
    texts = {name: [json.dumps(value) for value in columns[name]] for name in _JSON}
    return pa.table({**columns, **texts, "opening": list(openings)}, schema=SCHEMA)


class Entries:
    """The entries of an `entry_table`, by index."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._entry = lru_cache(PARSED)(self._parse)
        self.opening = lru_cache(PARSED)(lambda index: read_opening(self._text("opening", index)))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> Entry:
        return self._entry(index)

    def _parse(self, index: int) -> Entry:
        names = {name: self._text(name, index) for name in _NAMES}
        return Entry(**names, **{name: json.loads(self._text(name, index)) for name in _JSON})

    def _text(self, name: str, index: int) -> Any:
        return self._table.column(name)[index].as_py()


# Maximum number of ids that a message names. The message gives the number of further ids.
_QUOTED_IDS = 3


def select(
    config: RunConfig, benchmarks: Sequence[Benchmark]
) -> tuple[list[Entry], dict[str, dict[str, Any]]]:
    """Return the entries to evaluate, and the restrictions of single benchmarks.

    The second value maps a restricted benchmark to ``{"ids": [...], "limit": n}``, or to a dict
    with one of these keys. A benchmark's own ``ids`` and ``limit`` replace the run's. A benchmark
    has no entries if the run's ids name only entries of other benchmarks. Raises `UserError` if an
    id names no entry, or an entry that the benchmark's options exclude."""
    chosen: dict[str, list[Entry]] = {}
    restricted: dict[str, dict[str, Any]] = {}
    shared: list[Entry] = []
    unknown = list(config.ids or ())
    sharing = []
    for benchmark, section in zip(benchmarks, config.benchmarks, strict=True):
        entries, own_ids = benchmark.dataset(), section.ids
        if ids := own_ids or config.ids:
            entries, lacking = _entries_of_ids(entries, ids)
            if own_ids and lacking:
                missing = [name for name in ids if name in lacking]
                raise _no_entry(missing, [benchmark], f"benchmarks.{benchmark.name}.ids")
            if not own_ids:
                sharing.append(benchmark)
                unknown = [name for name in unknown if name in lacking]
            if len(entries) < len(benchmark.dataset()):  # ids of all entries restrict nothing
                restricted[benchmark.name] = {"ids": sorted({*ids} - lacking)}
        if section.limit is not None:
            entries = spread(entries, section.limit)
            restricted.setdefault(benchmark.name, {})["limit"] = section.limit
        elif config.limit is not None:
            shared += entries
        chosen[benchmark.name] = entries
    if unknown:
        raise _no_entry(unknown, sharing, "ids")
    if config.limit is not None and shared:
        for name in {entry.benchmark for entry in shared}:
            chosen[name] = []
        for entry in spread(shared, config.limit):
            chosen[entry.benchmark].append(entry)
    return [entry for entries in chosen.values() for entry in entries], restricted


def spread(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """Return at most ``limit`` entries, chosen in turns from every category and language.

    The chosen entries keep their order. A dialogue is chosen with all its entries or not at all. If
    this leaves no entry, return the first ``limit`` entries."""
    keys = ((e.benchmark, e.category, e.language, e.group) for e in entries)
    dialogues = grouped((key, index) for index, key in enumerate(keys))
    lanes = grouped((key[:3], indices) for key, indices in dialogues.items())
    chosen: list[int] = []
    for turn in zip_longest(*lanes.values(), fillvalue=[]):
        for indices in turn:
            if len(chosen) + len(indices) <= limit:
                chosen += indices
    return [entries[index] for index in sorted(chosen)] or list(entries[:limit])


def _entries_of_ids(entries: Iterable[Entry], ids: Sequence[str]) -> tuple[list[Entry], set[str]]:
    """Return the ``entries`` that ``ids`` name, in order, and the ids that name no entry."""
    all_ids, chosen, lacking = {*ids}, [], {*ids}
    for entry in entries:
        path = f"{entry.category}/{entry.id}"
        if names := all_ids & {entry.id, path, f"{entry.language}/{path}"}:
            chosen.append(entry)
            lacking -= names
    return chosen, lacking


def _no_entry(ids: Sequence[str], benchmarks: Sequence[Benchmark], location: str) -> UserError:
    """Return the error for ``ids`` that name no entry; ``location`` is the config key with the ids.
    ``benchmarks`` are the benchmarks that were searched."""
    if not benchmarks:
        problem = "every benchmark has its own ids, so these select nothing"
        return UserError(problem, where=location, fix="remove the run's ids or a benchmark's ids")
    quoted = ", ".join(f"{name!r:.80}" for name in ids[:_QUOTED_IDS])
    more = f" and {len(ids) - _QUOTED_IDS} more" if len(ids) > _QUOTED_IDS else ""
    names = ", ".join(benchmark.name for benchmark in benchmarks)
    example = next((entry.id for b in benchmarks for entry in b.dataset()), "")
    return UserError(
        f"{names} {'have' if len(benchmarks) > 1 else 'has'} no entry {quoted}{more}",
        where=location,
        fix=f"write an id such as {example!r}, of an entry that the benchmark's options include",
    )
