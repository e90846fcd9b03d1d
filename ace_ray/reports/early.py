"""What the runs of a sweep, or a run, decided early: a table, and the sequences over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from ace_ray.benchmarks.results import Curves, Estimate, Table, Value
from ace_ray.errors import UserError
from ace_ray.run.storage.stored import Early, EarlyHeadline, Stored, Summary, read_manifest
from ace_ray.store import Store


class _Look(Stored):
    headlines: dict[str, EarlyHeadline]


@dataclass(frozen=True)
class EarlyRun:
    """What one run came to. ``against``: what it was compared with, as readers know it; ``looks``:
    by headline, from the manifest, as they were made."""

    label: str
    against: str
    early: Early
    scored: int
    declared: int
    device_s: float
    looks: dict[str, list[EarlyHeadline]]

    @property
    def saved_s(self) -> float:
        """Device seconds that the rows which were not evaluated would have taken, as those that
        were took."""
        left = self.declared - self.scored
        return self.device_s * left / self.scored if self.early.stopped and self.scored else 0.0


def early_run(
    label: str, store: Store, summary: Summary | None, labels: Mapping[str, str]
) -> EarlyRun | None:
    """None: the run was not compared. ``labels``: of the runs beside it, by the names of their
    folders. Raises `UserError`: its manifest is damaged."""
    if summary is None or summary.early is None:
        return None
    manifest = read_manifest(store)
    known = manifest.tree.get("early")
    looks: dict[str, list[EarlyHeadline]] = {}
    for one in known.get("looks", []) if isinstance(known, dict) else []:
        try:
            look = _Look.model_validate(one)
        except ValidationError as error:
            raise UserError("has a look that is none", where=store.root) from error
        for name, state in look.headlines.items():
            looks.setdefault(name, []).append(state)
    spent = sum((summary.timing.device_s or {}).values())
    folder = (summary.early.against or "nothing").rstrip("/").rsplit("/", 1)[-1]
    against = labels.get(folder, folder)
    return EarlyRun(label, against, summary.early, summary.scored, manifest.declared, spent, looks)


def decisions_table(runs: Sequence[EarlyRun]) -> Table:
    """A line for each headline of each run."""
    lines: list[list[Value]] = []
    for run in runs:
        for name, one in run.early.headlines.items():
            lines.append(
                [
                    run.label,
                    name,
                    run.against,
                    _outcome(one, run.early),
                    _points(one.difference, one.low, one.high),
                    _share(one.value.estimate, one.value.low, one.value.high),
                    f"{one.decided_at_units or one.units} of {one.of_units}",
                    f"{run.scored} of {run.declared}",
                    f"{run.saved_s / 3600:.2f}",
                ]
            )
    return Table(
        name="early",
        title="Early decisions",
        header=[
            "Model",
            "Headline",
            "Against",
            "Outcome",
            "Difference (points)",
            "Its own (%)",
            "Decided at (units)",
            "Rows scored",
            "Device hours saved",
        ],
        lines=lines,
        notes=_notes(runs),
    )


def _notes(runs: Iterable[EarlyRun]) -> list[str]:
    notes = [
        "numbers with ~ are estimates from a part of the rows, with their confidence sequence; "
        "they are no scores of the benchmark",
        "hours saved: what the rows that were not evaluated would have taken, as the others took",
    ]
    targets = {run.early.target for run in runs}
    if "benchmark" in targets:
        notes.append("differences are of the whole benchmark: exact once all its rows are in")
    if "population" in targets:
        notes.append("differences are of the population of tasks that the benchmark samples")
    return notes


def _outcome(one: EarlyHeadline, early: Early) -> str:
    said = one.outcome or "undecided"
    if one.outcome == "within":
        said = f"within {early.margin:g} point{'s' if early.margin != 1 else ''}"
    return f"{said}, by older verdicts" if early.stale else said


def _points(value: float, low: float, high: float) -> str:
    tilde = "" if high - low < 1e-3 else "~"
    # No number is -0.0.
    shown, least, most = (f"{round(100 * one, 1) + 0.0:+.1f}" for one in (value, low, high))
    return f"{tilde}{shown} [{least}, {most}]"


def _share(value: float, low: float, high: float) -> str:
    tilde = "" if high - low < 1e-3 else "~"
    return f"{tilde}{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def sequences(runs: Sequence[EarlyRun]) -> Curves | None:
    """The difference over the rows, a panel a headline; None where nobody looked."""
    panels: dict[str, dict[str, list[tuple[float, Estimate]]]] = {}
    for run in runs:
        for name, looks in run.looks.items():
            points = [
                (float(one.rows), Estimate(one.difference, (one.low, one.high), one.units))
                for one in _thinned(looks)
            ]
            if points:
                panels.setdefault(name, {})[run.label] = points
    if not panels:
        return None
    return Curves("early", "Differences, with their confidence sequences", panels, axis="rows")


MOST_POINTS = 25


def _thinned(looks: Sequence[EarlyHeadline]) -> list[EarlyHeadline]:
    """Of rows in ascending order, at most `MOST_POINTS`, the last among them."""
    ordered = sorted({one.rows: one for one in looks if one.rows}.items())
    every = -(-len(ordered) // MOST_POINTS) or 1
    return [one for _, one in ordered[::-1][::every][::-1]]
