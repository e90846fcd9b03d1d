"""The runs of a report tested against each other, as far as they may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ace_ray.errors import UserError
from ace_ray.records import RULE_SETS
from ace_ray.report.benchmark_runs import BenchmarkRuns
from ace_ray.report.compared import Comparison, compared
from ace_ray.report.contenders import NotComparable, contenders_of
from ace_ray.report.flips import Flips, flips_of
from ace_ray.report.groups import groups_of
from ace_ray.report.runs import Run

PAIRS = 3
"""Pairs of runs whose flips are in a report; of more, those of the last pair."""


@dataclass(frozen=True)
class Tested:
    """``comparison`` is None where there is none: ``refused`` says why, and ``differences`` in what
    the runs differ. ``unflipped`` are the runs (labels) whose flips are left to another report."""

    comparison: Comparison | None
    flips: Sequence[Flips] = ()
    unflipped: Sequence[str] = ()
    refused: str = ""
    differences: Sequence[str] = ()


def tested(runs: Sequence[Run], benchmarks: Sequence[BenchmarkRuns], rules: str) -> Tested | None:
    """The runs compared on the groups of the benchmarks' tables; None for a single run.

    Single categories are left to ``ace-ray compare``: every further line weakens all others. Flips
    are those under ``rules``.
    """
    if len(runs) < 2:
        return None
    contenders = contenders_of(runs)
    try:
        comparison = compared(
            contenders,
            rule_sets=[rules, *(other for other in RULE_SETS if other != rules)],
            groups=_groups(benchmarks),
            select_best=len(runs) > 2,
        )
    except NotComparable as error:
        return Tested(None, refused=error.what, differences=error.lines)
    except UserError as error:
        return Tested(None, refused=str(error))
    pairs = comparison.pairs[-1 if len(comparison.pairs) > PAIRS else 0 :]
    flipped = {label for pair in pairs for label in pair}
    return Tested(
        comparison,
        _flips(comparison, pairs, rules),
        [contender.label for contender in contenders if contender.label not in flipped],
    )


def _groups(benchmarks: Sequence[BenchmarkRuns]) -> list[str]:
    """The groups that the runs fill, the benchmarks' own and that of all; none: there are none."""
    names: dict[str, None] = {}
    for held in benchmarks:
        named = held.reporting.groups()
        rows = (row for run in held.runs for row in run.rows_of(held.benchmark))
        units = {(row.language, row.category, "") for row in rows}
        names |= {
            group.name: None
            for group in groups_of(units, named)
            if group.name in named or not group.category
        }
    return list(names)


def _flips(comparison: Comparison, pairs: Sequence[tuple[str, str]], rules: str) -> list[Flips]:
    runs = {contender.label: contender.run for contender in comparison.contenders}
    return [
        flips_of((runs[base], base), (runs[other], other), benchmark, rules)
        for base, other in pairs
        for benchmark in dict.fromkeys(
            line.asked.benchmark
            for line in comparison.lines
            if (line.asked.base, line.asked.other) == (base, other)
        )
    ]
