"""A bounded sample of the answers that are wrong under some rule set, with what was asked and the
gold answers.

Which rows it holds depends on the rows alone: in every run the same entries are looked at first,
and in a category every error type comes to its turn before one comes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ace_ray.benchmarks.registry import is_local
from ace_ray.config import RunConfig, validated
from ace_ray.errors import UserError
from ace_ray.records import canonical_json, digest
from ace_ray.reports.address import address_of
from ace_ray.reports.runs import Run
from ace_ray.run.planning.preflight import make_benchmarks
from ace_ray.run.score import entries_of, is_same_data
from ace_ray.run.storage.rows import ResultRow, messages_of
from ace_ray.run.storage.stored import MANIFEST

MOST = 400
"""Wrong answers in one report, over all runs: what a browser opens at once, also on a phone."""

_COLUMNS = ["messages", "output", "reasoning", "state"]
_Item = TypeVar("_Item")


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
    address: str
    """Where ``ace-ray view`` shows it."""
    row_id: str
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
class CategorySample:
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
    categories: Sequence[CategorySample]

    def __iter__(self) -> Iterator[WrongAnswer]:
        """The answers, run by run, in the order in which they were chosen; read from the rows."""
        return self.each(lambda answer: answer)

    def each(self, make: Callable[[WrongAnswer], _Item]) -> Iterator[_Item]:
        """Yield what ``make`` makes of each answer. One answer is held at a time: the texts of
        all of them may be gigabytes."""
        for run, rows in self.by_run:
            yield from _stored_answers(run, rows, make)


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
    ranked = {key: _ordered(rows)[:per_category] for key, rows in cells.items()}
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
        [CategorySample(*key, len(rows), len(shown.get(key, []))) for key, rows in cells.items()],
    )


def _ordered(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """``rows`` in an order that is the same for every run, kinds of error taking turns."""

    def error_types(row: ResultRow) -> tuple[str, ...]:
        return tuple(row.verdicts[rules].error_type for rules in sorted(row.verdicts))

    def place(row: ResultRow) -> str:
        return digest(row.language, row.category, row.id, row.sample)

    return in_turns(sorted(rows, key=place), error_types)


def in_turns(items: Iterable[_Item], kind: Callable[[_Item], Hashable]) -> list[_Item]:
    """The first item of each kind, then the second of each, and so on."""
    seen: Counter[Hashable] = Counter()
    turns = []
    for item in items:
        turns.append((seen[kind(item)], item))
        seen[kind(item)] += 1
    return [item for _, item in sorted(turns, key=lambda turn: turn[0])]


def _stored_answers(
    run: Run, rows: Sequence[ResultRow], make: Callable[[WrongAnswer], _Item]
) -> Iterator[_Item]:
    """Yield the answers of ``rows``, without those that have gone meanwhile."""
    columns = _COLUMNS + [f"{rules}_error" for rules in run.manifest.all_rule_sets]
    by_id = {row.row_id: row for row in rows}
    made = {
        texts["row_id"]: make(_answer(run, by_id[texts["row_id"]], texts))
        for texts in run.stored(rows, columns)
    }
    return (made[row.row_id] for row in rows if row.row_id in made)


def _answer(run: Run, row: ResultRow, texts: Mapping[str, Any]) -> WrongAnswer:
    messages = messages_of(texts)
    # Of a single call the last message is the answer itself.
    alone = texts["state"] is None and messages and messages[-1].get("role") == "assistant"
    return WrongAnswer(
        run=run.label,
        address=address_of(run.manifest.run_id, row.row_id),
        row_id=row.row_id,
        benchmark=row.benchmark,
        language=row.language,
        category=row.category,
        id=row.id,
        sample=row.sample,
        finish_reason=row.finish_reason,
        messages=messages[:-1] if alone else messages,
        output=texts["output"],
        reasoning=texts["reasoning"],
        state=texts["state"],
        judgements=[
            Judgement(rules, verdict.valid, verdict.error_type, texts[f"{rules}_error"])
            for rules, verdict in row.verdicts.items()
        ],
    )


EntryKey = tuple[str, str, str, str]
"""Benchmark, language, category, id."""


class GoldAnswers:
    """Looked up in the data that a run's manifest names, which is read once for runs that share it.

    Data that is not here, or not what the run was made with, is no failure of a report: `missing`
    says so.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._answers: dict[str, Mapping[EntryKey, Any]] = {}
        self.missing: dict[str, str] = {}
        """Label of a run -> why its gold answers are not at hand."""
        read: dict[str, Mapping[EntryKey, Any] | UserError] = {}
        for run in runs:
            same = canonical_json(
                [run.manifest.tree["config"].get("benchmarks"), run.manifest.entries]
            )
            if same not in read:
                read[same] = _gold_of(run)
            answers = read[same]
            if isinstance(answers, UserError):
                self.missing[run.label] = str(answers)
            else:
                self._answers[run.label] = answers

    def of(self, run: str, key: EntryKey) -> tuple[Any] | None:
        """The gold answer of an entry in a 1-tuple, None where it is not at hand."""
        answers = self._answers.get(run, {})
        return (answers[key],) if key in answers else None


def _gold_of(run: Run) -> Mapping[EntryKey, Any] | UserError:
    where = f"{run.uri}/{MANIFEST}"
    gold: dict[EntryKey, Any] = {}
    try:
        config = validated(RunConfig, run.manifest.tree["config"], where=where)
        for section in config.benchmarks:
            if is_local(section.name):
                return UserError(f"{section.name} is code that only the run names", where=where)
        for benchmark in make_benchmarks(config):
            entries = entries_of(benchmark, run.manifest, run.rows)
            if not is_same_data(benchmark.name, entries, run.manifest):
                return UserError(
                    f"the data of {benchmark.name} here is not what the run was made with",
                    where=where,
                )
            gold |= {(benchmark.name, e.language, e.category, e.id): e.gold for e in entries}
    except UserError as error:
        return error
    return gold
