"""Units of early stopping: tasks, with the weight that the headline gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import benchmark_class
from ace_ray.benchmarks.results import Estimate, Score
from ace_ray.config.schema import EarlyConfig
from ace_ray.early_stopping.draw import WINDOWS, draw
from ace_ray.early_stopping.units import order_of, value_of
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode, Verdict
from tests.benchmarks.scored_row import scored_row


class Simple(Benchmark):
    """Two categories of equal weight, 10 and 40 entries; every fifth one is in a group of two."""

    name = "simple"
    groups: ClassVar[Mapping[str, Sequence[str]]] = {}

    def entries(self) -> list[Entry]:
        return [
            Entry(
                id=f"{category}{number}",
                category=category,
                group=f"{category}g{number // 10}" if number % 5 == 0 else "",
                prompt="x",
            )
            for category, count in (("a", 10), ("b", 40))
            for number in range(count)
        ]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict(True)


class Balanced(Simple):
    @classmethod
    def scores(cls, summary: Mapping[str, Any], rules: str) -> Sequence[Score]:
        found = [one[rules]["accuracy"] for one in summary["categories"].values()]
        mean = sum(found) / len(found)
        return [Score("Mean", "macro", Estimate(mean, (0, 1), 1))]


class Squared(Simple):
    @classmethod
    def scores(cls, summary: Mapping[str, Any], rules: str) -> Sequence[Score]:
        value = summary["rules"][rules]["accuracy"] ** 2
        return [Score("Square", "square", Estimate(value, (0, 1), 1))]


class Weightless(Simple):
    """The headline leaves category b out."""

    @classmethod
    def scores(cls, summary: Mapping[str, Any], rules: str) -> Sequence[Score]:
        value = summary["categories"]["a"][rules]["accuracy"]
        return [Score("Only a", "a", Estimate(value, (0, 1), 1))]


def order(benchmark: Benchmark, seed: int = 0) -> Any:
    entries = benchmark.dataset()
    return order_of(benchmark, entries, range(len(entries)), ["correct"], seed)


def test_weights_are_those_of_the_headline() -> None:
    pooled = order(Simple())
    assert len(pooled.units) == 45, "groups are drawn together"
    assert pooled.weights == pytest.approx([len(u.items[0].entries) / 50 for u in pooled.units])
    balanced = order(Balanced())
    by_category: dict[str, float] = {}
    for unit, weight in zip(balanced.units, balanced.weights, strict=True):
        category = unit.name.split("/")[1]
        by_category[category] = by_category.get(category, 0.0) + weight
    assert by_category == pytest.approx({"a": 0.5, "b": 0.5})
    with pytest.raises(UserError, match="the headline of simple is not a weighted mean"):
        order(Squared())


def test_all_units_together_are_the_headline() -> None:
    rng = np.random.default_rng(0)
    for benchmark in (Simple(), Balanced()):
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
        draws = drawn.draws([(one, one) for one in worth])
        whole = value_of(type(benchmark), iter(rows), "correct")
        assert draws.estimate == pytest.approx(whole)


def test_windows_keep_the_order_of_units() -> None:
    benchmark = Simple()
    entries = benchmark.dataset()
    config = EarlyConfig(min_rows=10)
    drawn = draw(config, {"simple": benchmark}, entries, 2)
    sizes = np.bincount(drawn.windows) * 2
    assert len(sizes) <= WINDOWS
    assert sizes.sum() == 100
    assert all(6 <= size <= 14 for size in sizes[:-1])
    before = -1
    for unit in drawn.orders["simple"].units:
        windows = {int(drawn.windows[at]) for item in unit.items for at in item.entries}
        assert len(windows) == 1
        assert windows.pop() >= before
        before = max(int(drawn.windows[at]) for item in unit.items for at in item.entries)
    facts = drawn.as_json()
    assert facts["orders"]["simple"]["units"] == 45
    again = draw(config, {"simple": Simple()}, entries, 1).as_json()
    assert again["orders"] == facts["orders"]


def test_entries_without_weight_come_last() -> None:
    one = order(Weightless())
    weighed = [unit.weight > 0 for unit in one.units]
    assert weighed == sorted(weighed, reverse=True)
    assert sum(one.rows(2, weighed=True)) == 2 * 10
    assert sum(one.rows(2)) == 2 * 50


@pytest.mark.nightly
def test_installed_benchmarks_can_be_decided(tmp_path: Any) -> None:
    for name, options in (
        ("acebench", {}),
        ("bfcl", {"data": "installed", "categories": ["live_relevance", "simple_python"]}),
        ("bfcl", {"data": "installed", "categories": ["single_turn"]}),
        ("tau2", {"data": "installed", "domains": ["airline", "retail"]}),
    ):
        benchmark = benchmark_class(name).from_options(options)
        entries = benchmark.dataset()
        rules = [benchmark.rule_sets[0]]
        drawn = order_of(benchmark, entries, range(len(entries)), rules, 0)
        assert sum(len(item.entries) for unit in drawn.units for item in unit.items) == len(entries)
        assert drawn.weights.sum() == pytest.approx(1)
