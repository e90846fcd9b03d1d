"""Summaries of verdicts made by hand, against numbers worked out by hand."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import sqrt
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.options import AGENT, GENERATION, MULTI_TURN, SPECIAL
from ace_ray.benchmarks.acebench.summary import summarize
from ace_ray.benchmarks.acebench.tables import HEADER, table
from ace_ray.types import ResultRow, Verdict
from tests.benchmarks.scored_row import scored_row

GOOD, BAD = Verdict(True), Verdict(False, "value_error")


def row(category: str, number: int | str, valid: bool = True, **changes: object) -> ResultRow:
    verdict = GOOD if valid else BAD
    entry_id = f"{category}_{number}"
    group = entry_id.rsplit("_", 1)[0] if category in MULTI_TURN else entry_id
    verdicts = {"official": verdict, "strict": verdict}
    result_row = scored_row(category, entry_id, verdicts, group=group)
    return replace(result_row, **changes)  # type: ignore[arg-type]


def rows(categories: Iterable[str], n: int, right: int) -> Iterator[ResultRow]:
    for category in categories:
        for i in range(n):
            yield row(category, f"{i}_0" if category in MULTI_TURN else i, i < right)


def test_a_dialogue_is_valid_if_all_its_turns_are() -> None:
    category = "normal_multi_turn_user_switch"
    turns = {"0_0": True, "0_1": True, "1_0": True, "1_1": False, "1_2": True, "2_0": False}
    summary = summarize(row(category, turn, valid) for turn, valid in turns.items())
    json.dumps(summary, allow_nan=False)
    stats = summary["languages"]["en"]["categories"][category]
    assert stats["dialogues"] == 3
    official = stats["official"]
    assert official["accuracy"] == pytest.approx(1 / 3)
    assert (official["n"], official["turns"]) == (3, 6)
    assert official["turn_accuracy"] == pytest.approx(4 / 6)
    assert official["process_accuracy"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    # A dialogue with an unscored turn is not judged.
    dialogue_rows = [row(category, "0_0"), row(category, "0_1", status="infra_error", verdicts={})]
    summary = summarize([*dialogue_rows, row(category, "1_0")])
    stats = summary["languages"]["en"]["categories"][category]
    assert (stats["declared"], stats["scored"], stats["dialogues"]) == (3, 2, 2)
    assert (stats["official"]["accuracy"], stats["official"]["n"]) == (1.0, 1)
    assert summary["incomplete"] == [f"en/{category}: 1 of 3 rows not scored (1 infra_error)"]


def test_workbook_rounds_at_each_level() -> None:
    atoms = [c for c in GENERATION if c.startswith("normal_atom_")]
    judged_rows = [
        *rows(atoms[:1], 3, 1),  # 0.333
        *rows(atoms[1:], 3, 2),  # 0.667
        *rows(["special_incomplete", "special_irrelevant"], 3, 1),  # 1/3, not rounded
        *rows(["special_error_param"], 3, 3),
    ]
    workbook = summarize(judged_rows)["languages"]["en"]["rules"]["official"]["workbook"]
    assert workbook["atom"]["value"] == round((0.667 * 5 + 0.333) / 6, 3) == 0.611
    assert workbook["atom"]["column"] == "atom"
    assert workbook["special"]["value"] == round((1 / 3 + 1 + 1 / 3) / 3, 3) == 0.556
    assert workbook["normal"]["value"] is None
    assert "normal_preference" in workbook["normal"]["missing"]
    assert atoms[0] not in workbook["normal"]["missing"]


def test_overall_of_both_tables_has_the_official_weights() -> None:
    sizes = dict.fromkeys(GENERATION, 50) | dict.fromkeys(AGENT, 25)
    sizes |= dict.fromkeys((c for c in GENERATION if "single_turn" in c), 100)
    shares = dict.fromkeys(GENERATION, 0.8)
    shares |= dict.fromkeys(SPECIAL, 0.6) | dict.fromkeys(AGENT, 0.2)
    judged_rows = (row for c, n in sizes.items() for row in rows([c], n, round(n * shares[c])))
    rules = summarize(judged_rows)["languages"]["en"]["rules"]["strict"]
    overall = rules["workbook"]["overall"]
    assert overall["value"] == round(0.6 * 0.2676 + 0.8 * 0.578 + 0.2 * 0.1545, 3) == 0.654
    assert overall["column"] == "Summary"
    assert overall["interval"][0] < 0.654 < overall["interval"][1]
    paper = rules["paper"]["overall"]
    weights = {"normal": 0.578, "special": 0.2676, "agent": 0.1545}
    assert paper["weights"] == pytest.approx(weights, abs=5e-5)
    roots = sqrt(700), sqrt(150), sqrt(50)
    expected = (0.8 * roots[0] + 0.6 * roots[1] + 0.2 * roots[2]) / sum(roots)
    assert paper["value"] == pytest.approx(expected)


def test_categories_that_lack_rows_leave_no_overall() -> None:
    summary = summarize(rows(GENERATION, 10, 10))
    assert summary["complete"]
    for name in ("workbook", "paper"):
        cells = summary["languages"]["en"]["rules"]["official"][name]
        assert cells["normal"]["value"] == cells["special"]["value"] == 1.0
        assert cells["agent"]["value"] is cells["overall"]["value"] is None
        assert cells["overall"]["missing"] == list(AGENT)
        assert cells["overall"]["partial"]["value"] == pytest.approx(1.0)
    special_rows = [
        *rows(SPECIAL, 10, 10),
        row("special_irrelevant", 10, status="skipped", verdicts={}),
    ]
    special = summarize(special_rows)["languages"]["en"]["rules"]["official"]["workbook"]["special"]
    assert (special["value"], special["missing"]) == (None, ["special_irrelevant"])
    assert summarize(special_rows, max_unscored=0.1)["complete"]


def test_combined_pools_categories_and_averages_aggregates() -> None:
    zh = (replace(result_row, language="zh") for result_row in rows(SPECIAL, 30, 30))
    summary = summarize([*rows(SPECIAL, 10, 5), *zh])
    combined = summary["combined"]
    assert combined["categories"]["special_irrelevant"]["official"]["accuracy"] == 35 / 40
    rules = combined["rules"]["official"]
    assert rules["workbook"]["special"]["value"] == 0.75
    assert rules["workbook"]["agent"]["missing"][0] == f"en/{AGENT[0]}"
    assert rules["paper"]["overall"]["counts"]["zh"] == {"normal": 0, "special": 90, "agent": 0}
    assert [line[0] for line in table(summary)][::5] == ["en", "zh", "combined"]


def test_table_lines_and_totals() -> None:
    lines = table(summarize(rows(SPECIAL, 10, 9)))
    assert {len(line) for line in lines} == {len(HEADER)}
    interval = "90.0 % [59.6, 98.2]"
    assert lines[0] == ["en", "special", "special_incomplete", "10", interval, interval]
    assert [line[1] for line in lines[3:]] == ["special", "overall"]
    assert lines[-1] == ["en", "overall", "", "", "N/A", "N/A"]
    verdict = Verdict(True, metrics={"end_to_end": 1, "process_accuracy": 0.9})
    verdicts = {"official": verdict, "strict": verdict}
    cost: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 3, "generation_s": 0.5}
    summary = summarize(row("agent_multi_step", i, verdicts=verdicts, **cost) for i in range(10))
    totals = summary["languages"]["en"]["totals"]
    assert totals == {"prompt_tokens": 70, "completion_tokens": 30, "generation_s": 5.0}
    end = "100.0 % [72.2, 100.0]"
    assert table(summary)[0] == ["en", "agent", "agent_multi_step", "10", end, end]
    process = ["en", "agent", "agent_multi_step (process)", "10", interval, interval]
    assert table(summary)[1] == process
