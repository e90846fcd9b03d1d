"""Read what early stopping has decided about runs, and format these early decisions as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.results import Table, Value
from ace_ray.reports.runs import ScoredRun
from ace_ray.storage.stored import EarlyHeadline, EarlyResult


@dataclass(frozen=True)
class EarlyDecision:
    """The decision of early stopping on one run. ``against``: label of the reference run."""

    label: str
    against: str
    early: EarlyResult
    scored: int
    declared: int
    device_s: float

    @property
    def saved_s(self) -> float:
        """Estimated device seconds saved: rows not scored, times the mean time of a scored row."""
        rows = self.declared - self.scored
        return self.device_s * rows / self.scored if self.early.stopped and self.scored else 0.0


def early_decisions(runs: Iterable[ScoredRun], labels: Mapping[str, str]) -> list[EarlyDecision]:
    """Return the early decisions on the runs that have early stopping. ``labels``: folder name ->
    label, for all runs. Raises `UserError` when a summary is damaged."""
    decisions = []
    for run in runs:
        if (early := run.summary.early) is not None:
            folder = (early.against or "nothing").rstrip("/").rsplit("/", 1)[-1]
            numbers = (run.summary.scored, run.manifest.declared, run.device_s)
            decisions.append(EarlyDecision(run.label, labels.get(folder, folder), early, *numbers))
    return decisions


def decisions_table(runs: Sequence[EarlyDecision]) -> Table:
    """Return a table with a line for each headline score of each run."""
    lines: list[list[Value]] = []
    for run in runs:
        for name, headline in run.early.headlines.items():
            value = headline.value
            lines.append(
                [
                    *(run.label, name, run.against, _outcome(headline, run.early)),
                    _format_interval(headline.difference, headline.low, headline.high, "+"),
                    _format_interval(value.estimate, value.low, value.high),
                    f"{headline.decided_at_units or headline.units} of {headline.of_units}",
                    f"{run.scored} of {run.declared}",
                    f"{run.saved_s / 3600:.2f}",
                ]
            )
    header = ["Model", "Headline", "Against", "Outcome", "Difference (points)", "Score (%)"]
    header += ["Decided at (tasks)", "Rows scored", "Device hours saved"]
    notes = [
        "numbers with ~ are estimates from part of the rows, with their confidence sequence; they "
        "are not scores of the benchmark",
        "hours saved: estimated time of the rows that were not evaluated, from the time of the "
        "other rows",
        "differences are for the whole benchmark, and exact once all its rows are evaluated",
    ]
    return Table("early", "Early decisions", header, lines, notes)


def early_lines(summary: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a line for each early decision. ``summary``: the part ``early`` of a run's summary."""
    early = EarlyResult.model_validate(summary or {})
    for name, headline in early.headlines.items():
        points = _format_interval(headline.difference, headline.low, headline.high, "+")
        yield (
            f"{name} against {early.against}: {_outcome(headline, early)}, {points} points after "
            f"{headline.units} of {headline.of_units} tasks"
        )


def _outcome(headline: EarlyHeadline, early: EarlyResult) -> str:
    outcome = headline.outcome or f"undecided; needs {headline.missing_evidence}"
    if outcome == "within":
        outcome = f"within {early.margin:g} point{'s' if early.margin != 1 else ''}"
    return f"{outcome}, based on older verdicts" if early.stale else outcome


def _format_interval(value: float, low: float, high: float, sign: str = "") -> str:
    tilde = "" if high - low < 1e-3 else "~"
    # Adding 0.0 turns -0.0 into 0.0.
    middle, lower, upper = (f"{round(100 * x, 1) + 0.0:{sign}.1f}" for x in (value, low, high))
    return f"{tilde}{middle} [{lower}, {upper}]"
