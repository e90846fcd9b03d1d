"""Rows laid side by side: what is one unit, what is paired, what is left out, which groups."""

from __future__ import annotations

import numpy as np
import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.reports.paired import (
    ALL,
    Cells,
    Group,
    groups_of,
    pairs_of,
)
from tests.report.builders import cells_of, column, made


def pair(cells: Cells, metric: str = "accuracy", rules: str = "strict") -> list[tuple[float, ...]]:
    """(base, other, samples, left out) of each unit; -1 for NaN."""
    found = pairs_of(cells, metric, rules, 0, 1)  # type: ignore[arg-type]
    columns = (found.base, found.other, found.samples, found.left_out)
    return [tuple(np.nan_to_num(c[i], nan=-1.0) for c in columns) for i in range(len(found.base))]


def test_equal_ids_in_two_languages_or_categories_are_two_entries() -> None:
    rows = [made(True, "1"), made(False, "1", language="zh"), made(True, "1", category="d")]
    cells = cells_of([rows, rows])
    assert cells.units == [("en", "c", "1"), ("en", "d", "1"), ("zh", "c", "1")]
    assert [base for base, *_ in pair(cells)] == [1, 1, 0]


@pytest.mark.parametrize("status", ["infra_error", "quarantined", "skipped"])
def test_what_has_no_verdict_in_either_run_is_left_out_and_counted(status: str) -> None:
    base = [*column([True, True]), made(True, "2", status=status)]
    other = [made(False, "0"), made(False, "1", status=status), made(True, "2")]
    assert pair(cells_of([base, other])) == [(1, 0, 1, 0), (-1, -1, 0, 1), (-1, -1, 0, 1)]


def test_a_row_that_never_came_is_left_out_and_counted() -> None:
    cells = cells_of([column([True, True]), column([True])])
    assert pair(cells) == [(1, 1, 1, 0), (-1, -1, 0, 1)]


def dialogue(*valid: bool, status: str = "scored") -> list[object]:
    return [
        made(ok, f"d_{i}", group="d", status=status if i == len(valid) - 1 else "scored")
        for i, ok in enumerate(valid)
    ]


def test_a_dialogue_is_one_unit_valid_when_all_its_turns_are() -> None:
    cells = cells_of([dialogue(True, True, True), dialogue(True, False, True)])  # type: ignore[list-item]
    assert pair(cells) == [(1, 0, 1, 0)]
    ((base, other, *_),) = pair(cells, "process")
    assert (base, other) == pytest.approx((1, 2 / 3))


def test_a_dialogue_with_a_turn_without_verdict_is_not_judged() -> None:
    whole, torn = dialogue(True, True), dialogue(True, True, status="infra_error")
    assert pair(cells_of([whole, torn])) == [(-1, -1, 0, 2)]  # type: ignore[list-item]
    assert pair(cells_of([whole, whole[:1]])) == [(-1, -1, 0, 2)]  # type: ignore[list-item]


def test_samples_are_averaged_over_those_that_both_runs_have() -> None:
    def run(*valid: bool | None) -> list[object]:
        return [
            made(bool(v), "0", sample=i, status="infra_error" if v is None else "scored")
            for i, v in enumerate(valid)
        ]

    cells = cells_of([run(True, False, True, None), run(True, True, None, False)])  # type: ignore[list-item]
    assert pair(cells) == [(0.5, 1.0, 2, 2)]


def test_process_accuracy_is_the_metric_of_single_rows() -> None:
    cells = cells_of([[made(False, "0", process=0.25), made(True, "1")]] * 2)
    assert pair(cells, "process") == [(0.25, 0.25, 1, 0), (-1, -1, 0, 1)]


def test_a_rule_set_without_verdict_is_not_scored_in_it() -> None:
    cells = cells_of([[made(True, "0", rules=["official"])], [made(True, "0")]])
    assert pair(cells, rules="official") == [(1, 1, 1, 0)]
    assert pair(cells, rules="strict") == [(-1, -1, 0, 1)]


def test_entries_of_one_task_share_a_cluster() -> None:
    rows = [
        made(True, f"agent_multi_step_{i}", category="agent_multi_step", language=language)
        for language in ("en", "zh")
        for i in (0, 1, 2)
    ] + [made(True, "normal_preference_0", category="normal_preference")]
    cells = cells_of([rows], ACEBench.task)
    of_unit = dict(zip(cells.units, cells.cluster_of.tolist(), strict=True))
    of = {(unit[0], unit[2]): number for unit, number in of_unit.items()}
    assert of["en", "agent_multi_step_0"] == of["zh", "agent_multi_step_1"]
    assert of["en", "agent_multi_step_2"] == of["zh", "agent_multi_step_2"]
    assert len(set(of.values())) == 3
    assert len(set(cells_of([rows]).cluster_of)) == 7


def strata(*names: str) -> frozenset[tuple[str, str]]:
    return frozenset(tuple(name.split("/")) for name in names)  # type: ignore[misc]


def units(*names: str) -> list[tuple[str, str, str]]:
    return [(*name.split("/"), "0") for name in names]  # type: ignore[misc]


NAMED = {"G": ["a", "b"], "Single": ["c"]}


def test_groups_then_categories_all_languages_then_each() -> None:
    found = groups_of(units(*(f"{lang}/{c}" for lang in ("zh", "en") for c in "cba")), NAMED)
    names = ["G", "Single", ALL, "a", "b"]
    assert [(group.name, group.language) for group in found] == [
        (name, language) for language in ("", "en", "zh") for name in names
    ]
    assert found[0].strata == strata("en/a", "en/b", "zh/a", "zh/b")
    assert [group.category for group in found[:5]] == [False, True, False, True, True]


def test_a_group_that_lacks_a_category_has_no_line() -> None:
    assert [group.name for group in groups_of(units("en/a", "en/c"), NAMED)] == ["Single", ALL, "a"]


def test_what_holds_the_same_entries_comes_once_under_its_most_telling_name() -> None:
    assert groups_of(units("en/a"), {}) == [Group("a", "en", strata("en/a"), category=True)]
    found = groups_of(units("en/a", "en/b"), NAMED)
    assert [(group.name, group.language) for group in found] == [
        ("G", "en"),
        ("a", "en"),
        ("b", "en"),
    ]


def test_a_category_of_one_language_is_named_by_it() -> None:
    found = groups_of(units("en/a", "zh/a", "zh/x"), {})
    assert [(group.name, group.language) for group in found] == [
        (ALL, ""),
        ("a", ""),
        ("a", "en"),
        (ALL, "zh"),
        ("a", "zh"),
        ("x", "zh"),
    ]


def test_acebench_has_the_groups_of_the_paper() -> None:
    names = list(ACEBench.groups)
    expected = "Atom Single-Turn Multi-Turn Similar_API Preference Normal Special Agent"
    assert names == [name.replace("_", " ") for name in expected.split()]
    assert len(ACEBench.groups["Normal"]) == 12
