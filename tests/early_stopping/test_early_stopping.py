"""Early stopping: confidence sequences, decisions, units and their order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.results import Estimate, Score
from ace_ray.config.schema import EarlyConfig
from ace_ray.early_stopping.betting import (
    SHARES,
    Decision,
    Draws,
    Outcome,
    Rule,
    confidence_sequence,
    decide,
    draws_to_decide,
    draws_to_reject,
)
from ace_ray.early_stopping.draw import EntryOrder
from ace_ray.early_stopping.looks import Comparison
from ace_ray.early_stopping.units import Item, Order, Unit, order_of, value_of, weighted_order
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode, Verdict
from tests.benchmarks.scored_row import scored_row

RULE = Rule(alpha=0.05, margin=0.01)


def draws(values: np.ndarray, weights: np.ndarray | None = None, of: int = 0) -> Draws:
    """Build the draws of known values, by default the first of ``of`` units of equal weight."""
    equal = np.full(len(values), 1 / max(1, of or len(values)))
    return Draws(values, values, equal if weights is None else weights / weights.sum())


def population(gained: int, lost: int, of: int, seed: int = 0) -> np.ndarray:
    values = np.zeros(of)
    values[:gained], values[gained : gained + lost] = 1.0, -1.0
    return np.random.default_rng(seed).permutation(values)


def test_a_true_null_is_rejected_as_often_as_alpha_says() -> None:
    """At any of all draws, over 2,000 orders of one population."""
    rng, alpha = np.random.default_rng(1), 0.1
    values, weights = population(30, 30, 300), rng.uniform(0.2, 3.0, 300)
    truth = float(values @ weights / weights.sum())
    wrong = 0
    for _ in range(2_000):
        order = np.argsort(rng.exponential(size=300) / weights)
        wrong += bool(
            np.isfinite(draws_to_reject(draws(values[order], weights[order]), truth, alpha))
        )
    # 2,000 * 0.1 with six standard deviations.
    assert wrong <= 2_000 * alpha + 6 * np.sqrt(2_000 * alpha * (1 - alpha))


def test_all_units_tell_the_difference_exactly() -> None:
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 200)
    values = population(25, 15, 200)
    truth = float(values @ weights / weights.sum())
    half = Draws(values[:100], values[:100], (weights / weights.sum())[:100])
    low, high = confidence_sequence(half, 0.05)
    assert low < truth < high
    exact = pytest.approx((truth, truth), abs=1e-12)
    assert confidence_sequence(draws(values, weights), 0.05) == exact
    assert np.isfinite(draws_to_reject(draws(values, weights), truth - 1e-6, 1e-9))


def capitals(values: np.ndarray, of: int, null: float) -> np.ndarray:
    """Return what a bettor has who began with 1 and bet on each of ``values``, of ``of`` in all."""
    money, shares = [np.ones(len(SHARES))], np.array(SHARES)
    for number, value in enumerate(values):
        expected = (null * of - values[:number].sum()) / (of - number)
        money.append(money[-1] * (1 + shares * ((value + 1) / (expected + 1) - 1)))
    return np.mean(money[1:], axis=1)


def test_each_side_bets_until_two_over_alpha() -> None:
    """A bound is the null that just pays; a decision, the first draw at which zero has paid."""
    values, alpha = population(60, 10, 400)[:150], 0.05
    low, high = confidence_sequence(draws(values, of=400), alpha)
    for side, bound in ((values, low), (-values, -high)):
        assert capitals(side, 400, bound).max() >= 2 / alpha
        assert capitals(side, 400, bound + 2e-4).max() < 2 / alpha
    paid = capitals(values, 400, 0.0) >= 2 / alpha
    decision = decide(draws(values, of=400), Rule(alpha, 0.0))
    assert decision == Decision(Outcome.BETTER, int(paid.argmax()) + 1)


@pytest.mark.parametrize(
    ("mine", "min_rows", "least"),
    [(1.0, 2, 1), (0.0, 2, 1), (1.0, 20, 17), (1.0, 500, 45)],
    ids=["better", "within", "least rows", "all rows"],
)
def test_headlines_share_alpha_and_need_rows(mine: float, min_rows: int, least: int) -> None:
    orders = {name: order(Simple()) for name in ("a", "b")}
    config = EarlyConfig(reference="x", alpha=0.08, margin=40.0, min_rows=min_rows)
    comparison = Comparison(EntryOrder(orders, np.zeros(100, np.int8)), config, 1)
    run: Any = SimpleNamespace(unit_bounds=lambda unit: (mine, mine))
    reference: Any = SimpleNamespace(unit_bounds=lambda unit: (0.0, 0.0))
    comparison.decide_headlines(run, reference)
    known = orders["a"].draws([(mine, mine)] * 45)
    expected = decide(known, Rule(0.04, 0.4, least))
    assert (expected != decide(known, Rule(0.08, 0.4, least))) == (min_rows == 2)
    assert [headline.decision for headline in comparison.headlines] == [expected] * 2
    comparison.headlines[1].decision = None
    assert not comparison.is_fully_decided


@pytest.mark.parametrize(
    ("gained", "lost", "margin", "outcome"),
    [
        (300, 100, 0.01, Outcome.BETTER),
        (100, 300, 0.01, Outcome.WORSE),
        (100, 100, 0.01, Outcome.WITHIN),
        (100, 100, 0.0, None),
        # The margin itself is not within.
        (110, 100, 0.01, Outcome.BETTER),
    ],
    ids=["better", "worse", "equal", "equal without a margin", "difference of the margin"],
)
def test_outcomes(gained: int, lost: int, margin: float, outcome: Outcome | None) -> None:
    decision = decide(draws(population(gained, lost, 1000)), replace(RULE, margin=margin))
    assert (decision.outcome if decision else None) is outcome


def test_a_decision_is_made_at_the_first_prefix_that_allows_it() -> None:
    """A run that was killed and resumed decides the same."""
    values = population(250, 100, 1000)
    decision = decide(draws(values), RULE)
    assert decision is not None
    assert decision.units < 1000
    for length in range(0, 1001, 25):
        prefix_decision = decide(draws(values[:length], of=1000), RULE)
        assert prefix_decision == (decision if length >= decision.units else None)
    rule = replace(RULE, min_units=100)
    assert decide(draws(np.ones(99), of=400), rule) is None
    assert decide(draws(np.ones(100), of=400), rule) == Decision(Outcome.BETTER, 100)
    # At one draw, the margin and zero are passed.
    assert decide(draws(np.array([0.5])), replace(RULE, margin=0.6)) == Decision(Outcome.BETTER, 1)
    close = draws(population(100, 100, 1000))
    assert decide(close, replace(RULE, margin=0.001)) == Decision(Outcome.WITHIN, 1000)


def test_unsettled_units_keep_both_sides_open() -> None:
    # Middles 0 and 0.5, and their mean for the remaining weight of 0.7.
    few = Draws(np.array([-1.0, 0.0]), np.ones(2), np.array([0.1, 0.2]))
    assert few.estimate == pytest.approx(0.2 * 0.5 + 0.7 * 0.25)
    values = population(300, 100, 1000)
    unknown = np.arange(1000) % 3 == 0
    lows, highs = np.where(unknown, -1.0, values), np.where(unknown, 1.0, values)
    assert decide(Draws(lows, highs, np.full(1000, 1e-3)), RULE) is None


def test_the_order_depends_on_names_and_weights_only() -> None:
    names = [f"u{i}" for i in range(200)]
    weights = [float(i % 4) for i in range(200)]
    order = weighted_order(names, weights)
    assert sorted(order) == list(range(200))
    positions = np.argsort(order)
    means = [positions[weight::4].mean() for weight in range(4)]
    assert means[3] < means[1] < means[0] == 174.5, "units without weight come last"
    shuffled = np.random.default_rng(0).permutation(200)
    again = weighted_order([names[i] for i in shuffled], [weights[i] for i in shuffled])
    assert [names[i] for i in order] == [names[shuffled[i]] for i in again]
    # Without the others, the first fifty keep their order.
    assert list(weighted_order(names[:50], weights[:50])) == [i for i in order if i < 50]


class Simple(Benchmark):
    """Two categories of equal weight, 10 and 40 entries; every fifth one is in a group of two."""

    name = "simple"
    groups: ClassVar[Mapping[str, Sequence[str]]] = {}

    def entries(self) -> list[Entry]:
        keys = [(c, n) for c, count in (("a", 10), ("b", 40)) for n in range(count)]
        groups = [f"{c}g{n // 10}" if n % 5 == 0 else "" for c, n in keys]
        return [
            Entry(id=f"{c}{n}", category=c, group=group, prompt="x")
            for (c, n), group in zip(keys, groups, strict=True)
        ]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict(True)


def headlined(value: Callable[[Mapping[str, Any]], float]) -> Benchmark:
    """Make a benchmark with a headline from its statistics."""

    class Headlined(Simple):
        @classmethod
        def scores(cls, summary: Mapping[str, Any], rules: str) -> Sequence[Score]:
            return [Score("Mean", "macro", Estimate(value(summary), (0, 1), 1))]

    return Headlined()


def by_category(summary: Mapping[str, Any]) -> dict[str, float]:
    return {name: group["correct"]["accuracy"] for name, group in summary["categories"].items()}


BALANCED = headlined(lambda summary: float(np.mean([*by_category(summary).values()])))


def order(benchmark: Benchmark) -> Any:
    entries = benchmark.dataset()
    return order_of(benchmark, entries, range(len(entries)))


def test_weights_are_those_of_the_headline() -> None:
    pooled = order(Simple())
    assert len(pooled.units) == 45, "groups are drawn together"
    assert pooled.weights == pytest.approx([len(u.items[0].entries) / 50 for u in pooled.units])
    balanced = order(BALANCED)
    small = ["/a/" in unit.name for unit in balanced.units]
    assert balanced.weights[small].sum() == pytest.approx(0.5)
    rounded = [Unit(name, (Item((at,), 0.3), Item((9,), 0.0))) for at, name in enumerate("ab")]
    few = Order(Simple, rounded, "correct")
    assert (few.weights.tolist(), few.rows(1, weighed=True).tolist()) == ([0.5, 0.5], [1, 1])
    with pytest.raises(UserError, match="the headline of simple is not a weighted mean"):
        order(headlined(lambda summary: summary["rules"]["correct"]["accuracy"] ** 2))
    row = scored_row("a", "a1", {"correct": Verdict(True)})
    with pytest.raises(UserError, match="2, which is not between 0 and 1"):
        value_of(type(headlined(lambda summary: 2.0)), iter([row]), "correct")


def test_all_units_together_are_the_headline() -> None:
    rng = np.random.default_rng(0)
    for benchmark in (Simple(), BALANCED):
        entries = benchmark.dataset()
        right = rng.uniform(size=len(entries)) < 0.6
        rows = [
            scored_row(e.category, e.id, {"correct": Verdict(bool(r))}, group=e.group or e.id)
            for e, r in zip(entries, right, strict=True)
        ]
        drawn, worth = order(benchmark), []
        for unit in drawn.units:
            values = [
                value_of(type(benchmark), iter([rows[at] for at in item.entries]), "correct")
                for item in unit.items
            ]
            weights = [item.weight / unit.weight for item in unit.items]
            worth.append(float(np.dot(weights, values)))
        draws = drawn.draws([(value, value) for value in worth])
        headline = value_of(type(benchmark), iter(rows), "correct")
        assert draws.estimate == pytest.approx(headline)


@pytest.mark.parametrize(
    ("draws_so_far", "needed", "expected"),
    [(100, 0.2, 100), (100, 0.1, 308), (100, 0.0, 1000), (999, 0.01, 1000)],
)
def test_the_draws_to_decide_follow_from_the_width(draws_so_far, needed, expected) -> None:
    assert draws_to_decide(draws_so_far, 1000, 0.2, needed) == expected
