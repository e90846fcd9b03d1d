"""When a run says that its rows do not show what the model can do, and with which numbers."""

from __future__ import annotations

import json
from typing import Any

from ace_ray.benchmarks.diagnosis import (
    MIN_CATEGORY_SHARE,
    MIN_ROWS,
    MIN_SHARE,
    diagnose,
)
from ace_ray.benchmarks.results import ResultRow, SecondReading
from ace_ray.types import SCORE, Verdict


def row(valid: bool = False, status: str = "scored", category: str = "c", **more: Any) -> ResultRow:
    verdict = Verdict(valid, "" if valid else "no_calls")
    return ResultRow(
        row_id="r",
        benchmark="toy",
        category=category,
        language="en",
        id="i",
        group="i",
        sample=0,
        status=status,
        verdicts={"official": verdict, "strict": verdict} if status == "scored" else {},
        **more,
    )


def unread(reader: str = "fenced_json", **more: Any) -> ResultRow:
    return row(second_reading=SecondReading(reader, "answer", 1), **more)


def test_a_run_whose_calls_were_read_has_no_findings() -> None:
    assert diagnose([row(True)] * 100) == []
    assert diagnose([row(False)] * 100) == []
    assert diagnose([]) == []


def test_the_threshold_is_a_number_of_rows_and_a_share() -> None:
    assert (MIN_ROWS, MIN_SHARE) == (5, 0.05)
    assert diagnose([unread()] * 4) == []
    assert len(diagnose([unread()] * 5)) == 1
    assert diagnose([unread()] * 5 + [row()] * 96) == []
    assert len(diagnose([unread()] * 5 + [row()] * 95)) == 1


def test_unread_calls_say_which_readers_find_them() -> None:
    hermes = unread("hermes")
    (finding,) = diagnose([row(True)] * 2 + [hermes] * 2 + [unread()] * 4 + [row()] * 2)
    assert (finding["kind"], finding["rows"], finding["of"]) == ("unread_calls", 6, 10)
    assert dict(finding["readers"]) == {"fenced_json": 4, "hermes": 2}
    assert finding["accuracy"] == {"official": 0.2, "strict": 0.2}
    assert "6 of 10 rows hold calls that were not read" in finding["text"]
    assert "fenced_json (4), hermes (2)" in finding["text"]
    assert json.loads(json.dumps(finding)) == finding


def test_a_category_is_a_finding_though_the_benchmark_has_few() -> None:
    others = [row(category=f"other {number % 20}") for number in range(4241)]
    (finding,) = diagnose([*[unread(category="simple")] * 200, *others])
    assert (finding["rows"], finding["of"]) == (200, 4441)
    assert finding["categories"] == {"simple": {"rows": 200, "of": 200}}
    assert "200 of 4441 rows (200 of 200 in simple) hold calls" in finding["text"]
    (finding,) = diagnose([*[row(category="long", finish_reason="length")] * 30, *others])
    assert (finding["kind"], finding["categories"]) == (
        "cut_by_length",
        {"long": {"rows": 30, "of": 30}},
    )
    # Of the whole benchmark it says so without its categories.
    (finding,) = diagnose([*[unread(category="simple")] * 200, *others[:3800]])
    assert "categories" not in finding


def test_the_threshold_of_a_category_is_a_number_of_rows_and_a_larger_share() -> None:
    assert MIN_CATEGORY_SHARE == 0.1
    others = [row(category="d")] * 1000

    def found(rows: int, of: int) -> int:
        small = [unread(category="c")] * rows + [row(category="c")] * (of - rows)
        return len(diagnose(small + others))

    assert [found(4, 4), found(5, 5), found(5, 50), found(5, 51), found(9, 100)] == [0, 1, 1, 0, 0]


def test_readers_are_added_up_in_a_category_and_few_categories_are_named() -> None:
    few = [
        unread(reader=reader, category=category)
        for category in "edcba"
        for reader in ("hermes", "fenced_json")
    ] * 4
    (finding,) = diagnose(few + [row(category="z")] * 2000)
    assert list(finding["categories"]) == ["a", "b", "c", "d", "e"]
    assert "(8 of 8 in a, 8 of 8 in b, 8 of 8 in c, many in 2 more categories)" in finding["text"]


def test_answers_that_were_cut_say_the_accuracy_of_the_others() -> None:
    cut = row(finish_reason="length")
    (finding,) = diagnose([cut] * 6 + [row(True, finish_reason="stop")] * 3 + [row()])
    assert (finding["kind"], finding["rows"], finding["of"]) == ("cut_by_length", 6, 10)
    assert finding["accuracy"] == {"official": 0.3, "strict": 0.3}
    assert finding["others"] == {"official": 0.75, "strict": 0.75}
    assert "6 of 10 rows end in an answer cut by max_tokens or the context" in finding["text"]
    assert "official 75.0 % (of all rows 30.0 %)" in finding["text"]
    assert "readers" not in finding


def test_reasoning_that_never_ended_in_all_rows() -> None:
    endless = row(reasoning_truncated=True, finish_reason="length")
    cut, reasoning = diagnose([endless] * 5)
    assert (cut["kind"], reasoning["kind"]) == ("cut_by_length", "reasoning_never_ended")
    assert reasoning["others"] == {"official": None, "strict": None}
    assert "5 of 5 rows have reasoning that never ended" in reasoning["text"]
    assert "official N/A (of all rows 0.0 %)" in reasoning["text"]


def test_repeats_and_rows_without_a_verdict_do_not_count() -> None:
    again = unread(repeat=1)
    failed = row(status="infra_error", finish_reason="length")
    assert diagnose([again] * 50 + [failed] * 50 + [row()] * 10) == []


def test_shares_of_graded_answers_are_used() -> None:
    graded = row(finish_reason="length")
    graded.verdicts = {"correct": Verdict(False, "half", metrics={SCORE: 0.5})}
    (finding,) = diagnose([graded] * 8)
    assert (finding["accuracy"], finding["others"]) == ({"correct": 0.5}, {"correct": None})
