"""Cells of the paper's tables, taken from the summary of a run.

What a run does not hold is None, and so is what has more unscored rows than the run allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.categories import LANGUAGES
from ace_ray.benchmarks.acebench.scoring.aggregates import GROUPS
from ace_ray.benchmarks.results import Estimate, ReportedRun

Block = Mapping[str, Any]
"""A BLOCK of the summary (`ace_ray.benchmarks.acebench.scoring.summary`)."""

_TOP = ("normal", "special", "agent")
STANDARD = "standard"


def aggregate(run: ReportedRun, block: Block | None, name: str, rules: str) -> Estimate | None:
    """The column ``name`` of Table 2, weighted as in the paper; ``n`` counts judged entries.

    No overall number of a run that has no headline: too many of its rows have no verdict.
    """
    if block is None or (name == "overall" and not run.headline):
        return None
    cell = block["rules"][rules]["paper"].get(name)  # none at all where no row has come yet
    if cell is None or cell["value"] is None:
        return None
    groups = _TOP if name == "overall" else (name,)
    n = sum(block["categories"][c][rules]["n"] for group in groups for c in GROUPS[group])
    return _estimate(cell["value"], cell["interval"], n)


def category(
    run: ReportedRun, block: Block, name: str, rules: str, *, process: bool = False
) -> Estimate | None:
    """The accuracy of one category, or its process accuracy."""
    found = judged(run, block, name)
    if found is None:
        return None
    stats, kind = found[rules], "process_" if process else ""
    value = stats.get("process_accuracy" if process else "accuracy")
    return None if value is None else _estimate(value, stats[f"{kind}interval"], stats["n"])


def judged(run: ReportedRun, block: Block, name: str) -> Mapping[str, Any] | None:
    """The summary of a category, None unless enough of its rows have a verdict."""
    found: Mapping[str, Any] | None = block["categories"].get(name)
    if found is None or found["unscored"] > run.summary["max_unscored"] * found["declared"]:
        return None
    return found


def both_languages(run: ReportedRun) -> Block | None:
    """The combined block where it combines English and Chinese."""
    whole = set(run.summary["languages"]) == set(LANGUAGES)
    return run.summary["combined"] if whole else None


def named(run: ReportedRun, key: str) -> str:
    """What the run's manifest says of itself; whoever wrote it may have left it out."""
    return str(run.identity.get(key, "unknown"))


def standard(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """The runs with the standard prompts, which all tables but Table 6 and the figures show."""
    return [run for run in runs if named(run, "variant") == STANDARD]


def notes_on_runs(shown: Sequence[ReportedRun], every: Sequence[ReportedRun]) -> list[str]:
    """Which runs a table leaves out, and which hold one language only."""
    notes = []
    if hidden := [f"{run.label} ({named(run, 'variant')})" for run in every if run not in shown]:
        notes.append(f"not shown, the prompt variant is not standard: {', '.join(hidden)}")
    if not shown:
        notes.append("missing: a run with the standard prompt variant")
    alone = {
        language: [run.label for run in shown if set(run.summary["languages"]) == {language}]
        for language in LANGUAGES
    }
    return notes + [f"{lang} only: {', '.join(labels)}" for lang, labels in alone.items() if labels]


def _estimate(value: float, interval: Sequence[float], n: int) -> Estimate:
    low, high = interval
    return Estimate(value, (low, high), n)
