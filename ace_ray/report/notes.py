"""What a reader must know beside the lines of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ace_ray.report.comparison import facts
from ace_ray.report.contenders import Contender
from ace_ray.report.lines import Side
from ace_ray.report.noise import overall
from ace_ray.report.paired import pairs_of


def notes_on(
    side: Side,
    contenders: Sequence[Contender],
    pairs: Sequence[tuple[str, str]],
    rule_sets: Sequence[str],
) -> Iterator[str]:
    """Facts on single runs, rows that have no pair, and what was generated twice."""
    yield from facts([(c.label, c.run) for c in contenders], side.benchmark)
    yield from _left_out(side, pairs, rule_sets)
    yield from _noise(side, rule_sets)
    yield from _other_seeds(side, pairs)


def _other_seeds(side: Side, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    held = [pair for pair in pairs if {*pair} <= {*side.labels}]
    for base, other in held if any(side.repeats) else ():
        if side.seeds[side.labels.index(base)] != side.seeds[side.labels.index(other)]:
            yield (
                f"{side.benchmark}: {other} and {base} were sampled with other seeds, and rows "
                "are repeated with their run's own: there is no noise floor between them"
            )


def _left_out(
    side: Side, pairs: Sequence[tuple[str, str]], rule_sets: Sequence[str]
) -> Iterator[str]:
    total = int(side.cells.rows.sum())
    for base, other in pairs:
        if base not in side.labels or other not in side.labels:
            missing = other if other not in side.labels else base
            yield f"{missing} does not hold {side.benchmark}: it is not compared there"
            continue
        numbers = side.labels.index(base), side.labels.index(other)
        # Rows have verdicts of all rule sets or of none, save in runs that others wrote.
        left_out, owed = 0, [0, 0]
        for rules in rule_sets:
            paired = pairs_of(side.cells, "accuracy", rules, *numbers)
            left_out = max(left_out, int(paired.left_out.sum()))
            values = side.cells.values["accuracy", rules]
            owed = [
                max(found, int(side.cells.rows[np.isnan(values[number])].sum()))
                for found, number in zip(owed, numbers, strict=True)
            ]
        if left_out:
            yield (
                f"{side.benchmark}: {left_out} of {total} rows are left out of {other} against "
                f"{base}, for want of a verdict on them or on another turn of their dialogue: "
                f"{owed[1]} in {other}, {owed[0]} in {base}"
            )


def _noise(side: Side, rule_sets: Sequence[str]) -> Iterator[str]:
    if not any(side.repeats):
        yield (
            f"{side.benchmark}: no row was generated twice (`repeat_subset`), so what identical "
            "runs differ by is not known"
        )
        return
    for label, repeats in zip(side.labels, side.repeats, strict=True):
        for rules in rule_sets:
            found = None if repeats is None else overall([repeats], "accuracy", rules)
            if found is not None:
                yield (
                    f"{label}: of {found.n} entries or dialogues of {side.benchmark} generated "
                    f"twice {found.flips} changed their verdict ({rules} rules)"
                )
