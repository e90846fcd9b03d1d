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
    """Runs compared with a baseline (a label).

    ``differences`` are those in what moves scores, which were allowed: with any, a line compares
    more than models. ``cautions`` is what else differs; ``notes`` what a reader must know of single
    runs, and what is missing.
    """

    contenders: Sequence[Contender]
    baseline: str
    rule_sets: Sequence[str]
    lines: Sequence[Line]
    differences: Sequence[str]
    cautions: Sequence[str]
    notes: Sequence[str]
    curves: Sequence[Curves]
    laws: Sequence[Laws]
    best: Sequence[Best]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(baseline, other), labels, in the order of the runs."""
        return _pairs(self.contenders, self.baseline)


def compared(
    contenders: Sequence[Contender],
    *,
    baseline: str | None = None,
    rule_sets: Sequence[str] = RULE_SETS,
    groups: Collection[str] = (),
    allow_different: bool = False,
    select_best: bool = False,
) -> Comparison:
    """Every run against ``baseline`` (the first run by default), on the benchmarks both hold.

    ``groups`` keeps lines of groups of these names only, and with them the correction for many
    lines small: choose them before you look. ``select_best`` also finds the best run of each group.

    Raises:
        NotComparable: the runs differ in what moves scores, unless ``allow_different``.
        UserError: fewer than two runs, labels or groups that are none, no benchmark in common.
    """
    baseline = baseline if baseline is not None else contenders[0].label if contenders else ""
    check_labels(contenders, baseline)
    shared = _shared(contenders, baseline)
    differences = [line for name, runs in shared.items() for line in refusals(runs, name)]
    if differences and not allow_different:
        raise NotComparable(differences)
    sides = _narrowed([side_of(name, runs) for name, runs in shared.items()], groups)
    drawn = _drawn(sides, shared, rule_sets)
    pairs = _pairs(contenders, baseline)
    return Comparison(
        contenders=contenders,
        baseline=baseline,
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
        best=[best for rules in rule_sets for side in sides for best in best_runs(side, rules)]
        if select_best
        else [],
    )


def _pairs(contenders: Sequence[Contender], baseline: str) -> list[tuple[str, str]]:
    return [(baseline, c.label) for c in contenders if c.label != baseline]


def _shared(contenders: Sequence[Contender], baseline: str) -> dict[str, list[Contender]]:
    """Benchmark -> the runs that hold it, of those that the baseline and another run hold."""
    base = next(c for c in contenders if c.label == baseline)
    held = {
        name: [c for c in contenders if name in c.run.benchmarks] for name in base.run.benchmarks
    }
    shared = {name: runs for name, runs in held.items() if len(runs) > 1}
    if not shared:
        raise UserError(
            f"no run shares a benchmark with {baseline}",
            where=base.run.uri,
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
