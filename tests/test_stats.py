from __future__ import annotations

from itertools import combinations

import pytest

from ace_ray.stats import pass_at_k, weighted_interval, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_wilson_known_values(successes: int, n: int, low: float, high: float) -> None:
    interval = wilson(successes, n)
    assert interval is not None
    assert interval == pytest.approx((low, high), abs=5e-5)
    assert interval[0] <= successes / n <= interval[1]


def test_wilson_has_no_interval_without_evidence() -> None:
    assert wilson(0, 0) is None
    assert wilson(0, 5)[0] == 0.0  # type: ignore[index]
    assert wilson(5, 5)[1] == 1.0  # type: ignore[index]
    assert wilson(2.5, 5) == pytest.approx((0.1704, 0.8296), abs=5e-5)
    with pytest.raises(ValueError, match="6 successes of 5"):
        wilson(6, 5)


def test_weighted_interval_of_one_part_is_its_own() -> None:
    assert weighted_interval([(1.0, 0.9, (0.8, 0.95))]) == pytest.approx((0.8, 0.95))
    low, high = weighted_interval([(0.5, 1.0, (0.84, 1.0)), (0.5, 1.0, (0.84, 1.0))])
    assert high == 1.0
    assert low == pytest.approx(1 - (2 * 0.08**2) ** 0.5)


def test_pass_at_k_equals_counting_subsets() -> None:
    for n in range(1, 7):
        for c in range(n + 1):
            right = [True] * c + [False] * (n - c)
            for k in range(1, n + 1):
                subsets = list(combinations(right, k))
                share = sum(any(s) for s in subsets) / len(subsets)
                assert pass_at_k(n, c, k) == pytest.approx(share)


@pytest.mark.parametrize(("n", "c", "k"), [(0, 0, 1), (3, 4, 1), (3, 1, 4), (3, 1, 0)])
def test_pass_at_k_refuses_what_it_cannot_estimate(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)
