"""Runs side by side: the headline numbers of each benchmark, and what keeps them from comparing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ace_ray.benchmarks.conditions import differences, marked
from ace_ray.benchmarks.reporting import Table, Value
from ace_ray.report.benchmark_runs import BenchmarkRuns
from ace_ray.report.runs import Run


def comparison(held: BenchmarkRuns, rules: str) -> Table:
    """A line per run, with the benchmark's headline numbers."""
    labels, legend = marked(held.reported)
    numbers = [held.reporting.headline(run, rules) for run in held.reported]
    lines: list[list[Value]] = []
    for run, label, found in zip(held.runs, labels, numbers, strict=True):
        rows = run.rows_of(held.benchmark)
        scored = sum(row.status == "scored" for row in rows)
        lines.append([label, f"{scored}/{len(rows)}", *found.values()])
    return Table(
        name=f"comparison-{held.benchmark}",
        title=f"{held.benchmark}, {rules} rules (%)",
        header=["Model", "Scored rows", *numbers[0]],
        lines=lines,
        notes=[*legend, *notes(held)],
    )


def notes(held: BenchmarkRuns) -> list[str]:
    """What keeps the runs from comparing, and what a reader must know of single ones."""
    labelled = [(run.label, run) for run in held.runs]
    return [*differences(held.reported), *facts(labelled, held.benchmark)]


def facts(runs: Sequence[tuple[str, Run]], benchmark: str) -> Iterator[str]:
    """What a reader must know of single runs before taking their numbers for a model's."""
    for label, run in runs:
        if run.manifest.config.backend == "fake":
            yield f"{label}: backend fake, a test of the pipeline and not an evaluation"
        if run.manifest.config.limit is not None:
            yield f"{label}: limited to {run.manifest.config.limit} entries, a sample only"
        if benchmark in run.comparable:
            yield f"{label}: {run.comparable[benchmark]}"
