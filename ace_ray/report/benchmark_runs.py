"""The runs of a report by benchmark, each summarized once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.reporting import ReportedRun, Reporting, reporting_of
from ace_ray.report.runs import Run
from ace_ray.report.valid_rows import ValidRows


@dataclass(frozen=True)
class BenchmarkRuns:
    """One benchmark, the runs that hold it, and the same runs as it sees them, in one order."""

    benchmark: str
    reporting: Reporting
    runs: Sequence[Run]
    reported: Sequence[ReportedRun]


def by_benchmark(runs: Sequence[Run]) -> list[BenchmarkRuns]:
    """One per benchmark, in the order in which the runs name them."""
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.benchmarks):
        reporting = reporting_of(name) or ValidRows()
        holders = [run for run in runs if name in run.benchmarks]
        reported = [run.reported(name, reporting.summarize) for run in holders]
        found.append(BenchmarkRuns(name, reporting, holders, reported))
    return found
