"""What the wrong answers were: error types of every run, under each rule set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.protocol import ScoredRow
from ace_ray.benchmarks.reporting import Table
from ace_ray.records import RULE_SETS
from ace_ray.report.benchmark_runs import BenchmarkRuns


@dataclass(frozen=True, slots=True)
class ErrorType:
    """``rows`` invalid rows of one type, their ``share`` in 0..1 of all that are invalid, and the
    categories they are of with their rows, most first."""

    name: str
    rows: int
    share: float
    categories: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class RunErrors:
    """The error types of a run under one rule set, most frequent first."""

    label: str
    rules: str
    scored: int
    types: Sequence[ErrorType]

    @property
    def invalid(self) -> int:
        return sum(found.rows for found in self.types)


def error_types(held: BenchmarkRuns) -> list[RunErrors]:
    """Run by run, each under every rule set."""
    return [
        _errors(run.label, rules, run.rows_of(held.benchmark))
        for run in held.runs
        for rules in RULE_SETS
    ]


def error_table(held: BenchmarkRuns, found: Sequence[RunErrors]) -> Table:
    """The same as one table, a line per run, rule set and type."""
    return Table(
        name=f"errors-{held.benchmark}",
        title=f"{held.benchmark}: error types of the invalid rows",
        header=["Model", "Rules", "Error type", "Rows", "Of invalid rows (%)", "Categories"],
        lines=[
            [
                run.label,
                run.rules,
                kind.name,
                kind.rows,
                f"{100 * kind.share:.1f}",
                ", ".join(f"{name} {count}" for name, count in kind.categories),
            ]
            for run in found
            for kind in run.types
        ],
    )


def _errors(label: str, rules: str, rows: Iterable[ScoredRow]) -> RunErrors:
    scored = 0
    by_type: dict[str, Counter[str]] = {}
    for row in rows:
        verdict = row.verdicts.get(rules)
        scored += verdict is not None
        if verdict is not None and not verdict.valid:
            by_type.setdefault(verdict.error_type, Counter())[row.category] += 1
    invalid = sum(found.total() for found in by_type.values())
    types = [
        ErrorType(
            name,
            found.total(),
            found.total() / invalid,
            sorted(found.items(), key=lambda item: (-item[1], item[0])),
        )
        for name, found in by_type.items()
    ]
    return RunErrors(label, rules, scored, sorted(types, key=lambda kind: (-kind.rows, kind.name)))
