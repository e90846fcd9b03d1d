"""The rows of a run as one narrow table in memory, and their texts where they are stored.

A row takes about 150 bytes here, so that a hundred thousand of them are no burden; what is long
stays in the run's parts, of which one group of rows is read for one row, and one part at a time for
a search.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ace_ray import log
from ace_ray.benchmarks.headline import titles
from ace_ray.benchmarks.results import Score
from ace_ray.bounded import json_object
from ace_ray.errors import UserError
from ace_ray.reports.table import cell
from ace_ray.run.storage.parts import (
    Ledger,
    ignored_lines,
    part_names,
    read_part,
    stored_rows,
    unreadable,
)
from ace_ray.run.storage.rows import rows_schema, verdict_names
from ace_ray.run.storage.sessions import versions_line
from ace_ray.run.storage.stored import SUMMARY, Manifest, read_manifest
from ace_ray.run.summary import SUCCESS
from ace_ray.store import Store
from ace_ray.view.episode import COLUMNS, EpisodeView, episode_view
from ace_ray.view.select import RunClasses, entry_order

KEYS = ("benchmark", "language", "category", "id", "sample", "repeat")
"""What two runs call the same row."""
_LEDGER = ("row_id", "status", "attempts", "error_class")
_NUMBERS = ("prompt_tokens", "completion_tokens", "model_calls", "duration_s")
_NARROW = (*_LEDGER, *KEYS, *_NUMBERS, "finish_reason")
_CODED = ("status", "error_class", "benchmark", "category", "language", "finish_reason")
SEARCHED = ("id", "messages", "output", "reasoning", "state", "error", "gold")
"""Columns of a full-text search, besides the reasons of the verdicts."""
_SEARCHES = 8
"""Results of searches that are kept."""

NOT_SCORED = "not scored"
RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Query:
    """What rows of a list have to be; "" asks for nothing. ``verdict``: `RIGHT`, "wrong",
    `NOT_SCORED` or "changed" (against the other run), under the rule set ``rules``."""

    benchmark: str = ""
    category: str = ""
    language: str = ""
    verdict: str = ""
    error_type: str = ""
    rules: str = ""
    text: str = ""
    sort: str = ""
    """A column, with a "-" before it from the largest; "": in the order of the entries."""

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Query:
        return cls(**{f.name: asked.get(f.name, "") for f in fields(cls)})

    def as_dict(self) -> dict[str, str]:
        """Without what asks for nothing."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name))}


SORTS = ("id", "category", "verdict", *_NUMBERS)


class RunTable:
    """A run in its folder, complete or not, read again when it has grown: then the numbers of its
    rows are others. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        """Raises `UserError`: it is no run, or a part of it cannot be read."""
        self.uri = store.root
        self._store = store
        self.manifest: Manifest = read_manifest(store)
        self.rule_sets: tuple[str, ...] = tuple(self.manifest.all_rule_sets)
        self._schema = rows_schema(self.rule_sets)
        judged = (f"{r}_{name}" for r in self.rule_sets for name in ("valid", "error_type"))
        self._narrow = [*_NARROW, *judged]
        self._parts: dict[str, pa.Table] = {}
        self._found: OrderedDict[tuple[str, tuple[str, ...]], np.ndarray] = OrderedDict()
        self._names: list[str] | None = None
        self._say_once = cache(log.caution)
        self._ledger: Ledger | None = None
        self.finished = False
        self.table: pa.Table = self._empty()
        self.refresh()

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    @cached_property
    def _classes(self) -> RunClasses:
        return RunClasses(self.uri, self.manifest)

    def refresh(self) -> bool:
        """Read what is new; whether anything is. Raises `UserError`: the store is away."""
        # A run that is complete is still merged, now and then.
        names = part_names(self._store)
        self.finished = self.finished or self._store.get(SUCCESS) is not None
        if names == self._names:
            return False
        ledger = stored_rows(self._store, self.manifest, self._say_once, self._read)
        for gone in self._parts.keys() - set(names):
            del self._parts[gone]
        self.table = self._joined(ledger)
        self._ledger, self._names = ledger, names
        return True

    def _read(
        self, store: Store, name: str, columns: Sequence[str], schema: pa.Schema
    ) -> pa.Table | str:
        """As `read_part`, of what lists show; a part is read once."""
        if name not in self._parts:
            table = read_part(store, name, self._narrow, schema)
            if isinstance(table, str):
                return table
            self._parts[name] = table
        return self._parts[name].select(columns)

    def _joined(self, ledger: Ledger) -> pa.Table:
        """The rows that count, in the order of their entries, each with its place in the store."""
        tables = []
        for number, (name, positions) in enumerate(ledger.kept.items()):
            table = self._parts[name].take(positions)
            table = table.append_column("part", pa.array([number] * len(positions), pa.int32()))
            tables.append(table.append_column("place", pa.array(positions, pa.int32())))
        if not tables:
            return self._empty()
        joined = pa.concat_tables(tables).combine_chunks()
        keys = zip(*(joined.column(name).to_pylist() for name in KEYS), strict=True)
        places = [entry_order(*key) for key in keys]
        order = sorted(range(len(places)), key=places.__getitem__)
        joined = joined.take(pa.array(order))
        for name in joined.column_names:
            coded = name in _CODED or name.endswith("_error_type")
            if coded:
                place = joined.column_names.index(name)
                joined = joined.set_column(place, name, joined.column(name).dictionary_encode())
        return joined

    def _empty(self) -> pa.Table:
        columns = [self._schema.field(name) for name in self._narrow]
        return pa.schema([*columns, ("part", pa.int32()), ("place", pa.int32())]).empty_table()

    # Lists.

    def rules_of(self, asked: str) -> str:
        return asked if asked in self.rule_sets else self.rule_sets[0]

    def outcome(self, rules: str) -> pa.Array:
        """Of each row under ``rules``: `RIGHT`, its error type, or its status."""
        table = self.table
        valid = table.column(f"{rules}_valid")
        wrong = pc.coalesce(
            pc.if_else(
                pc.equal(table.column(f"{rules}_error_type").cast(pa.string()), ""),
                pa.scalar("wrong"),
                table.column(f"{rules}_error_type").cast(pa.string()),
            ),
            pa.scalar("wrong"),
        )
        judged = pc.if_else(valid, pa.scalar(RIGHT), wrong)
        return pc.if_else(pc.is_null(valid), table.column("status").cast(pa.string()), judged)

    def select(self, query: Query, other: RunTable | None = None) -> np.ndarray:
        """The numbers of the rows of `table` that ``query`` takes, in its order."""
        table, rules = self.table, self.rules_of(query.rules)
        taken = np.ones(table.num_rows, bool)
        for name in ("benchmark", "category", "language"):
            if value := getattr(query, name):
                taken &= _equal(table.column(name), value)
        valid = table.column(f"{rules}_valid")
        if query.verdict in (RIGHT, "wrong"):
            taken &= _bools(pc.equal(valid, query.verdict == RIGHT))
        elif query.verdict == NOT_SCORED:
            taken &= _bools(pc.is_null(valid))
        elif query.verdict == "changed":
            taken &= self._changed(rules, other)
        if query.error_type:
            taken &= _equal(table.column(f"{rules}_error_type"), query.error_type)
            taken &= ~_bools(valid)
        if query.text:
            taken &= self._holding(query.text, taken)
        rows: np.ndarray = np.flatnonzero(taken)
        rows = rows[self._order(rows, query, rules)]
        return rows

    def _order(self, rows: np.ndarray, query: Query, rules: str) -> np.ndarray:
        name = query.sort.removeprefix("-")
        if name not in SORTS:
            return np.arange(len(rows))
        column = self.outcome(rules) if name == "verdict" else self.table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        order = "descending" if query.sort.startswith("-") else "ascending"
        # Rows of equal values stay in the order of their entries.
        keyed = pa.table({"value": column.take(pa.array(rows)), "at": np.arange(len(rows))})
        keys = [("value", order), ("at", "ascending")]
        return np.asarray(pc.sort_indices(keyed, sort_keys=keys))

    def _changed(self, rules: str, other: RunTable | None) -> np.ndarray:
        changed = np.zeros(self.table.num_rows, bool)
        if other is None or rules not in other.rule_sets:
            return changed
        valid = self.table.column(f"{rules}_valid").to_pylist()
        theirs = other.table.column(f"{rules}_valid").to_pylist()
        for i, key in enumerate(self.keys()):
            j = other.by_key.get(key)
            changed[i] = j is not None and theirs[j] != valid[i]
        return changed

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(self.table.column(name).to_pylist() for name in KEYS), strict=True)

    @property
    def by_key(self) -> dict[tuple[Any, ...], int]:
        """Key -> number of the row."""
        cached = getattr(self, "_by_key", None)
        if cached is None or cached[0] is not self.table:
            cached = self._by_key = (self.table, {key: i for i, key in enumerate(self.keys())})
        return cached[1]

    def counts(self, name: str) -> list[tuple[str, int]]:
        """The values of a column with their rows, most first."""
        found = self.table.column(name).cast(pa.string()).value_counts().to_pylist()
        pairs = [(one["values"], one["counts"]) for one in found if one["values"]]
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    def lines(self, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        """Rows as values, without their texts."""
        lines: list[dict[str, Any]] = self.table.take(pa.array(rows, pa.int64())).to_pylist()
        return lines

    def key_of(self, number: int) -> tuple[Any, ...]:
        """What other runs call the same row."""
        (line,) = self.lines([number])
        return tuple(line[name] for name in KEYS)

    def facts(self) -> dict[str, Any]:
        """What a list of runs shows of this one."""
        manifest = self.manifest
        content = self._store.get(SUMMARY) if self.finished else None
        return {
            "model": manifest.model.source,
            "rows": self.table.num_rows,
            "declared": manifest.declared,
            "finished": self.finished,
            "headlines": [] if content is None else headlines(content),
            "notes": list(self._notes()),
        }

    def _notes(self) -> Iterator[str]:
        """Say what a reader of the headlines has to know."""
        limits = (self.manifest.restriction(name).words for name in self._classes.names)
        for words in dict.fromkeys(filter(None, limits)):
            yield f"limited to {words}, a sample only"
        if mixed := versions_line(self.manifest.mixed_versions):
            yield mixed
        assert self._ledger is not None  # read when it was made
        yield from ignored_lines(self._ledger)

    # Texts.

    def number_of(self, row_id: str) -> int | None:
        """The number of a row, by its id."""
        found = np.flatnonzero(_equal(self.table.column("row_id"), row_id))
        return int(found[0]) if len(found) else None

    def episode(self, number: int) -> EpisodeView:
        """A row whole. Raises `UserError`: it cannot be read."""
        (row,) = self.table.slice(number, 1).to_pylist()
        name = self._part_name(row["part"])
        columns = [*COLUMNS, *verdict_names(self.rule_sets)]
        found = read_part(self._store, name, columns, self._schema, row["place"])
        if isinstance(found, str):
            raise unreadable(self._store, name, found)
        (whole,) = found.to_pylist()
        return episode_view(whole, self._classes.of(row["benchmark"]))

    def _part_name(self, number: int) -> str:
        assert self._ledger is not None
        return list(self._ledger.kept)[number]

    def _holding(self, text: str, among: np.ndarray) -> np.ndarray:
        """Which rows hold ``text``, in any case of its letters. Parts of which no row is ``among``
        those that are wanted are not read."""
        table = self.table
        holds = np.zeros(table.num_rows, bool)
        part, place = (np.asarray(table.column(name)) for name in ("part", "place"))
        for number in np.unique(part[among]):
            rows = np.flatnonzero(part == number)
            found = self._search(self._part_name(int(number)), text)
            holds[rows] = found[place[rows]]
        return holds

    def _search(self, name: str, text: str) -> np.ndarray:
        """Which rows of a part hold ``text``."""
        # In JSON columns quotes and line breaks are escaped.
        forms = tuple(dict.fromkeys([text, json.dumps(text, ensure_ascii=False)[1:-1]]))
        key = (name, forms)
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key]
        reasons = [f"{rules}_error" for rules in self.rule_sets]
        found = read_part(self._store, name, [*SEARCHED, *reasons], self._schema)
        if isinstance(found, str):
            raise unreadable(self._store, name, found)
        holds = np.zeros(found.num_rows, bool)
        for column in found.columns:
            for form in forms:
                holds |= _bools(pc.match_substring(column, form, ignore_case=True))
        self._found[key] = holds
        while len(self._found) > _SEARCHES * max(1, len(self._parts)):
            self._found.popitem(last=False)
        return holds


def headlines(content: bytes) -> list[str]:
    """The first score of each benchmark and rule set in a summary; none where it is damaged."""
    try:
        benchmarks = json_object(content, SUMMARY)["benchmarks"]
        return [
            f"{name} {rules}: {title} {cell(scores[0].estimate, intervals=True, n=True)}"
            for name, part in benchmarks.items()
            for rules, found in part.get("scores", {}).items()
            if (scores := [Score.of_json(one) for one in found])
            for title in titles(scores)[:1]
        ]
    except (UserError, KeyError, TypeError, ValueError, AttributeError):
        return []


def _equal(column: pa.ChunkedArray, value: str) -> np.ndarray:
    return _bools(pc.equal(column.cast(pa.string()), value))


def _bools(column: Any) -> np.ndarray:
    """Null is False."""
    return np.asarray(pc.fill_null(column, fill_value=False))
