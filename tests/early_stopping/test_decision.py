"""What a comparison comes to, and when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ace_ray.early_stopping.betting import Decision, Draws, Outcome, Rule, decide

RULE = Rule(alpha=0.05, margin=0.01)


def draws(values: list[float] | np.ndarray, of: int | None = None) -> Draws:
    values = np.asarray(values, float)
    return Draws(values, values, np.full(len(values), 1 / (of or len(values))))


def drawn(gained: int, lost: int, of: int, seed: int = 0) -> np.ndarray:
    values = np.zeros(of)
    values[:gained], values[gained : gained + lost] = 1.0, -1.0
    return np.random.default_rng(seed).permutation(values)


@pytest.mark.parametrize(
    ("gained", "lost", "outcome"),
    [(300, 100, Outcome.BETTER), (100, 300, Outcome.WORSE), (100, 100, Outcome.WITHIN)],
)
def test_outcomes(gained: int, lost: int, outcome: Outcome) -> None:
    found = decide(draws(drawn(gained, lost, 1000)), RULE)
    assert found is not None
    assert found.outcome is outcome


def test_a_decision_is_that_of_the_first_prefix_that_allows_it() -> None:
    """Whenever one looks: a run that was killed and resumed decides the same."""
    values = drawn(250, 100, 1000)
    whole = decide(draws(values), RULE)
    assert whole is not None
    assert whole.units < 1000
    for seen in range(0, 1001, 25):
        found = decide(draws(values[:seen], 1000), RULE)
        assert found == (whole if seen >= whole.units else None)


def test_nothing_is_decided_on_fewer() -> None:
    values = np.ones(400)
    rule = replace(RULE, min_units=100)
    assert decide(draws(values[:99], 400), rule) is None
    assert decide(draws(values[:100], 400), rule) == Decision(Outcome.BETTER, 100)


def test_without_a_margin_equal_runs_are_undecided() -> None:
    values = drawn(100, 100, 1000)
    assert decide(draws(values), replace(RULE, margin=0.0)) is None
    assert decide(draws(values), replace(RULE, margin=0.001)) == Decision(Outcome.WITHIN, 1000)


def test_the_margin_itself_is_not_within() -> None:
    values = drawn(110, 100, 1000)
    found = decide(draws(values), replace(RULE, margin=0.01))
    assert found is not None
    assert found.outcome is Outcome.BETTER


def test_unsettled_units_keep_both_sides_open() -> None:
    values = drawn(300, 100, 1000)
    unknown = np.arange(1000) % 3 == 0
    lows, highs = np.where(unknown, -1.0, values), np.where(unknown, 1.0, values)
    bounded = Draws(lows, highs, np.full(1000, 1e-3))
    assert decide(bounded, RULE) is None
