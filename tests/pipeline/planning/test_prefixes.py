"""The order of prompts by their prefixes, and where blocks are cut."""

import numpy as np

from ace_ray.pipeline.planning.prefixes import common_length, cuts, largest_first, ranks
from tests.pipeline.planning.toy_benchmark import Toy, planned


def test_texts_with_a_common_prefix_are_neighbours() -> None:
    assert ranks(["tools b, x", "tools a, y", "tools b, a", "tools a"]).tolist() == [3, 1, 2, 0]
    assert [common_length(*two) for two in (("abc", "abd"), ("ab", "abc"), ("", "a"))] == [2, 2, 0]


def test_a_block_ends_where_prompts_share_least() -> None:
    common = np.array([0, 9, 9, 2, 9, 9, 9, 9, 1, 9])
    assert cuts(common, 2, 4) == [(0, 3), (3, 7), (7, 10)]
    assert cuts(common, 2, 20) == [(0, 10)]
    assert cuts(common[:0], 2, 4) == []
    # Three samples of each entry stay together.
    samples = np.array([0, 50, 50] * 7)
    assert {start % 3 for start, _ in cuts(samples, 2, 4)} == {0}


def test_the_block_with_the_most_work_starts_first() -> None:
    sizes, common = np.array([900, 900, 500, 500]), np.array([0, 880, 0, 10])
    # The second prompt is nearly computed with the first.
    assert largest_first([(0, 2), (2, 4)], sizes, common) == [(2, 4), (0, 2)]


def test_rows_that_are_left_share_what_the_rows_between_them_share() -> None:
    rows = planned(Toy(["aaaa", "aabb", "abbb", "abbc"])).rows
    subset = rows.select(np.array([True, False, False, True]))
    assert subset.common[0] == rows.common[0]
    assert subset.common[1] == min(rows.common[1:])
