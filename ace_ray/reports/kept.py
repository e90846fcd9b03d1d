"""Compute what a candidate keeps of a reference, for example a model of itself that is quantised.

The result has a record per benchmark, rule set, group of entries and candidate, with the columns of
``kept.csv`` (docs/statistics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ace_ray.benchmarks.registry import class_of
from ace_ray.reports.hypotheses import Difference, Hypothesis, Measured, kept_share
from ace_ray.reports.lost_answers import FATES, fate_of, stored_calls
from ace_ray.reports.paired import Group, PairedData, Unit, unit_of
from ace_ray.reports.runs import ScoredRun
from ace_ray.reports.significance import ALPHA, Change, rows_to_decide
from ace_ray.types import ResultRow
from ace_ray.util.stats import Interval

MARGIN = 1.0  # default, in points
Record = dict[str, Any]


def kept_of(
    runs: Mapping[str, ScoredRun], measured: Iterable[Measured], margin: float
) -> list[Record]:
    """Return a record per accuracy in ``measured``, whose runs are (reference, candidate).
    ``runs``: by label. ``margin``: in points."""
    candidates: dict[tuple[str, str], _Candidate] = {}
    groups: dict[tuple[str, str, Group], list[tuple[Record, Change | None]]] = {}
    for data, tested, difference in measured:
        if tested.metric == "accuracy":
            name = (tested.benchmark, tested.other)
            if name not in candidates:
                candidates[name] = _Candidate(data, runs[tested.base], runs[tested.other])
            line = candidates[name].record_of(tested, difference), difference.change
            groups.setdefault((tested.rules, tested.benchmark, tested.group), []).append(line)
    return [record for lines in groups.values() for record in _with_answers(lines, margin)]


def _with_answers(lines: Sequence[tuple[Record, Change | None]], margin: float) -> Iterator[Record]:
    """Yield the records of one group with the answer whether each candidate is not worse by more
    than ``margin``."""
    limit, changes = -margin / 100, [change for _, change in lines]
    yes = _significant_indices(changes, lambda bounds: bounds[0] >= limit)
    no = _significant_indices(changes, lambda bounds: bounds[1] < limit)
    for at, (record, change) in enumerate(lines):
        answer = "yes" if at in yes else "no" if at in no else "undecided"
        more = None
        if change is not None and answer == "undecided":
            alpha = ALPHA / (len(lines) - len(yes | no))
            more = rows_to_decide(change.interval, limit, alpha, record["n"])
        yield {**record, "margin": margin, "not_worse": answer, "rows_to_decide": more}


def _significant_indices(
    changes: Sequence[Change | None], is_beyond: Callable[[Interval], bool]
) -> frozenset[int]:
    """Return the indices of the changes whose interval `is_beyond`, by the method of Holm: each
    index relaxes the level of the others."""
    indices: frozenset[int] = frozenset()
    while True:
        level = 2 * ALPHA / max(1, len(changes) - len(indices))
        beyond = frozenset(at for at, c in enumerate(changes) if c and is_beyond(c.interval(level)))
        if beyond <= indices:
            return indices
        indices |= beyond


class _Candidate:
    """The rows of a benchmark that a reference and a candidate both have."""

    def __init__(self, data: PairedData, reference: ScoredRun, candidate: ScoredRun) -> None:
        self._data, self._cells, self._runs = data, data.cells, (reference, candidate)
        self._indices = data.index_pair(reference.label, candidate.label)
        rows = {(unit_of(r), r.sample, r.id): r for r in reference.rows_of(data.benchmark)}
        self._rows: dict[tuple[Unit, int], list[tuple[ResultRow, ResultRow]]] = {}
        for row in candidate.rows_of(data.benchmark):
            if before := rows.get((unit_of(row), row.sample, row.id)):
                self._rows.setdefault((unit_of(row), row.sample), []).append((before, row))

    def record_of(self, tested: Hypothesis, difference: Difference) -> Record:
        """Return the record of a group of entries under a rule set."""
        cells, group, rules = self._cells, tested.group, tested.rules
        low, high = difference.interval or (None, None)
        before, after = self._values(rules)
        before = np.where(cells.mask_of(group.strata)[cells.unit_of], before, np.nan)
        share = kept_share(cells, before, after)
        kept_low, kept_high = share.interval() if share else (None, None)
        lost = np.flatnonzero((before == 1) & (after < 1)).tolist()
        fates = Counter(self._fates[rules, cell] for cell in lost)
        still_right = int(((before == 1) & (after == 1)).sum())
        return {
            **{"benchmark": tested.benchmark, "rules": rules},
            **{"reference": tested.base, "candidate": tested.other},
            **{"group": group.name, "language": group.language, "categories": len(group.strata)},
            **{"n": difference.n, "clusters": len(difference.sizes)},
            **{"difference": difference.value, "low": low, "high": high},
            **{"right": still_right + len(lost), "still_right": still_right},
            **{"kept": share and share.value, "kept_low": kept_low, "kept_high": kept_high},
            "newly_right": int(((before < 1) & (after == 1)).sum()),
            "unscored": int(((before == 1) & np.isnan(after)).sum()),
            **{"lost": len(lost), **{fate: fates[fate] for fate in FATES}},
            "tokens_ratio": self._ratio(group, "completion_tokens"),
            "seconds_ratio": self._ratio(group, "duration_s"),
            "cost_ratio": self._cost_ratio(group),
        }

    def _values(self, rules: str) -> np.ndarray:
        """Return the scores of both runs, (2, cells)."""
        return self._cells.values["accuracy", rules][list(self._indices)]

    @cached_property
    def _fates(self) -> dict[tuple[str, int], str]:
        """The reason of each lost answer, by rule set and cell. Reads the rows of both runs."""
        cells = self._cells
        lost: dict[tuple[str, int], tuple[ResultRow, ResultRow]] = {}
        for rules in self._data.rule_sets:
            before, after = self._values(rules)
            for cell in np.flatnonzero((before == 1) & (after < 1)).tolist():
                rows = self._rows[cells.units[cells.unit_of[cell]], int(cells.samples[cell])]
                # The first wrong turn of a dialogue counts. Ids of turns end with their number.
                wrong = [pair for pair in rows if pair[1].verdicts[rules].score < 1]
                lost[rules, cell] = min(wrong, key=lambda pair: (len(pair[1].id), pair[1].id))
        benchmark = class_of(self._data.benchmark, *(run.manifest for run in self._runs))
        base_calls, calls = (
            stored_calls(run, {pair[at].row_id: pair[at] for pair in lost.values()}, benchmark)
            for at, run in enumerate(self._runs)
        )
        return {
            key: fate_of(row, key[0], base_calls[base_row.row_id], calls[row.row_id])
            for key, (base_row, row) in lost.items()
        }

    def _ratio(self, group: Group, name: str) -> float | None:
        """Return the ratio of the sums of a column over the rows for which both runs have it."""
        pairs = (p for (unit, _), ps in self._rows.items() if unit[:2] in group.strata for p in ps)
        values = ([getattr(row, name) for row in pair] for pair in pairs)
        before, after = np.sum([[0, 0], *(v for v in values if None not in v)], axis=0)
        return float(after / before) if before else None

    def _cost_ratio(self, group: Group) -> float | None:
        # Only the cost of a whole run is known.
        before, after = ((run.totals["cost"] or {}).get("per_entry") for run in self._runs)
        is_whole = len(self._runs[0].benchmarks) == 1 and {*self._cells.strata[0]} == group.strata
        return after / before if is_whole and before and after else None
