"""Read what early stopping has decided about runs, and format these early decisions as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.results import Table, Value
from ace_ray.reports.runs import ScoredRun
from ace_ray.storage.stored import EarlyResult


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
    """Return the early decisions on the runs that have early stopping.

    ``labels``: folder name -> label, for all runs. Raises `UserError`: a summary is damaged."""
    early_runs = []
    for run in runs:
        if (early := run.summary.early) is not None:
            folder = (early.against or "nothing").rstrip("/").rsplit("/", 1)[-1]
            numbers = (run.summary.scored, run.manifest.declared, run.device_s)
            early_runs.append(EarlyDecision(run.label, labels.get(folder, folder), early, *numbers))
    return early_runs


def decisions_table(runs: Sequence[EarlyDecision]) -> Table:
    """Return a table with a line for each headline score of each run."""
    lines: list[list[Value]] = []
    for run in runs:
        for name, headline in run.early.headlines.items():
            value = headline.value
            outcome = headline.outcome or f"undecided; needs {headline.missing_evidence}"
            if outcome == "within":
                margin = run.early.margin
                outcome = f"within {margin:g} point{'s' if margin != 1 else ''}"
            outcome += ", based on older verdicts" if run.early.stale else ""
            lines.append(
                [
                    *(run.label, name, run.against, outcome),
                    _format_interval(headline.difference, headline.low, headline.high, "+"),
                    _format_interval(value.estimate, value.low, value.high),
                    f"{headline.decided_at_units or headline.units} of {headline.of_units}",
                    f"{run.scored} of {run.declared}",
                    f"{run.saved_s / 3600:.2f}",
                ]
            )
    return Table(
        name="early",
        title="Early decisions",
        header=[
            *("Model", "Headline", "Against", "Outcome", "Difference (points)", "Score (%)"),
            *("Decided at (units)", "Rows scored", "Device hours saved"),
        ],
        lines=lines,
        notes=[
            "numbers with ~ are estimates from part of the rows, with their "
            "confidence sequence; they are not scores of the benchmark",
            "hours saved: estimated time of the rows that were not evaluated, from "
            "the time of the other rows",
            "differences are for the whole benchmark, and exact once all its rows are evaluated",
        ],
    )


def _format_interval(value: float, low: float, high: float, sign: str = "") -> str:
    tilde = "" if high - low < 1e-3 else "~"
    # Adding 0.0 turns -0.0 into 0.0.
    middle, lower, upper = (f"{round(100 * x, 1) + 0.0:{sign}.1f}" for x in (value, low, high))
    return f"{tilde}{middle} [{lower}, {upper}]"
