"""The sections on scores: headline numbers, the paper's tables, categories, error types, curves.

What a section's template gets is a dictionary: its keys are the names in the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.conditions import marked
from ace_ray.benchmarks.results import (
    CategoryResult,
    Curves,
    Estimate,
    Figure,
    StackedBars,
    Table,
    Value,
)
from ace_ray.reports.comparison import ReportedComparison
from ace_ray.reports.content import (
    BenchmarkContent,
    Content,
    RunCategories,
    RunErrors,
    headline_of,
    notes_on,
)
from ace_ray.reports.html.page import Section
from ace_ray.reports.sweeps import LedgerLine


def picture(content: Content) -> Section | None:
    """The scores drawn, under the rule set that is asked for."""
    figures = [one.pictures[one.rules] for one in content.benchmarks]
    drawn = [figure for figure in figures if figure is not None]
    if not drawn:
        return None
    return Section("picture", "At a glance", "curves.html.j2", drawn)


def headline(content: Content) -> Section:
    """Every run's headline numbers under both rule sets; of an incomplete run what it lacks."""
    lines = content.sweep.line_of if content.sweep else {}
    view = {
        "benchmarks": [_headline(one, content, lines) for one in content.benchmarks],
        "steps": any(line.step is not None for line in lines.values()),
        "left_out": content.sweep.left_out if content.sweep else [],
    }
    return Section("results", "Results", "headline.html.j2", view)


def _headline(
    benchmark: BenchmarkContent, content: Content, lines: Mapping[str, LedgerLine]
) -> dict[str, Any]:
    holders = benchmark.holders
    labels, legend = marked(holders.reported)
    found = headline_of(holders)
    runs = []
    for i, (run, label) in enumerate(zip(holders.runs, labels, strict=True)):
        # By rule set; None where a run has no numbers: then ``why`` says so.
        numbers: dict[str, Sequence[Value] | None] = {
            rules: found.numbers[i][rules] if holders.reported[i].headline else None
            for rules in benchmark.rule_sets
        }
        rows = run.rows_of(holders.benchmark)
        # Rows that never came are of no benchmark, unless there is only one.
        declared = len(rows)
        if len(run.benchmarks) == 1:
            declared = run.totals["declared"] - len(run.repeats_of(holders.benchmark))
        line = lines.get(run.label)
        runs.append(
            {
                "label": label,
                "step": line.step if line else None,
                "scored": f"{sum(row.status == 'scored' for row in rows)}/{declared}",
                "incomplete": run.incomplete,
                "why": run.totals["why"],
                "numbers": numbers,
            }
        )
    return {
        "benchmark": holders.benchmark,
        "columns": found.titles,
        "runs": runs,
        "notes": [*legend, *found.notes, *notes_on(holders)],
    }


def paper(content: Content) -> Section | None:
    """The tables of the benchmarks' papers, those of one number under each rule set together."""
    blocks = []
    for benchmark in content.benchmarks:
        own = [benchmark.papers[rules].tables for rules in benchmark.rule_sets]
        # Of each rule set the first table that holds numbers, else the first.
        main = [next(filter(_has_numbers, tables), tables[0]) for tables in own if tables]
        further = [t for pair in zip(*own, strict=True) for t in pair if t not in main]
        if main:
            notes = benchmark.papers[benchmark.rules].notes
            blocks.append({"main": main, "further": further, "notes": notes})
    return Section("paper", "As in the paper", "paper.html.j2", blocks) if blocks else None


def _has_numbers(table: Table) -> bool:
    return any(isinstance(value, Estimate | int) for line in table.lines for value in line)


def categories(content: Content) -> Section | None:
    """Every category with its interval under both rule sets, run by run."""
    blocks = [
        {
            "benchmark": one.holders.benchmark,
            "matrix": _matrix(one, one.rules) if len(one.categories) > 1 else None,
            "rule_sets": one.rule_sets,
            "runs": [(run.label, _category_lines(run, one.rule_sets)) for run in one.categories],
        }
        for one in content.benchmarks
    ]
    if not blocks:
        return None
    return Section("categories", "By category", "categories.html.j2", blocks)


def _matrix(benchmark: BenchmarkContent, rules: str) -> Table:
    """Several runs side by side: a line per category and measure, a column per run; None where a
    run has no such number."""
    by_run = {
        run.label: {f"{r.category} {_which(r)}": r.shares[rules] for r in run.results}
        for run in benchmark.categories
    }
    keys = dict.fromkeys(key for shares in by_run.values() for key in shares)
    return Table(
        name="matrix",
        title=f"{benchmark.holders.benchmark}, {rules} rules (%)",
        header=["Category", *by_run],
        lines=[[key, *(shares.get(key) for shares in by_run.values())] for key in keys],
    )


def _which(result: CategoryResult) -> str:
    """Which number of its category: the language, and the measure unless it is the accuracy."""
    plain = result.measure == "accuracy"
    return result.language if plain else f"{result.language}, {result.measure}"


def _category_lines(run: RunCategories, rule_sets: Sequence[str]) -> list[dict[str, Any]]:
    """``n`` entries or dialogues were judged; ``shares`` are in the order of the rule sets."""
    lines = []
    for result in run.results:
        judged = [share.n for share in result.shares.values() if isinstance(share, Estimate)]
        lines.append(
            {
                "category": result.category,
                "which": _which(result),
                "scored": f"{result.scored}/{result.declared}",
                "n": max(judged, default=None),
                "shares": [result.shares[rules] for rules in rule_sets],
            }
        )
    return lines


def errors(content: Content) -> Section | None:
    """What the wrong answers were, with the paper's figure of it."""
    blocks = []
    for benchmark in content.benchmarks:
        by_run: dict[str, dict[str, RunErrors]] = {}
        for one in benchmark.errors:
            by_run.setdefault(one.label, {})[one.rules] = one
        blocks.append(
            {
                "benchmark": benchmark.holders.benchmark,
                "figures": _figures(benchmark, StackedBars),
                "runs": [
                    (label, [own[rules] for rules in benchmark.rule_sets])
                    for label, own in by_run.items()
                ],
            }
        )
    return Section("errors", "Error types", "errors.html.j2", blocks) if blocks else None


def failures(content: Content) -> Section | None:
    """Why rows have no verdict, run by run; None where all have one."""
    view = [(run.label, list(run.totals["failures"])) for run in content.runs]
    view = [(label, told) for label, told in view if told]
    if not view:
        return None
    return Section("failures", "Rows without a verdict", "failures.html.j2", view)


def curves(content: Content, reported: ReportedComparison | None) -> Section | None:
    """Scores against steps and against parameters; None where there is nothing to draw."""
    comparison = reported.comparison if reported else None
    figures: list[Figure] = list(comparison.curves) if comparison else []
    # The paper's figure of sizes has no fits: it is for runs that are not compared.
    if not any(isinstance(one, Curves) and one.axis == "parameters" for one in figures):
        figures += [one for benchmark in content.benchmarks for one in _figures(benchmark, Curves)]
    return Section("curves", "Curves", "curves.html.j2", figures) if figures else None


def _figures(benchmark: BenchmarkContent, kind: type[StackedBars] | type[Curves]) -> list[Figure]:
    return [
        figure
        for rules in benchmark.rule_sets
        for figure in benchmark.papers[rules].figures
        if isinstance(figure, kind)
    ]
