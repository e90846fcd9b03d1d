"""Compare runs: compute test results, flips (rows that became right or wrong) and notes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ace_ray.benchmarks.registry import class_of
from ace_ray.errors import UserError
from ace_ray.reports.compared_runs import (
    NotComparable,
    cautions,
    check_labels,
    condition_differences,
    make_pairs,
)
from ace_ray.reports.flips import Flips, flips_of
from ace_ray.reports.hypotheses import TestResult, noise_of, repeats_of, results_of
from ace_ray.reports.paired import PairedData, cells_of, groups_of
from ace_ray.reports.runs import BenchmarkRuns, ScoredRun, facts
from ace_ray.util.sanitizing import join_names

# Maximum pairs of runs whose flips a report shows; with more pairs it shows the last pair.
MOST_FLIPPED = 3


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of comparing runs in ``pairs``, which are labels (base, other).

    ``differences``: lines on conditions that affect scores and differ between runs, so that the
    results also contain the effect of these conditions. ``cautions``: lines on other differences.
    ``notes``: facts on single runs, and missing data."""

    runs: Sequence[ScoredRun]
    pairs: Sequence[tuple[str, str]]
    rule_sets: Sequence[str]
    results: Sequence[TestResult]
    differences: Sequence[str]
    cautions: Sequence[str]
    notes: Sequence[str]

    def __repr__(self) -> str:
        """Return one line, since the results contain arrays."""
        labels = join_names([c.label[:60] for c in self.runs], 4)
        shown_count = sum(result.is_significant for result in self.results)
        return (
            f"<Comparison of {labels}: {len(self.results)} lines, {shown_count} with a "
            f"difference shown, {len(self.differences)} differences in conditions "
            "that affect scores>"
        )

    def flips(
        self,
        pairs: Collection[tuple[str, str]] | None = None,
        under: Mapping[str, str] | None = None,
    ) -> list[Flips]:
        """Return the flips of every pair, benchmark and rule set that has results.

        ``pairs``: use only these pairs. ``under``: benchmark -> rule set; use only this rule set.
        """
        runs = {run.label: run for run in self.runs}
        sections = dict.fromkeys(
            (under[benchmark] if under else rules, base, other, benchmark)
            for rules, base, other, benchmark in (r.hypothesis.table_key for r in self.results)
            if pairs is None or (base, other) in pairs
        )
        return [
            flips_of(runs[base], runs[other], benchmark, rules)
            for rules, base, other, benchmark in sections
        ]


def compare_runs(
    runs: Sequence[ScoredRun],
    *,
    baseline: str | None = None,
    rule_sets: Sequence[str] | None = None,
    groups: Collection[str] = (),
    allow_different: bool = False,
) -> Comparison:
    """Compare the pairs of `make_pairs` on the benchmarks that both runs contain.

    Only ``rule_sets`` and ``groups`` are compared; by default all. The fewer tests there are, the
    smaller is the correction for their number. Groups must be chosen before results are seen.

    Raises:
        NotComparable: the runs differ in conditions that affect scores, unless ``allow_different``.
        UserError: fewer than two runs, unknown labels or groups, or no benchmark in common.
    """
    check_labels(runs, baseline)
    if stopped := [run.label for run in runs if run.stopped_early]:
        raise UserError(
            "was stopped when its comparison was decided; tests for samples of a "
            "fixed size do not apply to it",
            where=stopped[0],
            fix="evaluate the remaining rows with --complete, or read the decision in its report",
        )
    pairs = make_pairs(runs, baseline)
    shared = _shared_benchmarks(runs, pairs)
    differences = [
        d for name, holders in shared.items() for d in condition_differences(holders, name)
    ]
    if differences and not allow_different:
        raise NotComparable(differences)
    data = _narrow([paired_data(name, holders) for name, holders in shared.items()], groups)
    available = list(dict.fromkeys(rules for paired in data for rules in paired.rule_sets))
    rule_sets = available if rule_sets is None else rule_sets
    if unknown := [rules for rules in rule_sets if rules not in available]:
        raise UserError(
            f"the runs share no rule set {unknown[0]!r}",
            where="--rules",
            fix=f"one of {', '.join(available)}",
        )
    notes = [_notes(paired, shared[paired.benchmark], pairs, rule_sets) for paired in data]
    return Comparison(
        runs=runs,
        pairs=pairs,
        rule_sets=rule_sets,
        results=results_of(data, pairs, rule_sets),
        differences=differences,
        cautions=_dedupe(cautions(holders, name) for name, holders in shared.items()),
        notes=_dedupe(notes),
    )


def _shared_benchmarks(
    runs: Sequence[ScoredRun], pairs: Sequence[tuple[str, str]]
) -> dict[str, list[ScoredRun]]:
    """Return the benchmarks that both runs of some pair contain, each with all its runs."""
    benchmarks = {run.label: run.benchmarks for run in runs}
    shared = {
        name: [c for c in runs if name in benchmarks[c.label]]
        for name in dict.fromkeys(name for names in benchmarks.values() for name in names)
        if any(name in benchmarks[base] and name in benchmarks[other] for base, other in pairs)
    }
    if not shared:
        base_label, other_label = pairs[0]
        raise UserError(
            f"no two compared runs share a benchmark, e.g. {base_label} and {other_label}",
            fix="compare runs of one benchmark",
        )
    return shared


def paired_data(benchmark: str, runs: Sequence[ScoredRun]) -> PairedData:
    """Pair the rows of one benchmark, and find the groups whose categories all have rows."""
    rows = [run.rows_of(benchmark) for run in runs]
    again = [run.rows_of(benchmark, repeats=True) for run in runs]
    reporting = class_of(benchmark, *(run.manifest for run in runs))
    sampling = [run.manifest.identity.sampling[0] for run in runs]
    cells = cells_of(rows, reporting.rule_sets, reporting.task)
    return PairedData(
        benchmark=benchmark,
        labels=[c.label for c in runs],
        cells=cells,
        groups=groups_of(cells.units, reporting.groups),
        repeats=[
            repeats_of(first, second, reporting.rule_sets)
            for first, second in zip(rows, again, strict=True)
        ],
        seeds=[first.seed if first.temperature else None for first in sampling],
    )


def _narrow(data: Sequence[PairedData], names: Collection[str]) -> list[PairedData]:
    """Keep the groups in ``names``; all if it is empty. Raises `UserError`: unknown name."""
    group_names = list(dict.fromkeys(group.name for paired in data for group in paired.groups))
    if unknown := [name for name in names if name not in group_names]:
        problem, fix = f"{unknown[0]!r} is not a known group", f"one of {', '.join(group_names)}"
        raise UserError(problem, where="--group", fix=fix)
    return [
        replace(paired, groups=[g for g in paired.groups if not names or g.name in names])
        for paired in data
    ]


def _dedupe(parts: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(line for part in parts for line in part))


def _notes(
    data: PairedData,
    runs: Sequence[ScoredRun],
    pairs: Sequence[tuple[str, str]],
    rule_sets: Sequence[str],
) -> Iterator[str]:
    """Yield facts on single runs, notes on unpaired rows, and notes on repeated rows."""
    yield from facts(runs, data.benchmark)
    yield from _notes_on_pairs(data, pairs, rule_sets)
    if not any(data.repeats):
        yield (
            f"{data.benchmark}: no row was generated twice (`repeat_fraction`), so "
            "the noise floor of identical runs is unknown"
        )
        return
    for label, repeats in zip(data.labels, data.repeats, strict=True):
        for rules in filter(data.rule_sets.__contains__, rule_sets):
            noise = None if repeats is None else noise_of([repeats], "accuracy", rules)
            if noise is not None:
                yield (
                    f"{label}: {noise.flips} of {noise.n} entries or dialogues of "
                    f"{data.benchmark} that were generated twice changed their verdict "
                    f"({rules} rules)"
                )
    for base_label, other_label in pairs:
        if data.has_runs(base_label, other_label) and not data.same_seed(base_label, other_label):
            yield (
                f"{data.benchmark}: {other_label} and {base_label} have different seeds, so their "
                "repeated rows give no noise floor"
            )


def _notes_on_pairs(
    data: PairedData, pairs: Sequence[tuple[str, str]], rule_sets: Sequence[str]
) -> Iterator[str]:
    cells = data.cells
    rule_sets = [rules for rules in rule_sets if rules in data.rule_sets]
    for base, other in pairs:
        if not data.has_runs(base, other):
            missing = other if other not in data.labels else base
            yield f"{missing} has no rows of {data.benchmark} and is not compared on it"
            continue
        numbers = data.index_pair(base, other)
        # A row has verdicts under all rule sets or under none, except in imported runs.
        unjudged = np.zeros(3, dtype=int)  # in `base`, in `other`, in either
        for rules in rule_sets:
            first, second = np.isnan(cells.values["accuracy", rules][list(numbers)])
            lost = [int(cells.rows[mask].sum()) for mask in (first, second, first | second)]
            unjudged = np.maximum(unjudged, lost)
        if unjudged[2]:
            yield (
                f"{data.benchmark}: {unjudged[2]} of {int(cells.rows.sum())} rows are left "
                f"out of {other} against {base} because they (or another turn of their "
                f"dialogue) were not scored: {unjudged[1]} in {other}, {unjudged[0]} in "
                f"{base}"
            )


@dataclass(frozen=True)
class ReportedComparison:
    """The comparison in a report.

    ``comparison`` is None if the runs cannot be compared. Then ``refused`` is the reason, and
    ``differences`` has a line for each condition that differs. ``unflipped``: labels of runs whose
    flips are not shown."""

    comparison: Comparison | None
    flips: Sequence[Flips] = ()
    unflipped: Sequence[str] = ()
    refused: str = ""
    differences: Sequence[str] = ()


def compare_reported(
    runs: Sequence[ScoredRun],
    benchmarks: Sequence[BenchmarkRuns],
    rule_sets: Mapping[str, Sequence[str]],
) -> ReportedComparison | None:
    """Compare the runs of a report on the groups in its tables. Returns None for a single run.

    Single categories are not tested, since every further test makes the correction larger. Only
    ``ace-ray compare`` tests them. Flips use the first of a benchmark's ``rule_sets``.
    """
    if len(runs) < 2:
        return None
    try:
        comparison = compare_runs(
            runs,
            rule_sets=list(dict.fromkeys(r for listed in rule_sets.values() for r in listed)),
            groups=_table_groups(benchmarks),
        )
    except NotComparable as error:
        return ReportedComparison(None, refused=error.what, differences=error.lines)
    except UserError as error:
        return ReportedComparison(None, refused=str(error))
    pairs = comparison.pairs[-1 if len(comparison.pairs) > MOST_FLIPPED else 0 :]
    flipped = {label for pair in pairs for label in pair}
    return ReportedComparison(
        comparison,
        comparison.flips(pairs, {name: listed[0] for name, listed in rule_sets.items()}),
        [c.label for c in runs if c.label not in flipped],
    )


def _table_groups(benchmarks: Sequence[BenchmarkRuns]) -> list[str]:
    """Return the names of the groups in the tables: the benchmarks' groups with rows, and `ALL`."""
    names: dict[str, None] = {}
    for benchmark in benchmarks:
        named_groups = benchmark.reporting.groups
        rows = (row for run in benchmark.runs for row in run.rows_of(benchmark.benchmark))
        units = {(*row.category_key, "") for row in rows}
        groups = groups_of(units, named_groups)
        names |= {g.name: None for g in groups if g.name in named_groups or not g.category}
    return list(names)
