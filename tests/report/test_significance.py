"""Tests and intervals against published numbers, and what must hold on any data."""

from __future__ import annotations

import itertools
import warnings
from math import comb, sqrt

import numpy as np
import pytest

from ace_ray.reports.significance import (
    CLUSTERED,
    MCNEMAR,
    MOST_ENUMERATED,
    SIGN_FLIP,
    clustered_interval,
    detectable,
    difference_test,
    holm,
    newcombe,
)


@pytest.fixture(autouse=True)
def no_warnings() -> object:
    """Degenerate data is decided on, not warned about."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def moves(gained: int, lost: int, still: int = 0) -> np.ndarray:
    return np.array([1.0] * gained + [-1.0] * lost + [0.0] * still)


def ones(values: np.ndarray) -> np.ndarray:
    return np.ones(len(values), dtype=np.int64)


@pytest.mark.parametrize(
    ("gained", "lost"), [(0, 0), (1, 0), (5, 0), (0, 6), (12, 2), (59, 121), (150, 86)]
)
def test_mcnemar_is_twice_the_binomial_tail(gained: int, lost: int) -> None:
    n = gained + lost
    tail = sum(comb(n, k) for k in range(min(gained, lost) + 1)) / 2**n
    p, test = difference_test(moves(gained, lost, 30))
    assert test == MCNEMAR
    assert p == pytest.approx(min(1.0, 2 * tail), rel=1e-12)


def test_mcnemar_on_published_tables() -> None:
    # Agresti's movie of approval ratings, 150 and 86 off the diagonal; Bentur et al. (2009), 1 and
    # 7, exact p 0.0703 in Fagerland, Lydersen and Laake (2013).
    assert difference_test(moves(86, 150))[0] == pytest.approx(3.7e-5, rel=0.02)
    assert difference_test(moves(7, 1))[0] == pytest.approx(0.0703, abs=5e-5)


def test_units_that_move_alike_but_not_by_one_are_mcnemar_too() -> None:
    assert difference_test(0.5 * moves(9, 1)) == difference_test(moves(9, 1))


@pytest.mark.parametrize("count", [1, 2, 5, MOST_ENUMERATED])
def test_the_sign_flip_tries_every_pattern(count: int) -> None:
    values = np.array([0.25, 0.5, 1.0, 0.75] * 3)[:count] * np.resize([1, 1, -1, 1, 1], count)
    sums = [abs(float(np.dot(values, signs))) for signs in itertools.product((1, -1), repeat=count)]
    expected = np.mean([s >= abs(values.sum()) - 1e-12 for s in sums])
    p, test = difference_test(np.concatenate([values, np.zeros(20)]))
    assert test == (SIGN_FLIP if count > 1 else MCNEMAR)
    assert p == pytest.approx(expected)


def test_the_clustered_test_agrees_with_all_sign_patterns() -> None:
    rng = np.random.default_rng(3)
    patterns = np.array(list(itertools.product((1.0, -1.0), repeat=13)))
    for drift in (0.5, 0.7, 0.9):
        for _ in range(20):
            values = rng.choice([1 / 3, 0.5, 1.0], 13) * np.where(rng.random(13) < drift, 1, -1)
            p, test = difference_test(values)
            sums = np.abs(patterns @ values)
            exact = float(np.mean(sums >= abs(values.sum()) - 1e-12))
            assert test == CLUSTERED
            # Never far below the exact one: small p-values are if anything too large.
            assert p > 0.9 * exact
            assert p < exact + 0.06


@pytest.mark.nightly
def test_holm_on_its_textbook_example() -> None:
    # Four p-values at 5 %: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 raised to the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.2]) == [0.2]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("table", "interval"),
    [
        # Bentur et al. (2009) as in Fagerland, Lydersen and Laake (2014): -0.507 to -0.026.
        ((1, 1, 7, 12), (-0.507, -0.026)),
        # Altman et al., Statistics with Confidence (2000), table 6.2: 0.011 to 0.226.
        ((14, 5, 0, 22), (0.011, 0.226)),
    ],
)
def test_newcombe_on_published_tables(
    table: tuple[int, int, int, int], interval: tuple[float, float]
) -> None:
    assert newcombe(*table) == pytest.approx(interval, abs=5e-4)


def test_newcombe_has_a_width_where_nothing_moved() -> None:
    for table in ((5, 0, 0, 5), (10, 0, 0, 0), (0, 0, 0, 1)):
        low, high = newcombe(*table) or (0, 0)
        assert low < 0 < high
        assert low == -high
    assert newcombe(0, 0, 0, 0) is None


def test_newcombe_covers() -> None:
    """Of 2,000 draws with a true difference of 10 points about 95 % of the intervals hold it."""
    rng = np.random.default_rng(1)
    draws = rng.multinomial(60, [0.45, 0.2, 0.1, 0.25], size=2000)
    held = sum(low <= 0.1 <= high for low, high in (newcombe(*d.tolist()) or (0, 0) for d in draws))
    assert 0.935 <= held / 2000 <= 0.97


class TestIntervalsOverClusters:
    def test_they_are_mirrored_when_the_runs_are_swapped(self) -> None:
        values = np.random.default_rng(0).choice([-1, 0, 0.5, 1.0], 30)
        sizes = np.random.default_rng(1).integers(1, 4, 30)
        low, high = clustered_interval(values, sizes) or (0.0, 0.0)
        assert clustered_interval(-values, sizes) == pytest.approx((-high, -low))
        assert low < values.sum() / sizes.sum() < high

    def test_nothing_moved(self) -> None:
        """Of 20 clusters none moved: the exact limit is 1 - 0.025 ** (1 / 20)."""
        most = 1 - 0.025 ** (1 / 20)
        found = clustered_interval(np.zeros(20), np.ones(20))
        assert found == pytest.approx((-most, most))

    @pytest.mark.parametrize("values", [[0.5], [0.5, 0.5, 0.5], []])
    def test_no_interval_without_spread(self, values: list[float]) -> None:
        assert clustered_interval(np.array(values), np.ones(len(values))) is None

    def test_it_stays_within_the_possible(self) -> None:
        low, high = clustered_interval(np.array([1.0, 1.0, 0.9]), np.ones(3)) or (9.0, 9.0)
        assert -1 <= low <= high <= 1

    def test_units_of_one_task_are_one_piece_of_evidence(self) -> None:
        """Ten tasks asked four times each say no more than asked once."""
        values = np.array([1.0, 1, 0, 0, 0, -1, 0, 1, 0, 0])
        once = clustered_interval(values, np.ones(10))
        assert clustered_interval(4 * values, np.full(10, 4)) == pytest.approx(once)

    @pytest.mark.nightly
    def test_it_covers(self) -> None:
        rng = np.random.default_rng(2)
        held = 0
        for _ in range(200):
            values = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], 80, p=[0.05, 0.1, 0.5, 0.2, 0.15])
            low, high = clustered_interval(values, np.ones(80)) or (0.0, 0.0)
            held += low <= 0.15 <= high
        assert 180 <= held <= 199


def test_the_clustered_interval_by_hand() -> None:
    """Means of units +0.5, 0, 0, -0.25: mean 0.0625, s 0.3146, t(3) 3.1824."""
    values = np.array([0.5, 0.0, 0.0, -0.25])
    half = 3.182446305 * values.std(ddof=1) / 2
    found = clustered_interval(values, np.ones(4))
    assert found == pytest.approx((0.0625 - half, 0.0625 + half))


def test_what_is_detectable_by_hand() -> None:
    """z 1.959964 + 0.841621 = 2.801585: of 400 units 80 moved."""
    values = moves(50, 30, 320)
    assert detectable(values, ones(values)) == pytest.approx(2.801585 * sqrt(80) / 400, rel=1e-6)


def test_more_tests_and_shared_tasks_make_less_detectable() -> None:
    values = moves(6, 4, 90)
    alone = detectable(values, ones(values)) or 0
    assert (detectable(values, ones(values), 100) or 0) > alone
    assert detectable(np.zeros(40), np.full(40, 4)) == pytest.approx(
        detectable(np.zeros(40), np.ones(40))
    )


@pytest.mark.nightly
def test_the_detectable_difference_is_detected_about_four_times_in_five() -> None:
    rng = np.random.default_rng(5)
    n, share = 300, 0.2
    true = 2.801585 * sqrt(share / n)
    odds = [(share + true) / 2, (share - true) / 2, 1 - share]
    draws = rng.multinomial(n, odds, size=1500)
    seen = np.mean([difference_test(moves(int(g), int(lost)))[0] < 0.05 for g, lost, _ in draws])
    assert 0.74 <= seen <= 0.88
