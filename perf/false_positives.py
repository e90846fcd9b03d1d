"""How often a comparison shows a difference where there is none.

    python perf/false_positives.py RUN_A RUN_B [--resamples 200] [--seed 0] [--rules both]

Takes two runs of one model under sampling. Each resample draws the tasks anew with replacement,
within their categories, and swaps the two runs' answers to a task by the toss of a coin: whatever
then differs is chance. On each the complete comparison is made: all groups, both rule sets, Holm's
correction. Exit code 1 when more than 5 % of the resamples show a difference, beyond chance.

The coin makes tasks independent by construction, so a test that is exact under it passes whatever
ties tasks together in truth. Therefore the two runs are compared as they are, too: one draw of the
real null, over which several pairs of runs have to be looked at together.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ace_ray.records import RULE_SETS
from ace_ray.reports.compared_runs import check_labels, compared_runs
from ace_ray.reports.comparison import paired_data
from ace_ray.reports.hypotheses import TestResult, results_of
from ace_ray.reports.paired import Cells, PairedData
from ace_ray.reports.runs import load_runs
from ace_ray.reports.significance import ALPHA
from ace_ray.stats import wilson


class Null:
    """Resamples of two paired runs under the hypothesis that they are one."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        units = _members(cells.cluster_of)
        by_unit = _members(cells.unit_of)
        self._units = units
        self._cells_of = by_unit
        names, of_unit = cells.strata
        kinds: dict[frozenset[tuple[str, str]], list[int]] = {}
        for cluster, members in enumerate(units):
            kind = frozenset(names[of_unit[unit]] for unit in members)
            kinds.setdefault(kind, []).append(cluster)
        # A task keeps its categories and languages, so every resample has the same groups.
        self._kinds = [np.array(clusters) for clusters in kinds.values()]

    def draw(self, rng: np.random.Generator) -> Cells:
        drawn = np.concatenate([rng.choice(kind, len(kind)) for kind in self._kinds])
        units = [self._units[cluster] for cluster in drawn]
        unit_ids = np.concatenate(units)
        cells = [self._cells_of[unit] for unit in unit_ids]
        cell_ids = np.concatenate(cells)
        cluster_of = np.repeat(np.arange(len(drawn)), [len(members) for members in units])
        unit_of = np.repeat(np.arange(len(unit_ids)), [len(members) for members in cells])
        swapped = rng.random(len(drawn)) < 0.5
        swap = swapped[cluster_of][unit_of]
        values = {
            key: np.where(swap, found[::-1, cell_ids], found[:, cell_ids])
            for key, found in self._cells.values.items()
        }
        return Cells(
            units=[self._cells.units[unit] for unit in unit_ids],
            unit_of=unit_of,
            cluster_of=cluster_of,
            rows=self._cells.rows[cell_ids],
            values=values,
        )


def _members(group_of: np.ndarray) -> list[np.ndarray]:
    """Group -> the positions that ``group_of`` gives it."""
    order = np.argsort(group_of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group_of))[:-1])


def resampled(
    data: PairedData, rule_sets: Sequence[str], resamples: int, seed: int
) -> list[list[TestResult]]:
    """The results of a comparison on each resample."""
    rng, null = np.random.default_rng(seed), Null(data.cells)
    base, other = data.labels
    return [
        results_of(
            [replace(data, cells=null.draw(rng), repeats=[None, None])], [(base, other)], rule_sets
        )
        for _ in range(resamples)
    ]


def share(count: int, n: int) -> str:
    low, high = wilson(count, n) or (0.0, 1.0)
    return f"{100 * count / n:.2f} % [{100 * low:.2f}, {100 * high:.2f}] of {n}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs=2, metavar="RUN")
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", choices=[*RULE_SETS, "both"], default="both")
    asked = parser.parse_args()
    runs = compared_runs(load_runs(asked.runs))
    check_labels(runs, runs[0].label)
    rule_sets = RULE_SETS if asked.rules == "both" else (asked.rules,)
    shown = 0
    for benchmark in runs[0].run.benchmarks:
        data = paired_data(benchmark, runs)
        base, other = data.labels
        as_they_are = results_of([data], [(base, other)], rule_sets)
        for rules in rule_sets:
            report_as_they_are(benchmark, rules, as_they_are)
        found = resampled(data, rule_sets, asked.resamples, asked.seed)
        for rules in rule_sets:
            shown = max(shown, report(benchmark, rules, found))
    low, _ = wilson(shown, asked.resamples) or (0.0, 1.0)
    return int(low > ALPHA)


def report_as_they_are(benchmark: str, rules: str, lines: Sequence[TestResult]) -> None:
    """Print what the comparison of the runs themselves shows."""
    of_rules = [line for line in lines if line.hypothesis.rules == rules]
    small = sum(line.difference.p < ALPHA for line in of_rules)
    shown = sum(line.shown for line in of_rules)
    least = min((line.holm for line in of_rules), default=1.0)
    print(
        f"{benchmark}, {rules} rules, the runs as they are: {shown} of {len(of_rules)} lines shown"
    )
    print(f"  lines with p < {ALPHA}: {share(small, len(of_rules))}; smallest Holm p {least:.3g}")


def report(benchmark: str, rules: str, resamples: Sequence[Sequence[TestResult]]) -> int:
    """Print the shares of one rule set; returns the number of resamples with a difference."""
    families = [[line for line in lines if line.hypothesis.rules == rules] for lines in resamples]
    lines = [line for family in families for line in family]
    excluding = [
        line
        for line in lines
        if line.difference.interval
        and not line.difference.interval[0] <= 0 <= line.difference.interval[1]
    ]
    shown = sum(any(line.shown for line in family) for family in families)
    print(f"{benchmark}, {rules} rules, {len(families[0])} lines in {len(families)} resamples")
    small = sum(x.difference.p < ALPHA for x in lines)
    print(f"  lines with p < {ALPHA}: {share(small, len(lines))}")
    print(f"  intervals without 0: {share(len(excluding), len(lines))}")
    print(f"  lines with Holm p < {ALPHA}: {share(sum(x.shown for x in lines), len(lines))}")
    print(f"  resamples with such a line: {share(shown, len(families))}")
    for test in sorted({line.difference.test for line in lines}):
        of_test = [line for line in lines if line.difference.test == test]
        small = sum(x.difference.p < ALPHA for x in of_test)
        print(f"  {test}, p < {ALPHA}: {share(small, len(of_test))}")
    return shown


if __name__ == "__main__":
    sys.exit(main())
