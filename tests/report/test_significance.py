"""Tests and intervals against published numbers and by hand."""

from __future__ import annotations

import itertools
from math import erfc, sqrt

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

pytestmark = pytest.mark.filterwarnings("error")


def moves(gained: int, lost: int, still: int = 0) -> np.ndarray:
    return np.array([1.0] * gained + [-1.0] * lost + [0.0] * still)


def test_mcnemar_on_published_tables_and_by_hand() -> None:
    assert difference_test(moves(0, 0, 30)) == (1.0, MCNEMAR)
    assert difference_test(moves(0, 6, 30)) == (pytest.approx(2 / 2**6), MCNEMAR)
    assert difference_test(0.5 * moves(12, 2)) == difference_test(moves(12, 2, 30))
    # Agresti's movie of approval ratings, 150 and 86 off the diagonal; Bentur et al. (2009), 1 and
    # 7, exact p 0.0703 in Fagerland, Lydersen and Laake (2013).
    assert difference_test(moves(86, 150))[0] == pytest.approx(3.7e-5, rel=0.02)
    assert difference_test(moves(7, 1))[0] == pytest.approx(0.0703, abs=5e-5)


@pytest.mark.parametrize("count", [2, 5, MOST_ENUMERATED])
def test_the_sign_flip_tries_every_pattern(count: int) -> None:
    values = np.array([0.25, 0.5, 1.0, 0.75] * 3)[:count] * np.resize([1, 1, -1, 1, 1], count)
    sums = [abs(float(np.dot(values, signs))) for signs in itertools.product((1, -1), repeat=count)]
    expected = np.mean([s >= abs(values.sum()) - 1e-12 for s in sums])
    p, test = difference_test(np.concatenate([values, np.zeros(20)]))
    assert test == SIGN_FLIP
    assert p == pytest.approx(expected)


def test_many_moves_take_the_clustered_test() -> None:
    values = np.array([0.5] * 10 + [1.0] * 3 + [-0.5] * 2)
    # z = (7 - 0.5) / sqrt(10 * 0.25 + 3 + 0.5), two-sided.
    assert difference_test(values) == (pytest.approx(erfc(6.5 / sqrt(6) / sqrt(2))), CLUSTERED)


def test_holm_on_its_textbook_example() -> None:
    # Four p-values at 5 %: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 raised to the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_newcombe_on_published_tables_and_where_nothing_moved() -> None:
    # Bentur et al. (2009) as in Fagerland, Lydersen and Laake (2014): -0.507 to -0.026.
    assert newcombe(1, 1, 7, 12) == pytest.approx((-0.507, -0.026), abs=5e-4)
    # Altman et al., Statistics with Confidence (2000), table 6.2: 0.011 to 0.226.
    assert newcombe(14, 5, 0, 22) == pytest.approx((0.011, 0.226), abs=5e-4)
    for table in ((5, 0, 0, 5), (10, 0, 0, 0), (0, 0, 0, 1)):
        low, high = newcombe(*table) or (0, 0)
        assert low < 0 < high
        assert low == -high
    assert newcombe(0, 0, 0, 0) is None


def test_the_clustered_interval_by_hand() -> None:
    """Means of units +0.5, 0, 0, -0.25: mean 0.0625, s 0.3146, t(3) 3.1824."""
    values = np.array([0.5, 0.0, 0.0, -0.25])
    half = 3.182446305 * values.std(ddof=1) / 2
    found = clustered_interval(values, np.ones(4))
    assert found == pytest.approx((0.0625 - half, 0.0625 + half))
    # Ten tasks asked four times each say no more than asked once.
    values = np.array([1.0, 1, 0, 0, 0, -1, 0, 1, 0, 0])
    once = clustered_interval(values, np.ones(10))
    assert clustered_interval(4 * values, np.full(10, 4)) == pytest.approx(once)
    # It stays within the possible.
    low, high = clustered_interval(np.array([1.0, 1.0, 0.9]), np.ones(3)) or (9.0, 9.0)
    assert -1 <= low <= high <= 1


def test_clusters_that_all_moved_alike() -> None:
    """Of 20 clusters none moved: the exact limit is 1 - 0.025 ** (1 / 20)."""
    most = 1 - 0.025 ** (1 / 20)
    found = clustered_interval(np.zeros(20), np.ones(20))
    assert found == pytest.approx((-most, most))
    for values in ([0.5], [0.5, 0.5, 0.5], []):
        assert clustered_interval(np.array(values), np.ones(len(values))) is None


def test_the_detectable_difference_by_hand() -> None:
    """z 1.959964 + 0.841621 = 2.801585: of 400 units 80 moved."""
    values = moves(50, 30, 320)
    alone = detectable(values, np.ones(400))
    assert alone == pytest.approx(2.801585 * sqrt(80) / 400, rel=1e-6)
    assert (detectable(values, np.ones(400), 100) or 0) > (alone or 1)
    # Entries of one task are one piece of evidence. With a share d of moves, d is z ** 2 / n.
    assert detectable(np.zeros(40), np.full(40, 4)) == pytest.approx(2.801585**2 / 40, rel=1e-6)
