"""Several samples of an entry: means over entries of pass@k and pass^k, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from ace_ray.benchmarks.statistics import sample_tables
from ace_ray.benchmarks.tally import Tally, accuracies
from ace_ray.types import Verdict
from ace_ray.util.stats import wilson
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.test_base import Mine

ENTRIES = ([1, 0, 0, 1], [1, 1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1, 1, 1])


def rows(*entries: Sequence[float], category: str = "c") -> list[Any]:
    """Build rows of entries with these scores of their samples."""
    return [
        scored_row(category, str(number), {"correct": Verdict.graded(score)}, sample=sample)
        for number, scores in enumerate(entries)
        for sample, score in enumerate(scores)
    ]


def stats(*entries: Sequence[float], multi_turn: bool = False) -> dict[str, Any]:
    tally = Tally("c", ("correct",), multi_turn=multi_turn)
    for row in rows(*entries):
        tally.add(row)
    return accuracies([tally], "correct")


def test_samples_are_means_over_entries_of_the_chances() -> None:
    found = stats(*ENTRIES)["samples"]
    assert (found["min"], found["max"]) == (4, 6)
    for name, right in (("pass_at_k", any), ("pass_hat_k", all)):
        shares: dict[str, float] = {}
        for k in range(1, 5):
            drawn = [[right(some) for some in combinations(one, k)] for one in ENTRIES]
            shares[str(k)] = sum(sum(one) / len(one) for one in drawn) / len(ENTRIES)
        assert found[name] == pytest.approx(shares)
        for at, share in shares.items():
            assert found[f"{name}_intervals"][at] == pytest.approx(wilson(share * 4, 4))
    assert found["mean"] == pytest.approx((0.5 + 0.8 + 0 + 1) / 4)
    assert found["pass_at_k"]["1"] == found["pass_hat_k"]["1"] == found["mean"]


@pytest.mark.parametrize(
    ("fewest", "ks"), [(1, [1]), (5, [1, 2, 3, 4, 5]), (40, [*range(1, 33), 40])]
)
def test_k_goes_up_to_the_fewest_samples(fewest: int, ks: list[int]) -> None:
    found = stats([1] * fewest, [0] * (fewest + 1))["samples"]
    for name in ("pass_at_k", "pass_hat_k"):
        assert list(found[name]) == list(found[f"{name}_intervals"]) == [str(k) for k in ks]


def test_graded_scores_and_single_samples_have_no_k() -> None:
    assert "samples" not in stats([1], [0])
    for scores in ([0.5, 0.25], [0.5, 0.5]):
        found = stats(scores, [1, 1])["samples"]
        assert found["mean"] == (sum(scores) / 2 + 1) / 2
        assert found["pass_at_k"] == found["pass_hat_k_intervals"] == {}
        assert sample_tables({"c": {"correct": {"samples": found, "n": 2}}}, ("correct",)) == []
    # A dialogue of graded turns is right or wrong.
    found = stats([1, 0.5], multi_turn=True)["samples"]
    assert (found["pass_at_k"], found["pass_hat_k"]) == ({"1": 0.5, "2": 1}, {"1": 0.5, "2": 0})


def test_the_table_of_samples() -> None:
    entries = {"a": [[1, 1, 0, 1], [0, 0, 0, 0]], "one": [[1]], "b": [[1, 0]]}
    categories = {name: {"correct": stats(*scores)} for name, scores in entries.items()}
    (table,) = sample_tables(categories, ("correct",))
    assert table["header"] == ["category", "rules", "n", "k", "pass@k", "pass^k"]
    assert table["lines"] == [
        ["a", "correct", "2", "1", "37.5 % [5.6, 85.8]", "37.5 % [5.6, 85.8]"],
        ["a", "correct", "2", "2", "50.0 % [9.5, 90.5]", "25.0 % [2.7, 80.2]"],
        ["a", "correct", "2", "4", "50.0 % [9.5, 90.5]", "0.0 % [0.0, 65.8]"],
        ["b", "correct", "1", "1", "50.0 % [5.5, 94.5]", "50.0 % [5.5, 94.5]"],
        ["b", "correct", "1", "2", "100.0 % [20.7, 100.0]", "0.0 % [0.0, 79.3]"],
    ]
    (table,) = sample_tables({"a": {"correct": stats([1] * 20)}}, ("correct",))
    assert [line[3] for line in table["lines"]] == ["1", "2", "4", "20"]
    assert "further_tables" not in Mine().summarize(rows([1], [0]), 0.0)
    (table,) = Mine().summarize(rows([1, 1], [0, 1]), 0.0)["further_tables"]
    assert [line[:4] for line in table["lines"]] == [["c", "correct", "2", k] for k in "12"]
