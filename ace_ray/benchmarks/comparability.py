"""Decide which runs are comparable: runs that differ only in the model.

The candidate is the model under evaluation. The conditions of a run are everything else that can
change a score: data, prompts, protocol, sampling, user simulator and the evaluated entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.results import BenchmarkResult
from ace_ray.types import canonical_json
from ace_ray.util.grouping import grouped

_HASH = re.compile(r'"?[0-9a-f]{32,}"?')
_ABSENT = "not recorded"


def flatten(tree: Mapping[str, Any], prefix: str = "", *, depth: int = 9) -> dict[str, str]:
    """Return the leaves of ``tree`` as canonical JSON by dotted key. Lists are leaves.

    ``depth``: maximum number of levels; a mapping at the lowest level is a leaf, too."""
    flat: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value and depth > 1:
            flat |= flatten(value, f"{prefix}{key}.", depth=depth - 1)
        else:
            flat[f"{prefix}{key}"] = canonical_json(value)
    return flat


def differences(runs: Sequence[BenchmarkResult]) -> Iterator[str]:
    """Yield a line for each condition in which runs differ, with the values and the runs. Then
    yield the lines of `self_play_lines` and `candidate_differences`."""
    yield from difference_lines("not comparable", runs, lambda run: run.conditions)
    yield from self_play_lines(runs)
    yield from candidate_differences(runs)


def candidate_differences(runs: Sequence[BenchmarkResult]) -> Iterator[str]:
    """Yield a line for each property in which candidates with the same model name differ."""
    for model in dict.fromkeys(run.model for run in runs):
        model_runs = [run for run in runs if run.model == model]
        yield from difference_lines("not the same candidate", model_runs, lambda run: run.candidate)


def self_play_lines(runs: Sequence[BenchmarkResult]) -> Iterator[str]:
    """Yield a line for each role that different candidates play in their own runs."""
    for role in dict.fromkeys(role for run in runs for role in run.plays):
        players = [run for run in runs if role in run.plays]
        if len({canonical_json(run.candidate) for run in players}) > 1:
            labels = ", ".join(run.label for run in players)
            yield f"not comparable in episodes: the model itself plays the {role} in {labels}"


def difference_lines(
    word: str, runs: Sequence[Any], facts: Callable[[Any], Mapping[str, str]]
) -> Iterator[str]:
    """Yield ``word: key is VALUE in RUNS; ...`` for each key of ``facts`` in which runs differ.
    Each run has a ``label``."""
    for key in dict.fromkeys(key for run in runs for key in facts(run)):
        holders = grouped((facts(run).get(key, _ABSENT), run.label) for run in runs)
        if len(holders) > 1:
            *rare, common = sorted(holders.items(), key=lambda item: len(item[1]))
            parts = [f"{_shorten(value)} in {', '.join(names)}" for value, names in rare]
            labels = "the others" if len(common[1]) > 2 else ", ".join(common[1])
            yield f"{word}: {key} is {'; '.join(parts)}; {_shorten(common[0])} in {labels}"


def comparable_sets(runs: Sequence[BenchmarkResult]) -> list[int]:
    """Return, for each run, the number (from 1) of the set of comparable runs that it is in."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(canonical_json(run.conditions), len(numbers) + 1) for run in runs]


def mark_labels(runs: Sequence[BenchmarkResult]) -> tuple[list[str], list[str]]:
    """Return the label of each run with its marks added, and a legend of the marks.

    ``*`` marks an incomplete run, and ``(limited)`` a run on a sample of the benchmark. If there
    are several sets of comparable runs, ``[2]`` is the number of the run's set."""
    sets = comparable_sets(runs)
    several = len(set(sets)) > 1
    labels = [
        f"{run.label}{'*' if run.incomplete else ''}{' (limited)' if run.limited else ''}"
        f"{f' [{number}]' if several else ''}"
        for run, number in zip(runs, sets, strict=True)
    ]
    legend = [f"* incomplete: {run.label}: {run.incomplete}" for run in runs if run.incomplete]
    if several:
        legend.append("[1], [2], ...: only runs with the same number are comparable")
    return labels, legend


def _shorten(value: str) -> str:
    if _HASH.fullmatch(value):
        return value.strip('"')[:12]
    return value if len(value) <= 60 else f"{value[:57]}..."
