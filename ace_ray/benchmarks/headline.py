"""The headline of a run and the scores beside it, the same wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.checked import own_code
from ace_ray.benchmarks.results import Score

# Categories that a line names before it counts the rest.
FEW = 2


def scores_of(
    benchmark: type[Benchmark], summary: Mapping[str, Any], *, headline: bool, partial: bool = False
) -> dict[str, list[Score]]:
    """Return the scores of the benchmark's part of a summary, by rule set.

    Estimates are left out unless ``headline``: too many rows lack a verdict. With ``partial`` all
    estimates are partial: the run evaluated named entries only.
    """
    found = {}
    for rules in benchmark.rule_sets:
        with own_code(benchmark, "scores"):
            scores = list(benchmark.scores(summary, rules))
        if not headline:
            scores = [replace(one, estimate=None) for one in scores]
        if partial:
            scores = [
                replace(one, estimate=one.estimate and replace(one.estimate, partial=True))
                for one in scores
            ]
        found[rules] = scores
    return found


def with_scores(
    benchmark: type[Benchmark], summary: Mapping[str, Any], *, headline: bool, partial: bool = False
) -> dict[str, Any]:
    """Return the benchmark's part of a summary with its ``scores`` (docs/results.md)."""
    found = scores_of(benchmark, summary, headline=headline, partial=partial)
    return {**summary, "scores": {r: [one.as_json() for one in s] for r, s in found.items()}}


def titles(scores: Sequence[Score]) -> list[str]:
    """Return the titles of columns of ``scores``. The headline, and scores with another formula,
    have the name of their formula."""
    return [
        f"{one.name} ({one.formula})" if not i or one.formula != scores[0].formula else one.name
        for i, one in enumerate(scores)
    ]


def partial_notes(scores: Sequence[Score]) -> list[str]:
    """Return a line per partial score on the categories that it lacks, each category once."""
    notes: list[str] = []
    told: set[str] = set()
    for title, one in zip(titles(scores), scores, strict=True):
        if one.estimate is not None and one.estimate.partial and not told.issuperset(one.missing):
            told.update(one.missing)
            notes.append(f"{title} is partial, not run: {few(one.missing)}")
    return notes


def few(names: Iterable[str], most: int = FEW) -> str:
    """Return the first names, and how many more there are."""
    names = list(names)
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
