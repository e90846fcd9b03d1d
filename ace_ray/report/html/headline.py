"""The first section: every run's headline numbers, and what is not in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.conditions import marked
from ace_ray.benchmarks.reporting import Value
from ace_ray.report.comparison import notes
from ace_ray.report.content import BenchmarkContent, Content
from ace_ray.report.html.page import Section
from ace_ray.report.sweeps import LedgerLine, LeftOut


@dataclass(frozen=True, slots=True)
class RunHeadline:
    """The numbers of one run by rule set, None where it has none: then ``why`` says so."""

    label: str
    model: str
    run_id: str
    step: int | None
    scored: str
    incomplete: str
    why: str
    numbers: Mapping[str, Sequence[Value] | None]


@dataclass(frozen=True, slots=True)
class BenchmarkHeadline:
    benchmark: str
    columns: Sequence[str]
    runs: Sequence[RunHeadline]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Headline:
    benchmarks: Sequence[BenchmarkHeadline]
    steps: bool
    left_out: Sequence[LeftOut]


def headline(content: Content) -> Section:
    """Every run's headline numbers under both rule sets; of an incomplete run what it lacks."""
    lines = content.sweep.line_of if content.sweep else {}
    view = Headline(
        [_headline(found, content, lines) for found in content.benchmarks],
        any(line.step is not None for line in lines.values()),
        content.sweep.left_out if content.sweep else [],
    )
    return Section("results", "Results", "headline.html.j2", view)


def _headline(
    found: BenchmarkContent, content: Content, lines: Mapping[str, LedgerLine]
) -> BenchmarkHeadline:
    held = found.held
    labels, legend = marked(held.reported)
    columns: list[str] = []
    runs = []
    for run, reported, label in zip(held.runs, held.reported, labels, strict=True):
        numbers: dict[str, Sequence[Value] | None] = {}
        for rules in content.rule_sets:
            values = held.reporting.headline(reported, rules)
            columns = list(values)
            numbers[rules] = list(values.values()) if reported.headline else None
        rows = run.rows_of(held.benchmark)
        # Rows that never came are of no benchmark, unless there is only one.
        declared = len(rows)
        if len(run.benchmarks) == 1:
            declared = run.totals["declared"] - len(run.repeats_of(held.benchmark))
        line = lines.get(run.label)
        runs.append(
            RunHeadline(
                label=label,
                model=run.manifest.model.source,
                run_id=run.manifest.run_id,
                step=line.step if line else None,
                scored=f"{sum(row.status == 'scored' for row in rows)}/{declared}",
                incomplete=run.incomplete,
                why=run.totals["why"],
                numbers=numbers,
            )
        )
    return BenchmarkHeadline(held.benchmark, columns, runs, [*legend, *notes(held)])
