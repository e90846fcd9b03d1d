"""All that a report says, as data: what is printed, written and rendered is made from this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ace_ray.benchmarks.reporting import Curves, Figure, Paper, Table
from ace_ray.records import RULE_SETS
from ace_ray.report.benchmark_runs import BenchmarkRuns, by_benchmark
from ace_ray.report.categories import RunCategories, categories, category_table
from ace_ray.report.comparison import comparison
from ace_ray.report.error_types import RunErrors, error_table, error_types
from ace_ray.report.ledger import ledger_table
from ace_ray.report.runs import Run
from ace_ray.report.steps import step_curves
from ace_ray.report.sweeps import Sweep


@dataclass(frozen=True)
class BenchmarkContent:
    """One benchmark of the runs that hold it; mappings are by rule set."""

    held: BenchmarkRuns
    comparisons: Mapping[str, Table]
    papers: Mapping[str, Paper]
    steps: Mapping[str, Curves | None]
    categories: Sequence[RunCategories]
    errors: Sequence[RunErrors]


@dataclass(frozen=True)
class Content:
    """``rules`` is the rule set that is asked for; it comes first in ``rule_sets``."""

    rules: str
    runs: Sequence[Run]
    sweep: Sweep | None
    benchmarks: Sequence[BenchmarkContent]

    @property
    def rule_sets(self) -> list[str]:
        return [self.rules, *(rules for rules in RULE_SETS if rules != self.rules)]

    @property
    def title(self) -> str:
        if self.sweep is not None:
            return f"Sweep {self.sweep.manifest.sweep_id}"
        if len(self.runs) == 1:
            return self.runs[0].label
        return f"{len(self.runs)} runs"

    def tables(self) -> list[Table]:
        """What is written as CSV and Markdown, under the rule set that is asked for."""
        tables = [found.comparisons[self.rules] for found in self.benchmarks]
        for found in self.benchmarks:
            tables += found.papers[self.rules].tables
            tables.append(category_table(found.held, found.categories))
            tables.append(error_table(found.held, found.errors))
        return [*tables, *([ledger_table(self.sweep)] if self.sweep else [])]

    def figures(self) -> list[Figure]:
        """What is written as PNG and SVG, under the rule set that is asked for."""
        figures: list[Figure] = []
        for found in self.benchmarks:
            figures += found.papers[self.rules].figures
            if (curves := found.steps[self.rules]) is not None:
                figures.append(curves)
        return figures


def content_of(runs: Sequence[Run], sweep: Sweep | None, rules: str) -> Content:
    groups = by_benchmark(runs)
    papers = [{r: held.reporting.paper(held.reported, r) for r in RULE_SETS} for held in groups]
    several = sum(any(p.tables or p.figures for p in found.values()) for found in papers) > 1
    line_of = sweep.line_of if sweep else {}
    return Content(
        rules,
        runs,
        sweep,
        [
            BenchmarkContent(
                held,
                {r: comparison(held, r) for r in RULE_SETS},
                {r: _named(paper, held) if several else paper for r, paper in found.items()},
                {r: step_curves(held, line_of, r) for r in RULE_SETS},
                categories(held),
                error_types(held),
            )
            for held, found in zip(groups, papers, strict=True)
        ],
    )


def _named(paper: Paper, held: BenchmarkRuns) -> Paper:
    """Two benchmarks may both have a ``table2``: their files need names of their own."""
    tables = [replace(t, name=f"{held.benchmark}-{t.name}") for t in paper.tables]
    figures: list[Figure] = [replace(f, name=f"{held.benchmark}-{f.name}") for f in paper.figures]
    return Paper(tables, figures, paper.notes)
