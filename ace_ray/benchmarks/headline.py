"""Compute the scores of a run. The first is the headline, shown where only one score fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.results import Score
from ace_ray.benchmarks.validation import user_code
from ace_ray.types import ResultRow, Verdict
from ace_ray.util.sanitizing import join_names

# Error class of a row without a verdict, since an earlier answer was read differently.
DIVERGED = "Diverged"


def scores_of(
    benchmark: type[Benchmark], summary: Mapping[str, Any], *, headline: bool, partial: bool = False
) -> dict[str, list[Score]]:
    """Return the scores by rule set, computed from the benchmark's part of a summary.

    ``headline`` is false if too many rows lack a verdict. Scores then have no estimates, and also
    if a judge saw only a part of the rows.
    ``partial`` is true if the run evaluated only named entries; all estimates are then partial."""
    counts = summary.get("counts") or {"status": {}}
    allowed = summary.get("max_unscored", 0.0) * counts.get("declared", 0)
    if counts["status"].get("scored") and counts["status"].get("not_judged", 0) > allowed:
        headline = False

    def adjust(score: Score) -> Score:
        mean = score.estimate if headline else None
        return replace(score, estimate=mean and replace(mean, partial=partial or mean.partial))

    with user_code(benchmark, "scores"):
        return {r: list(map(adjust, benchmark.scores(summary, r))) for r in benchmark.rule_sets}


def headline_score(
    benchmark: type[Benchmark], rows: Iterable[ResultRow], *, diverged: bool | None = None
) -> Score:
    """Return the headline score of ``rows``. ``diverged``: assumed validity of `DIVERGED` rows."""
    if diverged is not None:
        verdict = Verdict(diverged, "" if diverged else DIVERGED)
        assumed = dict.fromkeys(benchmark.rule_sets, verdict)
        rows = (
            replace(row, status="scored", verdicts=assumed) if row.error_class == DIVERGED else row
            for row in rows
        )
    summary = benchmark.statistics(rows, 1.0)
    return scores_of(benchmark, summary, headline=True)[benchmark.rule_sets[0]][0]


def with_scores(
    benchmark: type[Benchmark], summary: Mapping[str, Any], *, headline: bool, partial: bool = False
) -> dict[str, Any]:
    """Add ``scores`` to the benchmark's part of a summary (docs/results.md)."""
    scores = scores_of(benchmark, summary, headline=headline, partial=partial)
    return {**summary, "scores": {r: [score.as_json() for score in s] for r, s in scores.items()}}


def titles(scores: Sequence[Score]) -> list[str]:
    """Return a column title for each score. The first title, of the headline, includes its formula.
    Other titles include their formula if the headline has another."""
    return [
        f"{s.name} ({s.formula})" if not i or s.formula != scores[0].formula else s.name
        for i, s in enumerate(scores)
    ]


def partial_notes(scores: Sequence[Score]) -> list[str]:
    """Return a line for each partial score, with the categories that were not run. A score is left
    out if earlier lines already name all its missing categories."""
    notes: list[str] = []
    names: set[str] = set()
    for title, s in zip(titles(scores), scores, strict=True):
        if s.estimate is not None and s.estimate.partial and not names.issuperset(s.missing):
            names.update(s.missing)
            covers = f"covers {s.of - len(s.missing)} of {s.of} categories"
            notes.append(
                f"{title} {covers if s.of else 'is partial'}, not run: {join_names(s.missing)}"
            )
    return notes
