"""BM25+ against numbers from rank_bm25 0.2.2, to the last bit."""

from __future__ import annotations

import pytest

from ace_ray.benchmarks.bfcl.tools.standins import BM25Plus

KEYS = ["dog_name", "favourite_food", "name_of_the_first_dog", "birthday", "dog_food_brand"]


@pytest.mark.parametrize(
    ("query", "scores"),
    [
        (
            "name of the dog",
            [
                *(7.374666656608174, 5.375278407684165, 9.173029456591456),
                *(5.375278407684165, 6.023545554970445),
            ],
        ),
        (
            "food food cat",
            [
                *(2.1972245773362196, 4.649063161488224, 2.1972245773362196),
                *(2.1972245773362196, 4.2521828151326835),
            ],
        ),
        ("nothing", [0.0] * 5),
    ],
)
def test_scores(query: str, scores: list[float]) -> None:
    assert BM25Plus([key.split("_") for key in KEYS]).get_scores(query.split()) == scores


def test_no_documents() -> None:
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        BM25Plus([])
