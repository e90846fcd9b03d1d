from __future__ import annotations

from collections.abc import Callable, Iterable
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


Chance = Callable[[int, int, int], float]
COUNTS = [(n, c) for n in range(1, 7) for c in range(n + 1)]


@pytest.mark.parametrize(("chance", "right"), [(pass_at_k, any), (pass_hat_k, all)])
def test_a_chance_over_k_samples_equals_counting_subsets(
    chance: Chance, right: Callable[[Iterable[bool]], bool]
) -> None:
    for n, c in COUNTS:
        samples = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(combinations(samples, k))
            share = sum(right(subset) for subset in subsets) / len(subsets)
            assert chance(n, c, k) == pytest.approx(share)


def test_one_sample_is_the_share_and_more_samples_part_the_two() -> None:
    for n, c in COUNTS:
        at, hat = ([f(n, c, k) for k in range(1, n + 1)] for f in (pass_at_k, pass_hat_k))
        assert at[0] == hat[0] == c / n
        assert at == sorted(at)
        assert hat == sorted(hat, reverse=True)
        if 0 < c < n:
            assert (at[-1], hat[-1]) == (1, 0)


@pytest.mark.parametrize(("chance", "name"), [(pass_at_k, "pass@"), (pass_hat_k, r"pass\^")])
@pytest.mark.parametrize(("n", "c", "k"), [(0, 0, 1), (3, 4, 1), (3, 1, 4), (3, 1, 0)])
def test_what_cannot_be_estimated_is_refused(
    chance: Chance, name: str, n: int, c: int, k: int
) -> None:
    with pytest.raises(ValueError, match=name):
        chance(n, c, k)
