"""The sections on scores: the paper's tables, categories, error types, curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.reporting import (
    CategoryResult,
    Curves,
    Estimate,
    Figure,
    StackedBars,
    Table,
)
from ace_ray.report.categories import RunCategories, judged
from ace_ray.report.content import BenchmarkContent, Content
from ace_ray.report.error_types import RunErrors
from ace_ray.report.html.page import Section


@dataclass(frozen=True, slots=True)
class BenchmarkPaper:
    """``main``: for each rule set the first table that holds numbers, else the first."""

    main: Sequence[Table]
    further: Sequence[Table]
    notes: Sequence[str]


def paper(content: Content) -> Section | None:
    """The tables of the benchmarks' papers, those of one number under each rule set together."""
    blocks = []
    for found in content.benchmarks:
        own = [found.papers[rules].tables for rules in content.rule_sets]
        main = [next(filter(_has_numbers, tables), tables[0]) for tables in own if tables]
        further = [t for pair in zip(*own, strict=True) for t in pair if t not in main]
        if main:
            blocks.append(BenchmarkPaper(main, further, found.papers[content.rules].notes))
    return Section("paper", "As in the paper", "paper.html.j2", blocks) if blocks else None


def _has_numbers(table: Table) -> bool:
    return any(isinstance(value, Estimate | int) for line in table.lines for value in line)


@dataclass(frozen=True, slots=True)
class CategoryLine:
    """``which`` number of the category: the language, and the measure unless it is the accuracy.
    ``n`` entries or dialogues were judged; ``shares`` are in the order of the rule sets."""

    category: str
    which: str
    scored: str
    n: int | None
    shares: Sequence[Estimate | None]


@dataclass(frozen=True, slots=True)
class BenchmarkCategories:
    """``matrix``: several runs side by side, under the rule set that is asked for."""

    benchmark: str
    matrix: Table | None
    rule_sets: Sequence[str]
    runs: Sequence[tuple[str, Sequence[CategoryLine]]]


def categories(content: Content) -> Section | None:
    """Every category with its interval under both rule sets, run by run."""
    blocks = [
        BenchmarkCategories(
            found.held.benchmark,
            _matrix(found, content.rules) if len(found.categories) > 1 else None,
            content.rule_sets,
            [(run.label, _category_lines(run, content.rule_sets)) for run in found.categories],
        )
        for found in content.benchmarks
    ]
    if not blocks:
        return None
    return Section("categories", "By category", "categories.html.j2", blocks)


def _matrix(found: BenchmarkContent, rules: str) -> Table:
    """A line per category and measure, a column per run; None where a run has no such number."""
    by_run = {
        run.label: {f"{r.category} {_which(r)}": r.shares[rules] for r in run.results}
        for run in found.categories
    }
    keys = dict.fromkeys(key for shares in by_run.values() for key in shares)
    return Table(
        name="matrix",
        title=f"{found.held.benchmark}, {rules} rules (%)",
        header=["Category", *by_run],
        lines=[[key, *(shares.get(key) for shares in by_run.values())] for key in keys],
    )


def _which(result: CategoryResult) -> str:
    plain = result.measure == "accuracy"
    return result.language if plain else f"{result.language}, {result.measure}"


def _category_lines(run: RunCategories, rule_sets: Sequence[str]) -> list[CategoryLine]:
    return [
        CategoryLine(
            result.category,
            _which(result),
            f"{result.scored}/{result.declared}",
            judged(result),
            [result.shares[rules] for rules in rule_sets],
        )
        for result in run.results
    ]


@dataclass(frozen=True, slots=True)
class BenchmarkErrors:
    """``runs``: a label and its error types under each rule set."""

    benchmark: str
    figures: Sequence[Figure]
    runs: Sequence[tuple[str, Sequence[RunErrors]]]


def errors(content: Content) -> Section | None:
    """What the wrong answers were, with the paper's figure of it."""
    blocks = []
    for found in content.benchmarks:
        by_run: dict[str, dict[str, RunErrors]] = {}
        for one in found.errors:
            by_run.setdefault(one.label, {})[one.rules] = one
        blocks.append(
            BenchmarkErrors(
                found.held.benchmark,
                _figures(found, content, StackedBars),
                [
                    (label, [own[rules] for rules in content.rule_sets])
                    for label, own in by_run.items()
                ],
            )
        )
    return Section("errors", "Error types", "errors.html.j2", blocks) if blocks else None


def curves(content: Content) -> Section | None:
    """Scores against steps and against parameters; None where there is nothing to draw."""
    figures: list[Figure] = []
    for found in content.benchmarks:
        steps = [found.steps[rules] for rules in content.rule_sets]
        figures += [curve for curve in steps if curve is not None]
        figures += _figures(found, content, Curves)
    return Section("curves", "Curves", "curves.html.j2", figures) if figures else None


def _figures(
    found: BenchmarkContent, content: Content, kind: type[StackedBars] | type[Curves]
) -> list[Figure]:
    return [
        figure
        for rules in content.rule_sets
        for figure in found.papers[rules].figures
        if isinstance(figure, kind)
    ]
