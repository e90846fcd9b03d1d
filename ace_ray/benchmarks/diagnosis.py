"""What keeps many rows of a run from being judged for what the model can do.

Three things are counted over the rows of one benchmark: answers that hold calls which the run did
not read, answers that were cut (``finish_reason`` is ``length``), and reasoning that never ended.
Where one of them holds for at least `MIN_ROWS` rows and `MIN_SHARE` of the scored ones, or
`MIN_CATEGORY_SHARE` of those of a category, it is a `Finding`. Unread calls are one for each reader
that finds so many, and one for all others that find so many together. Accuracies are plain means
over rows, not the aggregates of the benchmark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.second_reading import SecondReading
from ace_ray.calls.known import READERS

MIN_ROWS = 5
MIN_SHARE = 0.05
MIN_CATEGORY_SHARE = 0.1
"""Larger, since there are many categories: one of them often has 5 %."""
_NAMED_CATEGORIES = 3

Kind = Literal["unread_calls", "cut_by_length", "reasoning_never_ended"]


class DiagnosedRow(ScoredRow, Protocol):
    """A row as a diagnosis sees it."""

    @property
    def repeat(self) -> int: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def reasoning_truncated(self) -> bool: ...
    @property
    def second_reading(self) -> SecondReading | None: ...


_Row = TypeVar("_Row", bound=DiagnosedRow)


@dataclass(frozen=True, slots=True)
class Finding:
    """``rows`` of ``of`` scored rows. By rule set, ``accuracy`` is that of all scored rows as it
    is; ``otherwise`` is that of all rows with the second reading, or of the other rows, those that
    were not cut or whose reasoning ended; None where there are none.

    ``categories`` names those that hold many of the rows, where the benchmark does not, each with
    its rows and its scored rows.

    Of unread calls: ``reader``, the number of ``answers``, and ``not_judged``, the rows whose
    second reading has no verdict and that count in ``otherwise`` as they are. Of several readers
    together, ``reader`` and ``where`` hold all names, with commas.
    """

    kind: Kind
    rows: int
    of: int
    accuracy: Mapping[str, float]
    otherwise: Mapping[str, float | None]
    reader: str = ""
    where: str = ""
    answers: int = 0
    not_judged: int = 0
    categories: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The finding in a few sentences."""
        return f"{_WHAT[self.kind](self)}{_numbers(self)}"

    def as_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "kind": self.kind,
            "rows": self.rows,
            "of": self.of,
            "accuracy": dict(self.accuracy),
            "otherwise": dict(self.otherwise),
        }
        if self.categories:
            values["categories"] = {
                name: {"rows": rows, "of": of} for name, (rows, of) in self.categories.items()
            }
        if self.kind == "unread_calls":
            values |= {
                "reader": self.reader,
                "where": self.where,
                "answers": self.answers,
                "not_judged": self.not_judged,
            }
        return {**values, "text": self.text}


def _unread(finding: Finding) -> str:
    several = ", " in finding.reader
    text = (
        f"{_rows(finding)} hold calls that were not read and that the "
        f"{'readers' if several else 'reader'} {finding.reader} {'find' if several else 'finds'}"
    )
    if "reasoning" in finding.where:
        some = ", some" if "answer" in finding.where else ""
        text += f"{some} in reasoning that never ended"
    if finding.answers > finding.rows:
        text += f", in {finding.answers} answers"
    if finding.not_judged == finding.rows:
        return f"{text}; what they would have led to cannot be said"
    if finding.not_judged:
        text += f"; of {finding.not_judged} of them it cannot be said what they would have led to"
    return text


def _cut(finding: Finding) -> str:
    return f"{_rows(finding)} end in an answer cut by max_tokens or the context"


def _reasoning(finding: Finding) -> str:
    return f"{_rows(finding)} have reasoning that never ended, and no answer"


def _rows(finding: Finding) -> str:
    text = f"{finding.rows} of {finding.of} rows"
    if not finding.categories:
        return text
    named = [
        f"{rows} of {of} in {name}"
        for name, (rows, of) in list(finding.categories.items())[:_NAMED_CATEGORIES]
    ]
    if more := len(finding.categories) - len(named):
        named.append(f"many in {more} more {'category' if more == 1 else 'categories'}")
    return f"{text} ({', '.join(named)})"


_WHAT = {"unread_calls": _unread, "cut_by_length": _cut, "reasoning_never_ended": _reasoning}


def _numbers(finding: Finding) -> str:
    if finding.kind == "unread_calls":
        if finding.not_judged == finding.rows:
            return ""
        shares = ", ".join(
            f"{rules} {100 * share:.1f} % -> {_percent(finding.otherwise[rules])}"
            for rules, share in finding.accuracy.items()
        )
        return (
            f". With it the accuracy over all rows would be: {shares}. That is a second reading of "
            "the same answers, and no score"
        )
    shares = ", ".join(
        f"{rules} {_percent(finding.otherwise[rules])} (of all rows {100 * share:.1f} %)"
        for rules, share in finding.accuracy.items()
    )
    return f". Accuracy of the other rows: {shares}"


def _percent(share: float | None) -> str:
    return "N/A" if share is None else f"{100 * share:.1f} %"


@dataclass
class _Tally:
    rows: int = 0
    answers: int = 0
    not_judged: int = 0
    change: dict[str, float] = field(default_factory=dict)
    """By rule set: what these rows add to the sum of all scores (second readings), or their own
    scores (rows that are left out)."""
    categories: Counter[str] = field(default_factory=Counter)

    def count(self, category: str) -> None:
        self.rows += 1
        self.categories[category] += 1

    def add(self, rules: str, score: float) -> None:
        self.change[rules] = self.change.get(rules, 0.0) + score

    def join(self, other: _Tally) -> None:
        self.rows += other.rows
        self.answers += other.answers
        self.not_judged += other.not_judged
        self.categories += other.categories
        for rules, score in other.change.items():
            self.add(rules, score)


class Diagnosis:
    """Counts rows of one benchmark; none is held."""

    def __init__(self) -> None:
        self._scored = 0
        self._categories: Counter[str] = Counter()
        self._sums: dict[str, float] = {}
        self._unread: dict[tuple[str, str], _Tally] = {}
        self._cut, self._reasoning = _Tally(), _Tally()

    def through(self, rows: Iterable[_Row]) -> Iterator[_Row]:
        """``rows``, each counted as it passes."""
        for row in rows:
            self.add(row)
            yield row

    def add(self, row: DiagnosedRow) -> None:
        if row.status != "scored" or row.repeat:
            return
        self._scored += 1
        self._categories[row.category] += 1
        scores = {rules: verdict.score for rules, verdict in row.verdicts.items()}
        for rules, score in scores.items():
            self._sums[rules] = self._sums.get(rules, 0.0) + score
        for tally, holds in (
            (self._cut, row.finish_reason == "length"),
            (self._reasoning, row.reasoning_truncated),
        ):
            if holds:
                tally.count(row.category)
                for rules, score in scores.items():
                    tally.add(rules, score)
        if (second := row.second_reading) is not None:
            tally = self._unread.setdefault((second.reader, second.where), _Tally())
            tally.count(row.category)
            tally.answers += second.answers
            tally.not_judged += not second.scores
            for rules, score in second.scores.items():
                if rules in scores:
                    tally.add(rules, score - scores[rules])

    def findings(self) -> list[Finding]:
        """What is worth saying, unread calls first."""
        accuracy = {rules: total / self._scored for rules, total in self._sums.items()}
        unread, others = [], _Tally()
        rest: list[tuple[str, str]] = []
        for key, tally in sorted(self._unread.items(), key=_most_first):
            if self._many(tally):
                unread.append((*key, tally))
            else:
                rest.append(key)
                others.join(tally)
        if rest and self._many(others):
            readers, places = (", ".join(dict.fromkeys(names)) for names in zip(*rest, strict=True))
            unread.append((readers, places, others))
        findings = [
            Finding(
                "unread_calls",
                tally.rows,
                self._scored,
                accuracy,
                {
                    rules: (total + tally.change.get(rules, 0.0)) / self._scored
                    for rules, total in self._sums.items()
                },
                reader,
                where,
                tally.answers,
                tally.not_judged,
                self._of_categories(tally),
            )
            for reader, where, tally in unread
        ]
        kinds: tuple[tuple[Kind, _Tally], ...] = (
            ("cut_by_length", self._cut),
            ("reasoning_never_ended", self._reasoning),
        )
        for kind, tally in kinds:
            if self._many(tally):
                left = self._scored - tally.rows
                otherwise = {
                    rules: (total - tally.change.get(rules, 0.0)) / left if left else None
                    for rules, total in self._sums.items()
                }
                named = self._of_categories(tally)
                findings.append(
                    Finding(kind, tally.rows, self._scored, accuracy, otherwise, categories=named)
                )
        return findings

    def _many(self, tally: _Tally) -> bool:
        return _are_many(tally.rows, self._scored, MIN_SHARE) or bool(self._of_categories(tally))

    def _of_categories(self, tally: _Tally) -> dict[str, tuple[int, int]]:
        """Those that hold many rows, most first; none where the benchmark itself does."""
        if _are_many(tally.rows, self._scored, MIN_SHARE):
            return {}
        return {
            name: (rows, self._categories[name])
            for name, rows in sorted(tally.categories.items(), key=lambda item: (-item[1], item[0]))
            if _are_many(rows, self._categories[name], MIN_CATEGORY_SHARE)
        }


def _are_many(rows: int, of: int, share: float) -> bool:
    return rows >= max(MIN_ROWS, share * of)


def _most_first(item: tuple[tuple[str, str], _Tally]) -> tuple[Any, ...]:
    (reader, where), tally = item
    place = list(READERS).index(reader) if reader in READERS else len(READERS)
    return -tally.rows, place, reader, where


def diagnose(rows: Iterable[DiagnosedRow]) -> list[Finding]:
    """The findings on the rows of one benchmark."""
    diagnosis = Diagnosis()
    for row in rows:
        diagnosis.add(row)
    return diagnosis.findings()
