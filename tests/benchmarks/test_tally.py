"""What several samples of an entry say: means over entries of pass@k and pass^k."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from ace_ray.benchmarks.tally import Tally, accuracies
from ace_ray.types import Verdict
from ace_ray.util.stats import wilson
from tests.benchmarks.scored_row import scored_row


def stats(*entries: Sequence[float], multi_turn: bool = False) -> dict[str, Any]:
    """The statistics of entries with so many samples of these scores."""
    tally = Tally("c", ("correct",), multi_turn=multi_turn)
    for number, scores in enumerate(entries):
        for sample, score in enumerate(scores):
            verdict = Verdict.graded(score)
            tally.add(scored_row("c", str(number), {"correct": verdict}, sample=sample))
    return accuracies([tally], "correct")


ENTRIES = ([1, 0, 0, 1], [1, 1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1, 1, 1])


def test_samples_are_means_over_entries_of_the_chances() -> None:
    found = stats(*ENTRIES)["samples"]
    assert (found["min"], found["max"]) == (4, 6)
    for name, right in (("pass_at_k", any), ("pass_hat_k", all)):
        shares: dict[str, float] = {}
        for k in range(1, 5):
            drawn = [[right(some) for some in combinations(one, k)] for one in ENTRIES]
            shares[str(k)] = sum(sum(one) / len(one) for one in drawn) / len(ENTRIES)
        assert found[name] == pytest.approx(shares)
        intervals = {k: wilson(share * 4, 4) for k, share in shares.items()}
        assert found[f"{name}_intervals"].keys() == intervals.keys()
        for at, interval in intervals.items():
            assert found[f"{name}_intervals"][at] == pytest.approx(interval)
    assert found["mean"] == pytest.approx((0.5 + 0.8 + 0 + 1) / 4)
    assert found["pass_at_k"]["1"] == found["pass_hat_k"]["1"] == found["mean"]


@pytest.mark.parametrize(
    ("fewest", "ks"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (4, [1, 2, 3, 4]),
        (5, [1, 2, 3, 4, 5]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (40, [*range(1, 33), 40]),
    ],
)
def test_k_goes_up_to_the_fewest_samples(fewest: int, ks: list[int]) -> None:
    found = stats([1] * fewest, [0] * (fewest + 1))["samples"]
    for name in ("pass_at_k", "pass_hat_k"):
        assert list(found[name]) == list(found[f"{name}_intervals"]) == [str(k) for k in ks]


def test_one_sample_of_each_says_nothing_more() -> None:
    assert "samples" not in stats([1], [0])


@pytest.mark.parametrize("scores", [[0.5, 0.25], [0.5, 0.5]])
def test_graded_scores_have_a_mean_only(scores: list[float]) -> None:
    """Also where they add up to a whole number."""
    found = stats(scores, [1, 1])["samples"]
    assert found.pop("mean") == (sum(scores) / 2 + 1) / 2
    assert found == {
        "min": 2,
        "max": 2,
        "pass_at_k": {},
        "pass_at_k_intervals": {},
        "pass_hat_k": {},
        "pass_hat_k_intervals": {},
    }


def test_a_dialogue_of_graded_turns_is_right_or_wrong() -> None:
    found = stats([1, 0.5], multi_turn=True)["samples"]
    assert (found["pass_at_k"], found["pass_hat_k"]) == ({"1": 0.5, "2": 1}, {"1": 0.5, "2": 0})
