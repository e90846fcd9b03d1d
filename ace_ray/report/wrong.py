"""A bounded sample of the answers that are wrong under some rule set, with what was asked.

Which rows it holds depends on the rows alone: in every run the same entries are looked at first,
and in a category every error type comes to its turn before one comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ace_ray.records import RULE_SETS, digest
from ace_ray.report.runs import Run
from ace_ray.run.storage.rows import ResultRow, messages_of, rows_of

MOST = 400
"""Wrong answers in one report, over all runs: what a browser opens at once, also on a phone."""

_COLUMNS = ["row_id", "messages", "output", "reasoning", "state"] + [
    f"{rules}_error" for rules in RULE_SETS
]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one rule set says: ``error_type`` is "" when valid, ``reason`` says why."""

    rules: str
    valid: bool
    error_type: str
    reason: str


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """One row. ``messages`` are those that led to ``output``, of an episode all of it; ``state`` is
    the JSON of what an episode left."""

    run: str
    benchmark: str
    language: str
    category: str
    id: str
    sample: int
    finish_reason: str
    messages: Sequence[Mapping[str, Any]]
    output: str
    reasoning: str
    state: str | None
    judgements: Sequence[Judgement]


@dataclass(frozen=True, slots=True)
class Taken:
    """Of the ``wrong`` rows of a category of a run, ``shown`` are in the sample."""

    run: str
    benchmark: str
    language: str
    category: str
    wrong: int
    shown: int


@dataclass(frozen=True, slots=True)
class WrongAnswers:
    """The sample, and what it is a sample of. ``by_run`` has the chosen rows' ids."""

    by_run: Sequence[tuple[Run, Sequence[ResultRow]]]
    taken: Sequence[Taken]

    def __iter__(self) -> Iterator[WrongAnswer]:
        """The answers, run by run, in the order in which they were chosen; read from the rows."""
        for run, rows in self.by_run:
            yield from _read(run, rows)


def is_wrong(row: ResultRow) -> bool:
    return any(not verdict.valid for verdict in row.verdicts.values())


def choose(runs: Sequence[Run], per_category: int, most: int = MOST) -> WrongAnswers:
    """At most ``per_category`` wrong rows of a run's category and language, ``most`` in all.

    Where there would be more, every category of every run gives its first one before any gives its
    second.
    """
    cells: dict[tuple[str, str, str, str], list[ResultRow]] = {}
    for run in runs:
        for name in run.benchmarks:
            for row in filter(is_wrong, run.rows_of(name)):
                cells.setdefault((run.label, name, row.language, row.category), []).append(row)
    cells = {key: cells[key] for run in runs for key in sorted(cells) if key[0] == run.label}
    ranked = {key: _in_turns(rows)[:per_category] for key, rows in cells.items()}
    turns = [(place, key, row) for key, rows in ranked.items() for place, row in enumerate(rows)]
    kept = sorted(turns, key=lambda turn: turn[0])[:most]  # stable: runs stay in order
    shown: dict[tuple[str, str, str, str], list[ResultRow]] = {}
    for _, key, row in kept:
        shown.setdefault(key, []).append(row)
    return WrongAnswers(
        [
            (run, [row for key in cells if key[0] == run.label for row in shown.get(key, [])])
            for run in runs
        ],
        [Taken(*key, len(rows), len(shown.get(key, []))) for key, rows in cells.items()],
    )


def _in_turns(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """``rows`` in an order that is the same for every run, kinds of error taking turns."""
    kinds: dict[tuple[str, ...], int] = {}
    ordered = []
    for row in sorted(rows, key=lambda row: digest(row.language, row.category, row.id, row.sample)):
        kind = tuple(row.verdicts[rules].error_type for rules in sorted(row.verdicts))
        kinds[kind] = kinds.get(kind, 0) + 1
        ordered.append((kinds[kind], row))
    return [row for _, row in sorted(ordered, key=lambda turn: turn[0])]


def _read(run: Run, rows: Sequence[ResultRow]) -> Iterator[WrongAnswer]:
    """The stored texts of ``rows``. One that has gone meanwhile is left out."""
    known = np.sort(np.array([row.row_id for row in rows], dtype="S32"))
    stored: dict[str, dict[str, Any]] = {}
    for table in run.ledger.tables(_COLUMNS, known) if len(known) else ():
        stored |= {row["row_id"]: row for row in rows_of(table)}
    for row in rows:
        found = stored.get(row.row_id)
        if found is None:
            continue
        messages = messages_of(found)
        # Of a single call the last message is the answer itself.
        alone = found["state"] is None and messages and messages[-1].get("role") == "assistant"
        yield WrongAnswer(
            run=run.label,
            benchmark=row.benchmark,
            language=row.language,
            category=row.category,
            id=row.id,
            sample=row.sample,
            finish_reason=row.finish_reason,
            messages=messages[:-1] if alone else messages,
            output=found["output"],
            reasoning=found["reasoning"],
            state=found["state"],
            judgements=[
                Judgement(rules, verdict.valid, verdict.error_type, found[f"{rules}_error"])
                for rules, verdict in row.verdicts.items()
            ],
        )
