"""Select rows of a run by keys, by verdicts, or by verdicts that differ from another run's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.registry import class_of
from ace_ray.errors import UserError
from ace_ray.storage.rows import verdict_names
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import STATUSES, ResultRow
from ace_ray.viewer.episode import COLUMNS, KEYS, EpisodeView, episode_view

# Minimum characters of a row id that identify a row.
SHORTEST_ID = 6
# Characters after which `episodes` yields the rows that it has read; a single row may have more.
GROUP_CHARS = 32 << 20


def episodes(run: StoredRun, rows: Sequence[ResultRow]) -> Iterator[EpisodeView]:
    """Read all content of ``rows``; yield an `EpisodeView` for each row that still exists.

    To bound memory, rows are read in groups of about `GROUP_CHARS` characters. The order of
    ``rows`` is kept only within a group."""
    indices = {row.row_id: index for index, row in enumerate(rows)}
    classes = {name: class_of(name, run.manifest) for name in {row.benchmark for row in rows}}
    group: list[dict[str, Any]] = []
    chars = 0

    def views() -> Iterator[EpisodeView]:
        for content in sorted(group, key=lambda content: indices[content["row_id"]]):
            yield episode_view(content, classes[rows[indices[content["row_id"]]].benchmark])

    for content in run.read_columns(rows, [*COLUMNS, *verdict_names(run.manifest.all_rule_sets)]):
        group.append(content)
        chars += sum(len(value) for value in content.values() if isinstance(value, str))
        if chars > GROUP_CHARS:
            yield from views()
            group, chars = [], 0
    yield from views()


def entry_order(row: ResultRow) -> tuple[object, ...]:
    """Return the sort key of a row. Numbers in ids are compared as numbers."""
    numbered = [
        (0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part)
        for part in row.id.replace("-", "_").split("_")
    ]
    return (*row.path[:3], numbered, row.id, row.sample, row.repeat)


def key_of(row: ResultRow) -> tuple[object, ...]:
    """Return the key that the same sample of the same entry also has in another run."""
    return (*row.path, row.sample, row.repeat)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of rows; None and "" match every row.

    ``valid`` and ``error_type`` refer to the rule set ``rules``, by default the first of each
    benchmark. ``entry``: the id of an entry, or the beginning of a row id."""

    entry: str = ""
    benchmark: str = ""
    category: str = ""
    language: str = ""
    sample: int | None = None
    status: str = ""
    rules: str = ""
    valid: bool | None = None
    error_type: str = ""

    def check(self, run: StoredRun) -> None:
        """Raise `UserError` if a value of the filter does not occur in ``run``."""
        values_by_name = {name: {getattr(row, name) for row in run.rows} for name in KEYS[:3]}
        values_by_name |= {"rules": {*run.manifest.all_rule_sets}, "status": {*STATUSES}}
        if self.error_type:
            first = run.manifest.rule_sets_of
            verdicts = [r.verdicts.get(self.rules or first(r.benchmark)[0]) for r in run.rows]
            values_by_name["error_type"] = {v.error_type for v in verdicts if v and v.error_type}
        for name, values in values_by_name.items():
            if (value := getattr(self, name)) and value not in values:
                raise UserError(
                    f"{run.uri} has no row with {value!r}",
                    where=f"--{name.replace('_', '-')}",
                    fix=f"name one of {', '.join(sorted(values))}" if values else "leave it out",
                )

    def is_match(self, row: ResultRow, rules: str) -> bool:
        """Return whether ``row`` matches. ``rules``: rule set of the verdict to compare."""
        names = (*KEYS[:3], "status")
        if any(getattr(self, name) not in ("", getattr(row, name)) for name in names):
            return False
        of_row = len(self.entry) >= SHORTEST_ID and row.row_id.startswith(self.entry)
        if self.entry not in ("", row.id) and not of_row:
            return False
        if self.sample is not None and row.sample != self.sample:
            return False
        if self.valid is None and not self.error_type:
            return True
        verdict = row.verdicts.get(rules)
        if verdict is None or (self.valid is not None and verdict.valid != self.valid):
            return False
        return self.error_type in ("", verdict.error_type)


def select(run: StoredRun, query: Filter, base: StoredRun | None = None) -> list[ResultRow]:
    """Return the rows of ``run`` that match ``query``, in `entry_order`. If ``base`` is given,
    return only rows whose verdict in the run ``base`` differs."""
    theirs = None if base is None else {key_of(row): row for row in base.rows}
    rows = []
    for row in run.rows:
        rules = query.rules or run.manifest.rule_sets_of(row.benchmark)[0]
        if query.is_match(row, rules) and (theirs is None or is_changed(row, theirs, rules)):
            rows.append(row)
    return sorted(rows, key=entry_order)


def select_known(run: StoredRun, query: Filter, base: StoredRun | None = None) -> list[ResultRow]:
    """Return rows as `select` does. Raises `UserError` if a value in ``query`` does not occur."""
    query.check(run)
    rows = select(run, query, base)
    if query.entry and not rows:
        raise UserError(
            f"{run.uri} has no such row",
            where=query.entry,
            fix="name the id of an entry or of a row, or omit the id to list all rows",
        )
    return rows


def is_changed(row: ResultRow, by_key: Mapping[tuple[object, ...], ResultRow], rules: str) -> bool:
    """Return whether the same row in ``by_key`` (`key_of` -> row) has another verdict."""
    match = by_key.get(key_of(row))
    return match is not None and is_right(match, rules) != is_right(row, rules)


def is_right(row: ResultRow, rules: str) -> bool | None:
    """Return whether the row is right under ``rules``; None if it has no verdict."""
    verdict = row.verdicts.get(rules)
    return None if verdict is None else verdict.valid


def outcome(row: ResultRow, rules: str) -> str:
    """Return ``right``, the error type of a wrong row, or the status of a row without a verdict."""
    verdict = row.verdicts.get(rules)
    if verdict is None:
        return row.status
    return "right" if verdict.valid else verdict.error_type or "wrong"
