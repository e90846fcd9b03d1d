"""Rows of two runs paired by entry, grouped, and tested; tests and intervals by hand."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from math import erfc, hypot, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.reports.comparison_tables import p_text, sentence
from ace_ray.reports.hypotheses import Noise, measure, repeats_of, results_of
from ace_ray.reports.hypotheses import TestResult as Result
from ace_ray.reports.paired import Cells, PairedData, cells_of, groups_of, pairs_of
from ace_ray.reports.significance import (
    CLUSTERED,
    MCNEMAR,
    SIGN_FLIP,
    change_of,
    detectable_effect,
    difference_test,
    holm,
    share_of,
)
from ace_ray.types import RULE_SETS, ResultRow, Verdict, task_key
from ace_ray.util.stats import Z95


def row_of(
    valid: bool,
    entry_id: str,
    *,
    process: float | None = None,
    status: str = "scored",
    rules: Sequence[str] = RULE_SETS,
    **keys: Any,
) -> ResultRow:
    """Build a row with the same verdict under all ``rules``. Its group is the entry by default."""
    metrics = {} if process is None else {"process_accuracy": process}
    verdict = Verdict(valid, "" if valid else "wrong", metrics=metrics)
    verdicts = dict.fromkeys(rules, verdict) if status == "scored" else {}
    row = {"category": "c", "language": "en", "group": entry_id, "sample": 0, **keys}
    return ResultRow("", "toy", id=entry_id, status=status, verdicts=verdicts, **row)


def column(values: Iterable[object], **more: Any) -> list[ResultRow]:
    """Build a row per value, in entries ``0``, ``1``, ..."""
    return [row_of(bool(value), str(i), **more) for i, value in enumerate(values)]


def dialogue(name: str, *valid: bool, status: str = "scored") -> list[ResultRow]:
    """Build the turns of a dialogue. ``status`` belongs to the first turn."""
    turns = [row_of(ok, f"{name}_{i}", group=name) for i, ok in enumerate(valid[1:], start=1)]
    return [row_of(valid[0], f"{name}_0", group=name, status=status), *turns]


def pair(
    *runs: Sequence[ResultRow], metric: str = "accuracy", rules: str = "strict"
) -> list[tuple[float, ...]]:
    """Return (base, other, samples, left out) of each unit; -1 for NaN."""
    pairs = pairs_of(cells_of(runs, RULE_SETS), metric, rules, 0, 1)  # type: ignore[arg-type]
    columns = (pairs.base_means, pairs.other_means, pairs.samples, pairs.left_out)
    return [
        tuple(np.nan_to_num(c[i], nan=-1.0) for c in columns) for i in range(len(pairs.base_means))
    ]


def lines(
    *runs: Sequence[ResultRow],
    rules: Sequence[str] = ("strict",),
    group_map: dict[str, list[str]] | None = None,
    task: Callable[..., str] = task_key,
    repeats: Sequence[Cells | None] | None = None,
) -> list[Result]:
    """Compare runs ``r1``, ``r2``, ... with ``r0``."""
    labels = [f"r{i}" for i in range(len(runs))]
    cells = cells_of(runs, RULE_SETS, task)
    data = PairedData(
        benchmark="toy",
        labels=labels,
        cells=cells,
        groups=groups_of(cells.units, group_map or {}),
        repeats=repeats or [None] * len(runs),
        seeds=[None] * len(runs),
    )
    return results_of(measure([data], [("r0", label) for label in labels[1:]], rules))


def test_rows_without_a_verdict_in_both_runs_are_left_out_and_counted() -> None:
    base = [*column([True, True]), row_of(True, "2", status="infra_error"), row_of(True, "3")]
    second = [row_of(False, "0"), row_of(False, "1", status="skipped"), row_of(True, "2")]
    assert pair(base, second) == [(1, 0, 1, 0)] + [(-1, -1, 0, 1)] * 3
    base, second = [row_of(True, "0", rules=["official"])], [row_of(True, "0")]
    assert pair(base, second, rules="official") == [(1, 1, 1, 0)]
    assert pair(base, second, rules="strict") == [(-1, -1, 0, 1)]
    rows = [*column([True] * 2), *column([True], category="d")]
    torn = [rows[0], row_of(True, "1", status="skipped"), rows[2]]
    left_out = {line.hypothesis.group.name: line.difference.left_out for line in lines(rows, torn)}
    assert left_out == {"All": 1, "c": 1, "d": 0}


def test_a_dialogue_is_valid_if_all_its_turns_are() -> None:
    runs = dialogue("d", True, True, True), dialogue("d", True, False, True)
    assert pair(*runs) == [(1, 0, 1, 0)]
    ((base, second, *_),) = pair(*runs, metric="process")
    assert (base, second) == pytest.approx((1, 2 / 3))
    turns, torn = dialogue("d", True, True), dialogue("d", True, True, status="infra_error")
    assert pair(turns, torn) == pair(turns, turns[:1]) == [(-1, -1, 0, 2)]


def test_samples_are_averaged_over_those_that_both_runs_have() -> None:
    base = [row_of(valid, "0", sample=i) for i, valid in enumerate((True, False, True))]
    second = [row_of(valid, "0", sample=i) for i, valid in ((0, True), (1, True), (3, False))]
    assert pair(base, second) == [(0.5, 1.0, 2, 2)]
    rows = [row_of(False, "0", process=0.25), row_of(True, "1")]
    assert pair(rows, rows, metric="process") == [(0.25, 0.25, 1, 0), (-1, -1, 0, 1)]


def test_acebench_tasks_share_a_cluster() -> None:
    rows = [
        row_of(True, f"agent_multi_step_{i}", category="agent_multi_step", language=language)
        for language in ("en", "zh")
        for i in (0, 1, 2)
    ] + [row_of(True, "normal_preference_0", category="normal_preference")]
    cells = cells_of([rows], RULE_SETS, ACEBench.task)
    first, second, third, _, *chinese = cells.cluster_of.tolist()
    assert first == second != third
    assert chinese == [first, second, third]
    assert len(set(cells_of([rows], RULE_SETS).cluster_of)) == 7


def test_a_line_has_the_published_numbers() -> None:
    """Bentur et al. (2009): of 21 one right in both, one gained, seven lost."""
    base = [True] + [False] + [True] * 7 + [False] * 12
    second = [True] + [True] + [False] * 7 + [False] * 12
    (line,) = lines(column(base), column(second))
    difference = line.difference
    counts = (difference.n, difference.gained, difference.lost)
    assert (counts, difference.test) == ((21, 1, 7), MCNEMAR)
    assert difference.value == pytest.approx(-6 / 21)
    assert line.holm == difference.p == pytest.approx(0.0703, abs=5e-5)
    assert not line.is_significant


def test_the_family_is_all_lines_of_a_rule_set_over_all_pairs() -> None:
    runs = [column([True] * 20), column([False] * 9 + [True] * 11), column([False] * 20)]
    results = lines(*runs, rules=("official", "strict"))
    assert [line.family for line in results] == [2, 2, 2, 2]
    worse, worst = results[:2]
    assert worst.holm == pytest.approx(2 * worst.difference.p)
    assert worse.holm == pytest.approx(worse.difference.p)
    # Of two tests each has 2.5 %: z 2.241403 + 0.841621, squared over 20 entries.
    assert worse.detectable == pytest.approx(3.083024**2 / 20)
    assert not replace(worst, holm=0.05).is_significant


def test_dialogues_are_tested_whole_and_move_by_parts() -> None:
    """Turns flip together, so four turns count as one piece of evidence."""
    base, dialogues, parts = (
        [row for d in range(20) for row in dialogue(str(d), *(t < of.get(d, 4) for t in range(4)))]
        for of in ({}, dict.fromkeys(range(5), 0), {0: 3, 1: 2, 2: 0, 3: 3})
    )
    accuracy, process = lines(base, dialogues)
    assert (accuracy.difference.n, accuracy.difference.lost) == (20, 5)
    assert accuracy.difference.p == process.difference.p == pytest.approx(2 / 2**5)
    assert (process.hypothesis.metric, process.difference.n) == ("process", 20)
    process = lines(base, parts)[1]
    assert process.difference.test == SIGN_FLIP
    assert process.difference.p == pytest.approx(2 / 2**4)
    assert process.difference.value == pytest.approx(-(0.25 + 0.5 + 1 + 0.25) / 20)
    # Student's t is too narrow for four of 20: the sum of squares is 1.375 - 20 * 0.1 ** 2.
    half = 2.093024 * sqrt(1.175 / 19 / 20)
    low, high = process.difference.interval or (0.0, 0.0)
    assert low < -0.1 - half < -0.1 + half < high


def test_samples_and_entries_of_one_task_are_no_further_evidence() -> None:
    def four(values: list[bool]) -> list[ResultRow]:
        return [row for sample in range(4) for row in column(values, sample=sample)]

    first = lines(column([True] * 15), column([False] * 6 + [True] * 9))[0]
    many = lines(four([True] * 15), four([False] * 6 + [True] * 9))[0]
    assert (many.difference.n, many.difference.p) == (first.difference.n, first.difference.p)
    base, second = column([True] * 40), column([False] * 20 + [True] * 20)
    by_entry = lines(base, second)[0]
    shared = lines(base, second, task=lambda row: str(int(row.id) // 4))[0]
    assert by_entry.difference.p == pytest.approx(2 / 2**20)
    assert shared.difference.p == pytest.approx(2 / 2**5)
    assert (shared.difference.n, len(shared.difference.sizes)) == (40, 10)
    # Exact binomial limits of five tasks lost and of none gained, of ten.
    low, high = binomtest(5, 10).proportion_ci(0.95, "exact")
    interval = (-high, -0.5 + hypot(binomtest(0, 10).proportion_ci(0.95, "exact").high, 0.5 - low))
    assert shared.difference.interval == pytest.approx(interval)


def test_groups_without_pairs_or_process_accuracy_have_no_line() -> None:
    base = column([True, True])
    assert lines(base, column([True, True], status="infra_error")) == []
    run = [*column([True] * 3, process=0.5), *column([True] * 3, category="d")]
    hypotheses = [line.hypothesis for line in lines(run, run, group_map={"Both": ["c", "d"]})]
    assert [f"{line.group.name} {line.metric}" for line in hypotheses] == [
        *("Both accuracy", "c accuracy", "d accuracy", "c process")
    ]
    assert [g.name for g in groups_of([("en", "c", "0")], {"Both": ["c", "d"]})] == ["c"]


def test_the_noise_floor_by_hand() -> None:
    """10 of 100 repeated rows flipped, so over 400 rows it is 1.96 * sqrt(0.1 / 400)."""
    rows = column([True] * 400)
    again = [row_of(i >= 10, str(i), repeat=1) for i in range(100)]
    repeats = [repeats_of(rows, again, RULE_SETS), None, None]
    few_moves, many = (column([False] * moved + [True] * (400 - moved)) for moved in (8, 20))
    line, second = lines(rows, few_moves, many, repeats=repeats)
    assert line.noise is not None
    assert (line.noise.flips, line.noise.n) == (10, 100)
    assert line.noise_floor == pytest.approx(Z95 * np.sqrt(0.1 / 400))
    assert (line.under_noise, second.under_noise) == (True, False)
    assert "identical runs differ by up to 3.1 points" in sentence(line)
    (without,) = lines(column([True] * 5), column([False] * 5))
    assert (without.noise, without.noise_floor, without.under_noise) == (None, None, False)
    (calm,) = lines(rows, rows, repeats=[repeats_of(rows, rows, RULE_SETS), None])
    assert (calm.noise_floor, calm.under_noise) == (0.0, False)
    # The mean of two units, one of which is a mean of four samples.
    assert Noise(1, 2, 0.5).floor(np.array([1, 4])) == pytest.approx(Z95 * sqrt(0.5 * 1.25) / 2)


def test_the_noise_of_a_group_is_shrunk_by_thirty_repeats_of_all() -> None:
    """4 of 10 repeats flipped in c, none of 30 in d, so 0.1 of all."""
    rows = [*column([True] * 10), *column([True] * 30, category="d")]
    again = [*column([False] * 4 + [True] * 6), *rows[10:]]
    results = lines(rows, rows, repeats=[repeats_of(rows, again, RULE_SETS), None])
    variances = {line.hypothesis.group.name: line.noise and line.noise.variance for line in results}
    assert variances == pytest.approx({"All": 0.1, "c": (4 + 3) / 40, "d": 3 / 60})


def moves(gained: int, lost: int, still: int = 0) -> np.ndarray:
    return np.array([1.0] * gained + [-1.0] * lost + [0.0] * still)


def test_mcnemar_on_published_tables_and_by_hand() -> None:
    assert difference_test(moves(0, 0, 30)) == (1.0, MCNEMAR)
    expected: Any = (pytest.approx(2 / 2**6), MCNEMAR)
    assert difference_test(moves(0, 6, 30)) == expected
    # Agresti's movie of approval ratings, 150 and 86 off the diagonal; Bentur et al. (2009), 1 and
    # 7, exact p 0.0703 in Fagerland, Lydersen and Laake (2013).
    assert difference_test(moves(86, 150))[0] == pytest.approx(3.7e-5, rel=0.02)
    assert difference_test(moves(7, 1))[0] == pytest.approx(0.0703, abs=5e-5)


def test_many_moves_take_the_clustered_test() -> None:
    values = np.array([0.5] * 10 + [1.0] * 3 + [-0.5] * 2)
    # z = (7 - 0.5) / sqrt(10 * 0.25 + 3 + 0.5), two-sided.
    expected: Any = (pytest.approx(erfc(6.5 / sqrt(6) / sqrt(2))), CLUSTERED)
    assert difference_test(values) == expected
    assert difference_test(np.array([1.0] * 5 + [-0.5] * 10)) == (1.0, CLUSTERED)


@pytest.mark.parametrize("count", [4, 12, 13])
def test_up_to_twelve_moves_try_every_pattern_of_signs(count: int) -> None:
    values = np.array([number * (-1 if number % 3 == 0 else 1.0) for number in range(1, count + 1)])
    sums = np.array(list(product((1, -1), repeat=count))) @ np.abs(values)
    share = np.mean(np.abs(sums) >= abs(values.sum()))
    p, test = difference_test(values)
    assert (p == pytest.approx(share), test) == (count < 13, SIGN_FLIP if count < 13 else CLUSTERED)


def test_rounding_moves_no_p_across_the_level() -> None:
    texts = [p_text(p) for p in (0.04996, 0.05, 0.012345, 0.00001)]
    assert texts == ["0.04996", "0.05", "0.012", "< 0.0001"]


def test_holm_on_its_textbook_example() -> None:
    # Four p-values at 5 %: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 raised to the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_share_has_an_exact_interval() -> None:
    # Clopper and Pearson: 2 of 20 are 0.0123 to 0.3170; 0 of 20 at most 1 - 0.025 ** (1 / 20).
    values = np.array([1.0] * 2 + [0.0] * 18)
    assert share_of(values, np.ones(20), 20).interval() == pytest.approx((0.0123, 0.317), abs=1e-4)
    none = share_of(np.zeros(20), np.ones(20), 20)
    assert none.interval() == pytest.approx((0, 1 - 0.025 ** (1 / 20)))
    # Ten tasks asked four times each say no more than asked once; different answers say more.
    once = share_of(values[:10], np.ones(10), 10).interval()
    whole, parts = (
        share_of(np.array(t), np.full(10, 4), 40).interval()
        for t in ([4.0] * 2 + [0.0] * 8, [1.0] * 8 + [0.0] * 2)
    )
    assert whole == pytest.approx(once, abs=1e-9)
    assert np.ptp(parts) < np.ptp(whole)
    # Eight tasks vary: 40 answers count as 40 * (2.0227 / 2.3646) ** 2, by Student's quantiles.
    assert parts == pytest.approx((0.07595, 0.38842), abs=1e-5)
    # Rare answers in few tasks: not more certain than none.
    rare = share_of(np.array([1.0] * 9 + [2.0]), np.full(10, 100), 1000)
    assert rare.interval()[1] == pytest.approx(1 - 0.025 ** (1 / 10))


@pytest.mark.filterwarnings("error")
def test_the_interval_of_a_difference_by_hand() -> None:
    def interval(values: np.ndarray) -> tuple[float, float]:
        change = change_of(values, np.ones(len(values)), len(values))
        assert change is not None
        return change.interval()

    # With losses only, it is the exact interval of their share; with no move, the exact limits.
    lost = share_of(np.array([1.0] * 3 + [0.0] * 37), np.ones(40), 40).interval()
    assert interval(moves(0, 3, 37))[0] == pytest.approx(-lost[1])
    bound = 1 - 0.025 ** (1 / 40)
    assert interval(np.zeros(40)) == pytest.approx((-bound, bound))
    # Bentur et al. (2009): not shown by the exact McNemar test (p 0.0703), so 0 is inside.
    low, high = interval(moves(1, 7, 13))
    assert low < -0.5 < 0 < high
    # Many units: the normal limits.
    half = Z95 * sqrt((500 - 100**2 / 10_000) / 10_000**2)
    assert interval(moves(300, 200, 9500)) == pytest.approx((0.01 - half, 0.01 + half), abs=2e-4)
    assert change_of(np.array([1.0]), np.array([4]), 4) is None


def test_the_detectable_difference_by_hand() -> None:
    """z 1.959964 + 0.841621 = 2.801585: of 400 units 80 moved."""
    values = moves(50, 30, 320)
    alone = detectable_effect(values, np.ones(400))
    assert alone == pytest.approx(2.801585 * sqrt(80) / 400, rel=1e-6)
    assert (detectable_effect(values, np.ones(400), 100) or 0) > (alone or 1)
    # Entries of one task are one piece of evidence. With a share d of moves, d is z ** 2 / n.
    assert detectable_effect(np.zeros(40), np.full(40, 4)) == pytest.approx(
        2.801585**2 / 40, rel=1e-6
    )
