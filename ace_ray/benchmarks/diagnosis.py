"""Find what hides the ability of a model in many rows of a run.

Three things are counted over the rows of one benchmark: answers that hold calls which the run did
not read, answers that were cut (``finish_reason`` is ``length``), and reasoning that never ended.
One of them is a `Finding` if it holds for at least `MIN_ROWS` rows and `MIN_SHARE` of the scored
rows, or `MIN_CATEGORY_SHARE` of the scored rows of a category. Accuracies are plain means over
rows, not the aggregates of the benchmark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.second_reading import SecondReading

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
    """``rows`` of ``of`` scored rows.

    Attributes:
        accuracy: by rule set, of all scored rows.
        others: by rule set, the accuracy of the other rows; None where there are none.
        categories: those that hold many of the rows, where the benchmark does not, each with its
            rows and its scored rows.
        readers: of unread calls, the rows that each reader of `ace_ray.parsing.known` reads.
    """

    kind: Kind
    rows: int
    of: int
    accuracy: Mapping[str, float]
    others: Mapping[str, float | None]
    categories: Mapping[str, tuple[int, int]]
    readers: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The finding in a few sentences."""
        if self.kind == "unread_calls":
            readers = ", ".join(f"{name} ({rows})" for name, rows in self.readers.items())
            return (
                f"{self._rows} hold calls that were not read; readers that find them: {readers}. "
                "No verdict counts them"
            )
        what = "have reasoning that never ended, and no answer"
        if self.kind == "cut_by_length":
            what = "end in an answer cut by max_tokens or the context"
        shares = ", ".join(
            f"{rules} {_percent(self.others[rules])} (of all rows {_percent(share)})"
            for rules, share in self.accuracy.items()
        )
        return f"{self._rows} {what}. Accuracy of the other rows: {shares}"

    @property
    def _rows(self) -> str:
        text = f"{self.rows} of {self.of} rows"
        if not self.categories:
            return text
        named = [
            f"{rows} of {of} in {name}"
            for name, (rows, of) in list(self.categories.items())[:_NAMED_CATEGORIES]
        ]
        if more := len(self.categories) - len(named):
            named.append(f"many in {more} more {'category' if more == 1 else 'categories'}")
        return f"{text} ({', '.join(named)})"

    def as_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "kind": self.kind,
            "rows": self.rows,
            "of": self.of,
            "accuracy": dict(self.accuracy),
            "others": dict(self.others),
        }
        if self.categories:
            values["categories"] = {
                name: {"rows": rows, "of": of} for name, (rows, of) in self.categories.items()
            }
        if self.readers:
            values["readers"] = dict(self.readers)
        return {**values, "text": self.text}


def _percent(share: float | None) -> str:
    return "N/A" if share is None else f"{100 * share:.1f} %"


@dataclass
class _Tally:
    rows: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """By rule set, the sum of the rows' scores."""
    categories: Counter[str] = field(default_factory=Counter)

    def add(self, category: str, scores: Mapping[str, float]) -> None:
        self.rows += 1
        self.categories[category] += 1
        for rules, score in scores.items():
            self.sums[rules] = self.sums.get(rules, 0.0) + score


class Diagnosis:
    """Counts rows of one benchmark; none is held."""

    def __init__(self) -> None:
        self._all = _Tally()
        self._readers: Counter[str] = Counter()
        self._kinds: dict[Kind, _Tally] = {
            "unread_calls": _Tally(),
            "cut_by_length": _Tally(),
            "reasoning_never_ended": _Tally(),
        }

    def through(self, rows: Iterable[_Row]) -> Iterator[_Row]:
        """Count each of ``rows`` as it passes."""
        for row in rows:
            self.add(row)
            yield row

    def add(self, row: DiagnosedRow) -> None:
        if row.status != "scored" or row.repeat:
            return
        scores = {rules: verdict.score for rules, verdict in row.verdicts.items()}
        self._all.add(row.category, scores)
        if row.second_reading is not None:
            self._readers[row.second_reading.reader] += 1
            self._kinds["unread_calls"].add(row.category, scores)
        if row.finish_reason == "length":
            self._kinds["cut_by_length"].add(row.category, scores)
        if row.reasoning_truncated:
            self._kinds["reasoning_never_ended"].add(row.category, scores)

    def findings(self) -> list[Finding]:
        """Return the findings, unread calls first."""
        every = self._all
        accuracy = {rules: total / every.rows for rules, total in every.sums.items()}
        findings = []
        for kind, tally in self._kinds.items():
            categories = self._of_categories(tally)
            if not categories and not _are_many(tally.rows, every.rows, MIN_SHARE):
                continue
            left = every.rows - tally.rows
            others = {
                rules: (total - tally.sums.get(rules, 0.0)) / left if left else None
                for rules, total in every.sums.items()
            }
            readers = dict(self._readers.most_common()) if kind == "unread_calls" else {}
            findings.append(
                Finding(kind, tally.rows, every.rows, accuracy, others, categories, readers)
            )
        return findings

    def _of_categories(self, tally: _Tally) -> dict[str, tuple[int, int]]:
        """Return those that hold many rows, most first; none where the benchmark itself does."""
        if _are_many(tally.rows, self._all.rows, MIN_SHARE):
            return {}
        return {
            name: (rows, self._all.categories[name])
            for name, rows in sorted(tally.categories.items(), key=lambda item: (-item[1], item[0]))
            if _are_many(rows, self._all.categories[name], MIN_CATEGORY_SHARE)
        }


def _are_many(rows: int, of: int, share: float) -> bool:
    return rows >= max(MIN_ROWS, share * of)


def diagnose(rows: Iterable[DiagnosedRow]) -> list[Finding]:
    """The findings on the rows of one benchmark."""
    diagnosis = Diagnosis()
    for row in rows:
        diagnosis.add(row)
    return diagnosis.findings()
