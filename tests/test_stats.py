"""Intervals and chances, against published numbers and by counting."""

from itertools import combinations

import pytest

from ace_ray.util.stats import pass_at_k, pass_hat_k, weighted_interval, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
        (2.5, 5, 0.1704, 0.8296),
        # z^2 / (n + z^2) beside a limit that rounding would move past the share.
        (0, 3, 0.0, 0.5615),
        (10, 10, 0.7225, 1.0),
    ],
)
def test_wilson_intervals_are_the_published_ones(successes, n, low, high) -> None:
    interval = wilson(successes, n)
    assert interval == pytest.approx((low, high), abs=5e-5)
    assert interval is not None
    assert interval[0] <= successes / n <= interval[1]


@pytest.mark.parametrize("successes", [-1, 3])
def test_impossible_numbers_of_successes_are_refused(successes: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} successes of 2 are impossible"):
        wilson(successes, 2)


def test_a_weighted_interval_adds_squared_distances() -> None:
    assert weighted_interval([(1.0, 0.9, (0.8, 0.95))]) == pytest.approx((0.8, 0.95))
    low, high = weighted_interval([(0.5, 1.0, (0.84, 1.0)), (0.5, 1.0, (0.84, 1.0))])
    assert high == 1.0
    assert low == pytest.approx(1 - (2 * 0.08**2) ** 0.5)


@pytest.mark.parametrize(
    ("chance", "right", "name"), [(pass_at_k, any, "pass@"), (pass_hat_k, all, r"pass\^")]
)
def test_a_chance_of_k_samples_is_the_share_of_subsets(chance, right, name) -> None:
    for n in range(1, 7):
        for c in range(n + 1):
            samples = [True] * c + [False] * (n - c)
            for k in range(1, n + 1):
                subsets = list(combinations(samples, k))
                share = sum(map(right, subsets)) / len(subsets)
                assert chance(n, c, k) == pytest.approx(share)
            assert chance(n, c, 1) == c / n
    for invalid in ((0, 0, 1), (3, 4, 1), (3, 1, 4), (3, 1, 0)):
        with pytest.raises(ValueError, match=name):
            chance(*invalid)
