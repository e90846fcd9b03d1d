"""A comparison of runs as one object: lines, curves, laws, best runs, and what to know of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ace_ray.benchmarks.reporting import Curves, reporting_of
from ace_ray.errors import UserError
from ace_ray.records import RULE_SETS
from ace_ray.report.best import Best, best_runs
from ace_ray.report.contenders import (
    Contender,
    NotComparable,
    cautions,
    check_labels,
    in_words,
    paired_off,
    rankings,
    refusals,
    seed_of,
)
from ace_ray.report.curves import Drawn, size_curves, step_curves
from ace_ray.report.fits import Law
from ace_ray.report.groups import groups_of
from ace_ray.report.lines import Line, Side, lines_of
from ace_ray.report.noise import repeats_of
from ace_ray.report.notes import notes_on
from ace_ray.report.paired import cells_of
from ace_ray.report.valid_rows import ValidRows


@dataclass(frozen=True)
class Laws:
    """The laws of one benchmark under one rule set, by (group, series)."""

    benchmark: str
    rules: str
    laws: Mapping[tuple[str, str], Law]


@dataclass(frozen=True)
class Comparison:
    """Runs compared in ``pairs`` (base, other) of labels.

    ``differences`` are those in what moves scores, which were allowed: with any, a line compares
    more than models. ``cautions`` is what else differs; ``notes`` what a reader must know of single
    runs, and what is missing.
    """

    contenders: Sequence[Contender]
    pairs: Sequence[tuple[str, str]]
    rule_sets: Sequence[str]
    lines: Sequence[Line]
    differences: Sequence[str]
    cautions: Sequence[str]
    notes: Sequence[str]
    curves: Sequence[Curves]
    laws: Sequence[Laws]
    best: Sequence[Best]

    @property
    def baseline(self) -> str | None:
        """What all others are compared with; None where it is not one run."""
        bases = {base for base, _ in self.pairs}
        return bases.pop() if len(bases) == 1 else None

    @property
    def against(self) -> str:
        """What is compared with what, in words."""
        return in_words(self.contenders, self.pairs)


def compared(
    contenders: Sequence[Contender],
    *,
    baseline: str | None = None,
    rule_sets: Sequence[str] = RULE_SETS,
    groups: Collection[str] = (),
    allow_different: bool = False,
    select_best: bool = False,
) -> Comparison:
    """Every run against ``baseline``, else as `paired_off` says, on the benchmarks both hold.

    ``groups`` keeps lines of groups of these names only, and with them the correction for many
    lines small: choose them before you look. ``select_best`` also finds the best run of each group,
    as `rankings` says.

    Raises:
        NotComparable: the runs differ in what moves scores, unless ``allow_different``.
        UserError: fewer than two runs, labels or groups that are none, no benchmark in common.
    """
    check_labels(contenders, baseline)
    pairs = paired_off(contenders, baseline)
    shared = _shared(contenders, pairs)
    differences = [line for name, runs in shared.items() for line in refusals(runs, name)]
    if differences and not allow_different:
        raise NotComparable(differences)
    sides = _narrowed([side_of(name, runs) for name, runs in shared.items()], groups)
    drawn = _drawn(sides, shared, rule_sets)
    return Comparison(
        contenders=contenders,
        pairs=pairs,
        rule_sets=rule_sets,
        lines=lines_of(sides, pairs, rule_sets),
        differences=differences,
        cautions=_unique(cautions(runs, name) for name, runs in shared.items()),
        notes=_unique(
            [
                *(notes_on(side, shared[side.benchmark], pairs, rule_sets) for side in sides),
                *(found.notes for _, _, found in drawn),
            ]
        ),
        curves=[found.figure for _, _, found in drawn if found.figure is not None],
        laws=[Laws(name, rules, found.laws) for name, rules, found in drawn if found.laws],
        best=[
            best
            for rules in rule_sets
            for side in sides
            for series, labels in rankings(shared[side.benchmark]).items()
            for best in best_runs(side, rules, labels, series)
        ]
        if select_best
        else [],
    )


def _shared(
    contenders: Sequence[Contender], pairs: Sequence[tuple[str, str]]
) -> dict[str, list[Contender]]:
    """Benchmark -> the runs that hold it, of those that both runs of a pair hold."""
    held = {c.label: c.run.benchmarks for c in contenders}
    shared = {
        name: [c for c in contenders if name in held[c.label]]
        for name in dict.fromkeys(name for names in held.values() for name in names)
        if any(name in held[base] and name in held[other] for base, other in pairs)
    }
    if not shared:
        base, other = pairs[0]
        raise UserError(
            f"no two runs that are compared share a benchmark: {base} and {other} do not",
            fix="compare runs of one benchmark",
        )
    return shared


def side_of(benchmark: str, contenders: Sequence[Contender]) -> Side:
    """The rows of one benchmark of the runs, paired, and the groups that they fill."""
    rows = [c.run.rows_of(benchmark) for c in contenders]
    again = [c.run.repeats_of(benchmark) for c in contenders]
    reporting = reporting_of(benchmark) or ValidRows()
    cells = cells_of(rows, reporting.task)
    return Side(
        benchmark=benchmark,
        labels=[c.label for c in contenders],
        cells=cells,
        groups=groups_of(cells.units, reporting.groups()),
        repeats=[repeats_of(first, second) for first, second in zip(rows, again, strict=True)],
        seeds=[seed_of(contender.run) for contender in contenders],
    )


def _narrowed(sides: Sequence[Side], names: Collection[str]) -> list[Side]:
    """The sides with the groups of these names only; all for no names. Raises `UserError`."""
    known = list(dict.fromkeys(group.name for side in sides for group in side.groups))
    if unknown := [name for name in names if name not in known]:
        raise UserError(
            f"no group is called {unknown[0]!r}", where="--group", fix=f"one of {', '.join(known)}"
        )
    return [
        replace(side, groups=[group for group in side.groups if not names or group.name in names])
        for side in sides
    ]


def _drawn(
    sides: Sequence[Side], shared: Mapping[str, Sequence[Contender]], rule_sets: Sequence[str]
) -> list[tuple[str, str, Drawn]]:
    return [
        (side.benchmark, rules, draw(side, shared[side.benchmark], rules))
        for rules in rule_sets
        for side in sides
        for draw in (step_curves, size_curves)
        if side.groups
    ]


def _unique(parts: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(line for part in parts for line in part))
