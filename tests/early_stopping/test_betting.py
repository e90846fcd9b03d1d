"""Confidence sequences by betting: never below what is true more often than they say, and exact at
the end."""

from __future__ import annotations

import numpy as np
import pytest

from ace_ray.early_stopping.betting import (
    Draws,
    confidence_sequence,
    log_capital,
    lower_bound,
    rejected_at,
)
from ace_ray.early_stopping.units import drawn_order

ALPHA = 0.1


def draws(values: np.ndarray, weights: np.ndarray | None = None) -> Draws:
    count = values.shape[-1]
    equal = np.full(count, 1 / max(1, count))
    return Draws(values, values, equal if weights is None else weights / weights.sum())


def population(rng: np.random.Generator, count: int, difference: float) -> np.ndarray:
    moved = round(0.2 * count)
    gained = round((moved + difference * count) / 2)
    values = np.zeros(count)
    values[:gained], values[gained:moved] = 1.0, -1.0
    return rng.permutation(values)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_true_null_is_rejected_as_often_as_alpha_says(weighted: bool) -> None:
    """At any of all draws, over 2,000 orders of one population."""
    rng = np.random.default_rng(1)
    values = population(rng, 300, 0.0)
    weights = rng.uniform(0.2, 3.0, 300) if weighted else np.ones(300)
    truth = float(values @ weights / weights.sum())
    wrong = 0
    for _ in range(2_000):
        keys = rng.exponential(size=300) / weights if weighted else rng.uniform(size=300)
        order = np.argsort(keys)
        at = rejected_at(draws(values[order], weights[order]), truth, ALPHA)
        wrong += bool(np.isfinite(at))
    # 2,000 * 0.1 with six standard deviations.
    assert wrong <= 2_000 * ALPHA + 6 * np.sqrt(2_000 * ALPHA * (1 - ALPHA))


def test_all_units_tell_the_difference_exactly() -> None:
    rng = np.random.default_rng(2)
    weights = rng.uniform(0.5, 2.0, 200)
    values = population(rng, 200, 0.05)
    truth = float(values @ weights / weights.sum())
    half = Draws(values[:100], values[:100], (weights / weights.sum())[:100])
    low, high = confidence_sequence(half, 0.05)
    assert low < truth < high
    low, high = confidence_sequence(draws(values, weights), 0.05)
    assert low == pytest.approx(truth, abs=1e-12)
    assert high == pytest.approx(truth, abs=1e-12)
    assert np.isfinite(rejected_at(draws(values, weights), truth - 1e-6, 1e-9))


def test_capitals_of_nested_nulls_are_nested_on_every_path() -> None:
    """So what is not rejected is an interval, and tests of several nulls share one alpha."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        count = int(rng.integers(2, 60))
        values = rng.uniform(-1, 1, count)
        one = draws(values, rng.uniform(0.1, 2.0, count))
        before = np.full(count, np.inf)
        for null in np.linspace(-1.0, 1.0, 21):
            capital = log_capital(one, float(null))
            assert np.all(capital <= before + 1e-9)
            before = capital


def test_at_the_ends_of_the_range() -> None:
    """A null whose mean of what is left leaves [-1, 1] is impossible, or lost for ever."""
    right = draws(np.ones(10))
    assert rejected_at(right, -1.0, 0.05) == 1.0
    assert np.isinf(rejected_at(right, 1.0, 0.05))
    assert rejected_at(right, 0.999, 1e-12) == 10.0
    wrong = draws(-np.ones(10))
    for null in (-1.0, 0.0, 1.0):
        assert np.isinf(rejected_at(wrong, null, 0.5))
        assert np.all(np.isfinite(log_capital(wrong, null)))
    mixed = draws(np.array([1.0] * 9 + [-1.0]))
    # After nine of ten, the difference is at least 0.8 whatever comes.
    assert rejected_at(mixed, 0.79, 1e-12) == 9.0
    assert np.isinf(rejected_at(mixed, 0.8, 1e-12))


@pytest.mark.nightly
def test_unknown_values_are_at_their_worst() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        values = rng.choice([-1.0, 0.0, 1.0], 80)
        unknown = rng.uniform(size=80) < 0.2
        lows, highs = np.where(unknown, -1.0, values), np.where(unknown, 1.0, values)
        bounded = Draws(lows, highs, np.full(80, 1 / 80))
        for null in (-0.2, 0.0, 0.2):
            assert np.all(log_capital(bounded, null) <= log_capital(draws(values), null) + 1e-9)
        low, high = confidence_sequence(bounded, 0.1)
        of_known = confidence_sequence(draws(values), 0.1)
        assert low <= of_known[0] + 1e-3
        assert high >= of_known[1] - 1e-3


def test_bounds_never_loosen() -> None:
    values = population(np.random.default_rng(5), 150, 0.1)
    prefixes = [Draws(values[:n], values[:n], np.full(n, 1 / 150)) for n in range(10, 151, 20)]
    assert np.all(np.diff([lower_bound(one, 0.05) for one in prefixes]) >= -1e-4)


def test_without_draws_nothing_is_rejected() -> None:
    empty = draws(np.zeros(0))
    assert np.isinf(rejected_at(empty, -1.0, 0.5))


def test_the_order_depends_on_nothing_but_seed_names_and_weights() -> None:
    names = [f"u{i}" for i in range(200)]
    weights = [1.0 + i % 3 for i in range(200)]
    order = drawn_order(names, weights, 7)
    assert sorted(order) == list(range(200))
    shuffled = np.random.default_rng(0).permutation(200)
    again = drawn_order([names[i] for i in shuffled], [weights[i] for i in shuffled], 7)
    assert [names[i] for i in order] == [names[shuffled[i]] for i in again]
    assert list(order) != list(drawn_order(names, weights, 8))
    # Fewer others do not change who comes before whom.
    some = drawn_order(names[:50], weights[:50], 7)
    assert list(some) == [i for i in order if i < 50]


def test_heavy_units_come_early_and_those_without_weight_last() -> None:
    weights = [4.0] * 100 + [1.0] * 100 + [0.0] * 5
    places = np.zeros(205)
    for seed in range(60):
        order = drawn_order([f"u{i}" for i in range(205)], weights, seed)
        assert set(order[-5:].tolist()) == set(range(200, 205))
        places[order] += np.arange(205) / 60
    # Of the first draw a heavy one has four chances in five.
    assert places[:100].mean() < 75 < 125 < places[100:200].mean()
