"""Runs side by side: the headline numbers of each benchmark, and what keeps them from comparing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.conditions import differences, marked
from ace_ray.benchmarks.protocol import ScoredRow
from ace_ray.benchmarks.reporting import Estimate, ReportedRun, Table, Value, own_task, reporting_of
from ace_ray.records import RULE_SETS
from ace_ray.report.runs import Run
from ace_ray.stats import wilson

_Key = tuple[str, str, str]


def comparisons(runs: Sequence[Run], rules: str) -> Iterator[Table]:
    """One table per benchmark over the runs that hold it."""
    for name in dict.fromkeys(name for run in runs for name in run.benchmarks):
        holders = [run for run in runs if name in run.benchmarks]
        reporting = reporting_of(name) or ValidRows()
        reported = [run.reported(name, reporting.summarize) for run in holders]
        labels, legend = marked(reported)
        numbers = [reporting.headline(run, rules) for run in reported]
        lines: list[list[Value]] = []
        for run, label, found in zip(holders, labels, numbers, strict=True):
            rows = run.rows_of(name)
            scored = sum(row.status == "scored" for row in rows)
            lines.append([label, f"{scored}/{len(rows)}", *found.values()])
        yield Table(
            name=f"comparison-{name}",
            title=f"{name}, {rules} rules (%)",
            header=["Model", "Scored rows", *numbers[0]],
            lines=lines,
            notes=[
                *legend,
                *differences(reported),
                *facts([(run.label, run) for run in holders], name),
            ],
        )


def facts(runs: Sequence[tuple[str, Run]], benchmark: str) -> Iterator[str]:
    """What a reader must know of single runs before taking their numbers for a model's."""
    for label, run in runs:
        if run.manifest.config.backend == "fake":
            yield f"{label}: backend fake, a test of the pipeline and not an evaluation"
        if run.manifest.config.limit is not None:
            yield f"{label}: limited to {run.manifest.config.limit} entries, a sample only"
        if benchmark in run.comparable:
            yield f"{label}: {run.comparable[benchmark]}"


class ValidRows:
    """The numbers of a benchmark that says nothing of reports: its share of valid rows."""

    def summarize(self, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        declared, judged = 0, 0
        valid: dict[str, dict[_Key, list[bool]]] = {rules: {} for rules in RULE_SETS}
        for row in rows:
            declared += 1
            judged += row.status == "scored"
            for rules, verdict in row.verdicts.items():
                key = (row.language, row.category, row.id)
                valid[rules].setdefault(key, []).append(verdict.valid)
        enough = declared - judged <= max_unscored * declared
        return {
            rules: _share(list(found.values())) if enough else None
            for rules, found in valid.items()
        }

    def headline(self, run: ReportedRun, rules: str) -> Mapping[str, Estimate | None]:
        return {"Valid rows": run.summary[rules]}

    def groups(self) -> Mapping[str, Sequence[str]]:
        """None: its categories and languages are all that is known of it."""
        return {}

    def task(self, row: ScoredRow) -> str:
        return own_task(row)


def _share(entries: Sequence[Sequence[bool]]) -> Estimate | None:
    if not entries:
        return None
    value = sum(map(sum, entries)) / sum(map(len, entries))
    # Samples of one entry are no independent evidence.
    interval = wilson(value * len(entries), len(entries))
    return None if interval is None else Estimate(value, interval, len(entries))
