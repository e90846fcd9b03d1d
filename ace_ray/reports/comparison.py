"""Compare runs: compute test results, flips (rows that became right or wrong) and notes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ace_ray.benchmarks.registry import class_of
from ace_ray.errors import UserError
from ace_ray.reports import compared_runs, hypotheses
from ace_ray.reports.compared_runs import NotComparable
from ace_ray.reports.flips import Flips, flips_of
from ace_ray.reports.kept import MARGIN, Record, kept_of
from ace_ray.reports.paired import PairedData, cells_of, groups_of
from ace_ray.reports.report_data import Content
from ace_ray.reports.runs import ScoredRun, across_line, facts
from ace_ray.util.sanitizing import join_names

if TYPE_CHECKING:
    import pandas as pd

# Labels (base, other).
Pairs = Sequence[tuple[str, str]]
WARNING = (
    "THE RUNS DIFFER IN CONDITIONS THAT AFFECT SCORES (--allow-different): "
    "a difference below may not be a difference between models"
)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of comparing runs in ``pairs``."""

    runs: Sequence[ScoredRun]
    pairs: Pairs
    rule_sets: Sequence[str]
    results: Sequence[hypotheses.TestResult]
    differences: Sequence[str]  # lines on conditions that affect scores and differ between runs
    cautions: Sequence[str]  # lines on other differences between runs
    notes: Sequence[str]  # facts on single runs, and missing rows
    across: str = ""  # line on sampling parameters in which the runs differ (`across_line`)
    kept: Sequence[Record] = ()  # lines of ``kept.csv``
    noise: Sequence[str] = ()  # lines on how much each run that was repeated differs from itself

    @property
    def warnings(self) -> list[str]:
        """Lines that stand before all results."""
        heading = [f"WARNING: {WARNING}:"] if self.differences else []
        return [*filter(None, [self.across]), *heading, *(f"  {d}" for d in self.differences)]

    @property
    def records(self) -> list[Record]:
        """The lines of ``comparison.csv``, by column."""
        return [result.record | {"across": self.across} for result in self.results]

    def dataframe(self, *, kept: bool = False) -> pd.DataFrame:
        """Return `records`, or ``kept``, as a pandas data frame. pandas must be installed."""
        import pandas as pd

        return pd.DataFrame(self.kept if kept else self.records)

    def __repr__(self) -> str:
        """Return one line, since the results contain arrays."""
        labels = join_names([run.label[:60] for run in self.runs], 4)
        return f"<Comparison of {labels}: {len(self.results)} lines>"

    def flips(
        self, pairs: Pairs | None = None, under: Mapping[str, str] | None = None
    ) -> list[Flips]:
        """Return the flips of all ``pairs``, benchmarks and rule sets that have results. ``under``:
        benchmark -> the only rule set to use."""
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
    reference: str | None = None,
    rule_sets: Sequence[str] | None = None,
    groups: Collection[str] = (),
    categories: bool = True,
    allow_different: bool = False,
    margin: float | None = None,
) -> Comparison:
    """Compare the pairs of `make_pairs` on the benchmarks that both runs contain.

    Only ``rule_sets`` and ``groups`` are compared; by default all. ``categories``: also compare
    single categories. The fewer tests there are, the smaller is the correction for their number.
    Groups must be chosen before results are seen.
    ``margin``: also compute what is kept, on categories too, with this margin in points, if all
    pairs have the same base. Raises `NotComparable` when the runs differ in conditions that affect
    scores, unless ``allow_different``. Raises `UserError` for fewer than two runs, unknown labels
    or groups, or no benchmark in common."""
    compared_runs.check_labels(runs, reference)
    if stopped := [run.label for run in runs if run.stopped_early]:
        problem = "was stopped when its comparison was decided; tests for samples of a fixed size"
        fix = "evaluate the remaining rows with --complete, or read the decision in its report"
        raise UserError(f"{problem} do not apply to it", where=stopped[0], fix=fix)
    pairs = compared_runs.make_pairs(runs, reference)
    shared = _shared_benchmarks(runs, pairs)
    differences = _dedupe(
        compared_runs.condition_differences(holders, name) for name, holders in shared.items()
    )
    if differences and not allow_different:
        raise NotComparable(differences)
    data = [paired_data(name, holders) for name, holders in shared.items()]
    known = list(dict.fromkeys(group.name for paired in data for group in paired.groups))
    if strange := [name for name in groups if name not in known]:
        problem, fix = f"{strange[0]!r} is not a known group", f"one of {', '.join(known)}"
        raise UserError(problem, where="--group", fix=fix)
    available = list(dict.fromkeys(rules for paired in data for rules in paired.rule_sets))
    rule_sets = available if rule_sets is None else rule_sets
    if unknown := [rules for rules in rule_sets if rules not in available]:
        fix = f"one of {', '.join(available)}"
        raise UserError(f"the runs share no rule set {unknown[0]!r}", where="--rules", fix=fix)
    notes = [_notes(paired, shared[paired.benchmark], pairs, rule_sets) for paired in data]
    measured, records = hypotheses.measure(data, pairs, rule_sets), []
    if margin is not None and len({base for base, _ in pairs}) == 1:
        records = kept_of({run.label: run for run in runs}, measured, margin)
        records = [record for record in records if not groups or record["group"] in groups]
    tested = [
        m
        for m in measured
        if (m[1].group.name in groups if groups else categories or not m[1].group.category)
    ]
    return Comparison(
        runs=runs,
        pairs=pairs,
        rule_sets=rule_sets,
        results=hypotheses.results_of(tested),
        differences=differences,
        cautions=_dedupe(compared_runs.cautions(holders, name) for name, holders in shared.items()),
        notes=_dedupe(notes),
        across=across_line(runs),
        kept=records,
        noise=_dedupe(_noise(paired, rule_sets) for paired in data),
    )


def _shared_benchmarks(runs: Sequence[ScoredRun], pairs: Pairs) -> dict[str, list[ScoredRun]]:
    """Return the benchmarks that both runs of some pair contain, each with all its runs."""
    benchmarks = {run.label: run.benchmarks for run in runs}
    shared = {
        name: [run for run in runs if name in run.benchmarks]
        for name in _dedupe(benchmarks.values())
        if any(name in benchmarks[base] and name in benchmarks[other] for base, other in pairs)
    }
    if not shared:
        example = " and ".join(pairs[0])
        problem = f"no two compared runs share a benchmark, e.g. {example}"
        raise UserError(problem, fix="compare runs of one benchmark")
    return shared


def paired_data(benchmark: str, runs: Sequence[ScoredRun]) -> PairedData:
    """Pair the rows of one benchmark, and find the groups whose categories all have rows."""
    rows, again = ([r.rows_of(benchmark, repeats=twice) for r in runs] for twice in (False, True))
    reporting = class_of(benchmark, *(run.manifest for run in runs))
    sampling = [run.manifest.identity.sampling[0] for run in runs]
    cells = cells_of(rows, reporting.rule_sets, reporting.task)
    return PairedData(
        benchmark=benchmark,
        labels=[c.label for c in runs],
        cells=cells,
        groups=groups_of(cells.units, reporting.groups),
        repeats=[
            hypotheses.repeats_of(first, second, reporting.rule_sets)
            for first, second in zip(rows, again, strict=True)
        ],
        seeds=[first.seed if first.temperature else None for first in sampling],
    )


def _dedupe(parts: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(line for part in parts for line in part))


def _notes(
    data: PairedData, runs: Sequence[ScoredRun], pairs: Pairs, rule_sets: Sequence[str]
) -> Iterator[str]:
    """Yield facts on single runs, notes on unpaired rows, and notes on repeated rows."""
    yield from facts(runs, data.benchmark)
    for base, other in pairs:
        if not data.has_runs(base, other):
            missing = other if other not in data.labels else base
            yield f"{missing} has no rows of {data.benchmark} and is not compared on it"
            continue
        cells, indices = data.cells, list(data.index_pair(base, other))
        # A row has verdicts under all rule sets or under none, except in imported runs.
        unjudged = np.zeros(3, dtype=int)  # in `base`, in `other`, in either
        for rules in filter(data.rule_sets.__contains__, rule_sets):
            first, second = np.isnan(cells.values["accuracy", rules][indices])
            lost = [int(cells.rows[mask].sum()) for mask in (first, second, first | second)]
            unjudged = np.maximum(unjudged, lost)
        if unjudged[2]:
            yield (
                f"{data.benchmark}: {unjudged[2]} of {int(cells.rows.sum())} rows are left "
                f"out of {other} against {base} because they (or another turn of their "
                f"dialogue) were not scored: {unjudged[1]} in {other}, {unjudged[0]} in "
                f"{base}"
            )
        if any(data.repeats) and not data.same_seed(base, other):
            yield (
                f"{data.benchmark}: {other} and {base} have different seeds, so their repeated "
                "rows give no noise floor"
            )


def _noise(data: PairedData, rule_sets: Sequence[str]) -> Iterator[str]:
    """Yield lines on the noise floor: how much each run differs from itself."""
    samples = np.bincount(data.cells.unit_of)
    for label, repeats in zip(data.labels, data.repeats, strict=True):
        for rules in filter(data.rule_sets.__contains__, rule_sets):
            noise = None if repeats is None else hypotheses.noise_of([repeats], "accuracy", rules)
            if repeats is not None and noise is not None:
                again = hypotheses.kept_share(repeats, *repeats.values["accuracy", rules])
                yield (
                    f"{label}: {noise.flips} of {noise.n} entries or dialogues of "
                    f"{data.benchmark} that were generated twice changed their verdict "
                    f"({rules} rules); it keeps {again or 'none'} of its own right answers, and "
                    f"identical runs differ by up to {100 * noise.floor(samples):.1f} points"
                )


def compare_reported(content: Content) -> Comparison | UserError | None:
    """Compare the runs of a report on the groups in its tables, or return the reason why they are
    not comparable. Returns None for a single run.

    Single categories are not tested, since every further test makes the correction larger. Only
    ``ace-ray compare`` tests them. With the label of a ``reference``, all runs are compared with
    the reference, and what they keep is computed."""
    if len(content.runs) < 2:
        return None
    reference = content.sweep.reference if content.sweep else None
    if reference not in [run.label for run in content.runs]:
        reference = None  # not evaluated yet
    margin, rules = None if reference is None else MARGIN, content.rule_sets
    try:
        return compare_runs(
            content.runs, reference=reference, margin=margin, rule_sets=rules, categories=False
        )
    except UserError as error:
        return error
