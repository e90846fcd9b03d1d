"""Every category of every run, both rule sets side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.reporting import CategoryResult, Estimate, Table
from ace_ray.records import RULE_SETS
from ace_ray.report.benchmark_runs import BenchmarkRuns


@dataclass(frozen=True, slots=True)
class RunCategories:
    """The categories of one benchmark of one run."""

    label: str
    results: Sequence[CategoryResult]


def categories(held: BenchmarkRuns) -> list[RunCategories]:
    return [RunCategories(run.label, held.reporting.categories(run)) for run in held.reported]


def category_table(held: BenchmarkRuns, found: Sequence[RunCategories]) -> Table:
    """The same as one table, a line per run, category and measure."""
    return Table(
        name=f"categories-{held.benchmark}",
        title=f"{held.benchmark} by category (%)",
        header=["Model", "Language", "Category", "Measure", "Scored rows", *RULE_SETS],
        lines=[
            [
                run.label,
                result.language,
                result.category,
                result.measure,
                f"{result.scored}/{result.declared}",
                *(result.shares[rules] for rules in RULE_SETS),
            ]
            for run in found
            for result in run.results
        ],
    )


def judged(result: CategoryResult) -> int | None:
    """Over how many entries or dialogues the result's shares are; None where there is no share."""
    found = [share.n for share in result.shares.values() if isinstance(share, Estimate)]
    return max(found, default=None)
