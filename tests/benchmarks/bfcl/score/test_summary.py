"""Groups, overall scores, format sensitivity and the diagnostics, from rows."""

import math
from typing import Any

import pytest

from ace_ray.benchmarks.aggregates import members
from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.categories import CATEGORIES, FORMS, SCORING, form_of, original_id
from ace_ray.benchmarks.bfcl.score.summary import TURN_METRICS, V3, V4, add_metrics, summarize
from ace_ray.benchmarks.bfcl.score.tables import further_tables, notes, table
from ace_ray.types import RULE_SETS, ResultRow, Verdict
from ace_ray.util.stats import wilson
from tests.benchmarks.scored_row import scored_row


def verdicts(valid: bool) -> dict[str, Verdict]:
    return dict.fromkeys(RULE_SETS, Verdict(valid, "" if valid else "wrong"))


def judged(category: str, valid: int, of: int, **more: Any) -> list[ResultRow]:
    """Make rows of a category, the first ``valid`` of them valid."""
    rows = [(f"{category}_{i}", verdicts(i < valid)) for i in range(of)]
    return [scored_row(category, name, verdict_pair, **more) for name, verdict_pair in rows]


VALID = (8, 1, 1, 3, 1, 2, 9, 2, 9, 0, 1, 1, 3, 1, 0, 1, 0, 1, 3, 1, 2, 3)
ALL = (10, 2, 5, 4, 4, 4, 10, 4, 10, 1, 1, 2, 3, 2, 2, 4, 3, 10, 10, 4, 4, 4)
WHOLE = [row for counts in zip(SCORING, VALID, ALL, strict=True) for row in judged(*counts)]


def columns(rows: list[ResultRow], version: str) -> dict[str, float | None]:
    cells = summarize(rows)["rules"]["official"][version]
    return {name: cell["value"] for name, cell in cells.items()}


def test_columns_of_both_versions() -> None:
    simple = (0.8 + 0.5 + 0.2) / 3
    non_live = (simple + 0.75 + 0.25 + 0.5) / 4
    live = (2 + 9 + 0 + 1) / 16
    irrelevance = (0.9 + 0.5) / 2
    multi_turn = (0.5 + 0 + 0.25 + 0) / 4
    agentic = ((0.1 + 0.3) / 2 + (0.25 + 0.5 + 0.75) / 3) / 2
    many = 0.1 * non_live + 0.1 * live + 0.1 * irrelevance + 0.3 * multi_turn + 0.4 * agentic
    values = columns(WHOLE, "v4")
    parts = [simple, non_live, live, irrelevance, 1.0, multi_turn, 0.2, 0.5, agentic, many]
    assert list(values.values()) == pytest.approx(parts)
    assert list(values)[:5] == ["simple", "non_live", "live", "irrelevance_mean", "relevance"]
    assert list(values)[5:] == ["multi_turn", "web_search", "memory", "agentic", "overall"]
    # Version 3 has irrelevance within its groups, and no agentic categories.
    v3 = columns([row for row in WHOLE if "memory" not in row.category], "v3")
    non_live, live = (0.5 + 0.75 + 0.25 + 0.5 + 0.9) / 5, (2 + 9 + 0 + 1 + 1 + 3) / 21
    assert v3["overall"] == pytest.approx((non_live + live + multi_turn) / 3)
    summary = summarize(reversed(WHOLE))
    assert list(summary["categories"]) == list(SCORING)
    assert summary["counts"]["scored"] == len(WHOLE)
    pooled = summary["rules"]["official"]["v4"]["live"]["interval"]
    assert pooled == pytest.approx(wilson(12, 16))


def test_columns_cover_the_scored_categories_and_no_other() -> None:
    assert {*members(V4, "overall")} == {*SCORING} - {"live_relevance"}
    entered = {c for columns in (V3, V4) for name in columns for c in members(columns, name)}
    assert entered == {*SCORING}
    summary = summarize([*WHOLE, *judged("sql", 1, 4)])
    assert summary["categories"]["sql"]["official"]["accuracy"] == 0.25


def test_category_with_too_many_rows_without_a_verdict_is_left_out() -> None:
    rows = [*WHOLE, scored_row("multiple", "multiple_9", status="infra_error")]
    summary = summarize(rows, max_unscored=0.1)
    assert summary["incomplete"] == ["en/multiple: 1 of 5 rows not scored (1 infra_error)"]
    assert not summary["complete"]
    column = summary["rules"]["official"]["v4"]["non_live"]
    assert column["missing"] == ["multiple"]
    assert column["partial"]["value"] == pytest.approx((0.5 + 0.25 + 0.5) / 3)
    assert summary["categories"]["multiple"]["official"]["accuracy"] == 0.75
    assert summarize(rows, max_unscored=0.2)["complete"]


def test_format_sensitivity_is_by_form_and_enters_no_score() -> None:
    rows = []
    for number, form in enumerate(FORMS):
        for at in range(2):
            name = f"format_sensitivity_{2 * number + at}:{form}:multiple_{at}"
            assert (form_of(name), original_id(name)) == (form, f"multiple_{at}")
            rows.append(scored_row("format_sensitivity", name, verdicts(not at or number < 13)))
    summary = summarize([*WHOLE, *rows])
    sensitivity = summary["format_sensitivity"]["official"]
    assert [form["accuracy"] for form in sensitivity["forms"].values()] == [1.0] * 13 + [0.5] * 13
    assert sensitivity["range"] == 50
    assert sensitivity["stdev"] == pytest.approx(math.sqrt(26 * 25**2 / 25))
    assert columns([*WHOLE, *rows], "v4") == columns(WHOLE, "v4")
    assert [layout["title"] for layout in further_tables(summary)] == ["format sensitivity"]
    single_form = summarize(rows[:1])["format_sensitivity"]["strict"]
    assert (single_form["range"], single_form["stdev"]) == (None, None), "one form has no spread"
    assert str(form_of("simple_python_1")) == (
        "ret_fmt=python&tool_call_tag=False&func_doc_fmt=json&prompt_fmt=plaintext&style=classic"
    )


def test_turn_matches_are_sums_over_conversations() -> None:
    shares = [(0.5, 1.0, 0.5), (0.0, 0.5, 0.25)]
    metrics = [dict(zip(TURN_METRICS, share, strict=True)) for share in shares]
    pairs = [dict.fromkeys(RULE_SETS, Verdict(True, metrics=share)) for share in metrics]
    summary = summarize([scored_row("multi_turn_base", str(n), v) for n, v in enumerate(pairs)])
    sums = {"n": 2, "turns_passed": 0.5, "turns_state": 1.5, "turns_response": 0.75}
    assert summary["turn_matches"] == {"multi_turn_base": dict.fromkeys(RULE_SETS, sums)}
    assert further_tables(summary)[0]["lines"] == [["multi_turn_base", "2", "25.0", "75.0", "37.5"]]


def gold_rows(category: str, probability: float, count: int) -> list[ResultRow]:
    logprobs = [math.log(probability)] * 4
    verdict_pair = add_metrics(verdicts(True), ending=None, gold_logprobs=logprobs)
    return [scored_row(category, f"{category}_{i}", verdict_pair) for i in range(count)]


def test_contamination_is_the_ratio_of_perplexities_over_entries() -> None:
    summary = summarize(
        [*gold_rows("simple_python", 0.5, 10), *gold_rows("live_multiple", 0.25, 20)]
    )
    contamination = summary["contamination"]
    assert contamination["perplexity"] == pytest.approx({"single_turn": 2.0, "live": 4.0})
    assert contamination["interval"] == pytest.approx([0.5, 0.5])
    assert contamination["n"] == {"single_turn": 10, "live": 20}
    assert notes(summary, {"web_search_base": "no endpoint"}) == [
        "web_search_base was not run: no endpoint",
        "contamination score 0.50 [0.50, 0.50]: perplexity of the gold calls 2.00 single-turn, "
        "4.00 live",
    ]
    rows = [
        *gold_rows("multiple", 0.5, 1),
        *gold_rows("parallel", 0.125, 1),
        *gold_rows("live_simple", 0.5, 3),
    ]
    contamination = summarize(rows)["contamination"]
    assert contamination["score"] == pytest.approx(2.0)
    low, high = contamination["interval"]
    # Standard error of the mean of log 2 and log 8: log 4 / 2.
    assert math.log(high / low) == pytest.approx(2 * 1.959964 * math.log(4) / 2, rel=1e-6)
    for alone in (gold_rows("simple_python", 0.5, 10), WHOLE):
        assert summarize(alone)["contamination"] is None


def test_printed_table_shows_what_was_not_run() -> None:
    summary = summarize([row for row in WHOLE if not row.category.startswith("web")])
    layout = table(summary, {"web_search_base": "no search endpoint is configured"})
    lines = {line[0]: line[1:] for line in layout["lines"]}
    assert all(len(line) == len(layout["header"]) for line in layout["lines"])
    assert lines["web_search_base"] == ["", "N/A", "N/A"]
    assert lines["Non-live"][1].startswith("50.0 %")
    assert lines["Overall v3"][1] != "N/A"


def test_questions_of_one_memory_and_forms_of_one_question_are_one_task() -> None:
    form = f"format_sensitivity_7:{FORMS[3]}:multiple_2"
    assert BFCL.task(scored_row("memory_kv", "memory_kv_12-student-3")) == "memory_kv/student"
    assert BFCL.task(scored_row("format_sensitivity", form)) == "multiple_2"
    assert BFCL.task(scored_row("multiple", "multiple_1")) == "en/multiple/multiple_1"
    assert {c for group in BFCL.groups.values() for c in group} == set(CATEGORIES)
