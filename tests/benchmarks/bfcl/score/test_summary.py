"""Groups, overall scores, format sensitivity and the diagnostics, from rows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.categories import CATEGORIES, FORMS, SCORING, asked_id, form_of
from ace_ray.benchmarks.bfcl.score.summary import summarize, with_metrics
from ace_ray.benchmarks.bfcl.score.tables import further_tables, notes, table
from ace_ray.benchmarks.results import ResultRow
from ace_ray.types import RULE_SETS, Verdict
from ace_ray.util.stats import wilson
from tests.benchmarks.scored_row import scored_row


def judged(category: str, valid: int, of: int, **more: Any) -> list[ResultRow]:
    """``of`` rows of a category, the first ``valid`` of them valid under both rule sets."""
    verdicts = [Verdict(True)] * valid + [Verdict(False, "wrong")] * (of - valid)
    return [
        scored_row(category, f"{category}_{i}", dict.fromkeys(RULE_SETS, verdict), **more)
        for i, verdict in enumerate(verdicts)
    ]


SHARES = {
    "simple_python": (8, 10),
    "simple_java": (1, 2),
    "simple_javascript": (1, 5),
    "multiple": (3, 4),
    "parallel": (1, 4),
    "parallel_multiple": (2, 4),
    "irrelevance": (9, 10),
    "live_simple": (2, 4),
    "live_multiple": (9, 10),
    "live_parallel": (0, 1),
    "live_parallel_multiple": (1, 1),
    "live_irrelevance": (1, 2),
    "live_relevance": (3, 3),
    "multi_turn_base": (1, 2),
    "multi_turn_miss_func": (0, 2),
    "multi_turn_miss_param": (1, 4),
    "multi_turn_long_context": (0, 3),
    "web_search_base": (1, 10),
    "web_search_no_snippet": (3, 10),
    "memory_kv": (1, 4),
    "memory_vector": (2, 4),
    "memory_rec_sum": (3, 4),
}
WHOLE = [row for name, (valid, of) in SHARES.items() for row in judged(name, valid, of)]


def columns(rows: list[ResultRow], version: str) -> dict[str, float | None]:
    found = summarize(rows)["rules"]["official"][version]
    return {name: cell["value"] for name, cell in found.items()}


def test_the_columns_of_v4() -> None:
    found = columns(WHOLE, "v4")
    simple = (0.8 + 0.5 + 0.2) / 3
    non_live = (simple + 0.75 + 0.25 + 0.5) / 4
    live = (2 + 9 + 0 + 1) / 16
    irrelevance = (0.9 + 0.5) / 2
    multi_turn = (0.5 + 0 + 0.25 + 0) / 4
    agentic = ((0.1 + 0.3) / 2 + (0.25 + 0.5 + 0.75) / 3) / 2
    assert found == pytest.approx(
        {
            "simple": simple,
            "non_live": non_live,
            "live": live,
            "irrelevance_mean": irrelevance,
            "relevance": 1.0,
            "multi_turn": multi_turn,
            "web_search": 0.2,
            "memory": 0.5,
            "agentic": agentic,
            "overall": 0.1 * non_live
            + 0.1 * live
            + 0.1 * irrelevance
            + 0.3 * multi_turn
            + 0.4 * agentic,
        }
    )


def test_v3_holds_irrelevance_within_its_groups_and_no_agents() -> None:
    found = columns([row for row in WHOLE if "memory" not in row.category], "v3")
    non_live = (0.5 + 0.75 + 0.25 + 0.5 + 0.9) / 5
    live = (2 + 9 + 0 + 1 + 1 + 3) / 21
    multi_turn = 0.75 / 4
    assert found["overall"] == pytest.approx((non_live + live + multi_turn) / 3)


@pytest.mark.parametrize("absent", SCORING)
def test_without_one_category_its_columns_have_no_value(absent: str) -> None:
    summary = summarize([row for row in WHOLE if row.category != absent])
    cells = summary["rules"]["strict"]["v4"]
    without = {name for name, cell in cells.items() if cell["value"] is None}
    assert without == {name for name, cell in cells.items() if cell["missing"] == [absent]}
    assert ("overall" in without) == (absent != "live_relevance")
    assert without


def test_too_many_rows_without_a_verdict_keep_a_category_out() -> None:
    rows = [*WHOLE, scored_row("multiple", "multiple_9", status="infra_error")]
    summary = summarize(rows, max_unscored=0.1)
    assert summary["incomplete"] == ["en/multiple: 1 of 5 rows not scored (1 infra_error)"]
    assert not summary["complete"]
    assert summary["rules"]["official"]["v4"]["non_live"]["missing"] == ["multiple"]
    assert summary["categories"]["multiple"]["official"]["accuracy"] == 0.75
    assert summarize(rows, max_unscored=0.2)["complete"]


def test_a_pooled_interval_is_that_of_all_its_entries() -> None:
    cell = summarize(WHOLE)["rules"]["official"]["v4"]["live"]
    assert cell["interval"] == pytest.approx(wilson(12, 16))


def test_totals_and_order() -> None:
    summary = summarize(reversed(WHOLE))
    assert list(summary["categories"]) == [c for c in CATEGORIES if c in SHARES]
    assert summary["counts"]["scored"] == len(WHOLE)
    assert summary["totals"]["prompt_tokens"] == 10 * len(WHOLE)


def test_format_sensitivity_is_by_form_and_scores_nothing() -> None:
    rows = []
    for number, form in enumerate(FORMS):
        for at, valid in enumerate((True, number < 13)):
            verdict = Verdict(valid, "" if valid else "wrong")
            name = f"format_sensitivity_{2 * number + at}:{form}:multiple_{at}"
            rows.append(scored_row("format_sensitivity", name, dict.fromkeys(RULE_SETS, verdict)))
    summary = summarize([*WHOLE, *rows])
    found = summary["format_sensitivity"]["official"]
    assert len(found["forms"]) == 26
    assert [f["accuracy"] for f in found["forms"].values()] == [1.0] * 13 + [0.5] * 13
    assert found["range"] == 50
    assert found["stdev"] == pytest.approx(math.sqrt(26 * 25**2 / 25))
    assert columns([*WHOLE, *rows], "v4") == columns(WHOLE, "v4")
    assert [layout["title"] for layout in further_tables(summary)] == ["format sensitivity"]
    assert BFCL.task(rows[0]) == "multiple_0"


def test_several_samples_have_a_table() -> None:
    one = judged("memory_kv", 1, 2) + judged("multiple", 1, 1)
    assert further_tables(summarize(one)) == []
    summary = summarize([*one, *judged("memory_kv", 2, 2, sample=1)])
    assert summary["categories"]["memory_kv"]["strict"]["samples"]["pass_hat_k"] == {
        "1": 0.75,
        "2": 0.5,
    }
    (layout,) = further_tables(summary)
    assert BFCL.tables(summary)["further_tables"] == [layout]
    assert [line[:4] for line in layout["lines"]] == [
        ["memory_kv", rules, "2", k] for rules in RULE_SETS for k in "12"
    ]


def test_one_form_has_no_spread() -> None:
    row = scored_row(
        "format_sensitivity", f"format_sensitivity_0:{FORMS[0]}:multiple_0", status="skipped"
    )
    found = summarize([row])["format_sensitivity"]["strict"]
    assert (found["range"], found["stdev"]) == (None, None)


def test_ids_name_their_form() -> None:
    for form in FORMS:
        name = f"format_sensitivity_7:{form}:live_simple_23-5-1"
        assert (form_of(name), asked_id(name)) == (form, "live_simple_23-5-1")
    assert str(form_of("simple_python_1")) == (
        "ret_fmt=python&tool_call_tag=False&func_doc_fmt=json&prompt_fmt=plaintext&style=classic"
    )
    with pytest.raises(ValueError, match="no form"):
        form_of("format_sensitivity_7:nonsense:live_simple_23-5-1")


def known(category: str, probability: float, count: int) -> list[ResultRow]:
    verdicts = dict.fromkeys(RULE_SETS, Verdict(True))
    logprobs = [math.log(probability)] * 4
    return [
        scored_row(
            category, f"{category}_{i}", with_metrics(verdicts, ended=None, gold_logprobs=logprobs)
        )
        for i in range(count)
    ]


def test_contamination_is_the_ratio_of_perplexities() -> None:
    summary = summarize([*known("simple_python", 0.5, 10), *known("live_multiple", 0.25, 20)])
    found = summary["contamination"]
    assert found["perplexity"] == pytest.approx({"single_turn": 2.0, "live": 4.0})
    assert found["score"] == pytest.approx(0.5)
    assert found["interval"] == pytest.approx([0.5, 0.5])
    assert found["n"] == {"single_turn": 10, "live": 20}
    assert notes(summary, {}) == [
        "contamination score 0.50 [0.50, 0.50]: perplexity of the gold calls 2.00 single-turn, "
        "4.00 live"
    ]


def test_contamination_is_a_mean_over_entries_with_an_interval() -> None:
    rows = [*known("multiple", 0.5, 1), *known("parallel", 0.125, 1), *known("live_simple", 0.5, 3)]
    found = summarize(rows)["contamination"]
    assert found["score"] == pytest.approx(2.0)
    low, high = found["interval"]
    # Standard error of the mean of log 2 and log 8: log 4 / 2.
    assert math.log(high / low) == pytest.approx(2 * 1.959964 * math.log(4) / 2, rel=1e-6)


def test_no_contamination_score_of_one_set_alone() -> None:
    assert summarize(known("simple_python", 0.5, 10))["contamination"] is None
    assert summarize(WHOLE)["contamination"] is None


def test_how_episodes_ended() -> None:
    verdicts = dict.fromkeys(RULE_SETS, Verdict(False, "wrong"))
    rows = [
        scored_row("multi_turn_base", f"multi_turn_base_{i}", with_metrics(verdicts, ended=how))
        for i, how in enumerate(("finished", "steps", "steps", "no such ending"))
    ]
    summary = summarize(rows)
    assert summary["endings"] == {
        "multi_turn_base": {
            "finished": 1,
            "steps": 2,
            "context": 0,
            "deadline": 0,
            "preparation": 0,
        }
    }
    assert further_tables(summary)[0]["lines"] == [["multi_turn_base", "1", "2", "0", "0", "0"]]


def test_the_printed_table_says_what_was_not_run() -> None:
    summary = summarize([row for row in WHOLE if not row.category.startswith("web")])
    layout = table(summary, {"web_search_base": "no search endpoint is configured"})
    lines = {line[0]: line[1:] for line in layout["lines"]}
    assert all(len(line) == len(layout["header"]) for line in layout["lines"])
    assert lines["web_search_base"] == ["", "N/A", "N/A"]
    assert lines["Overall v4"] == ["", "N/A", "N/A"]
    assert lines["Non-live"][1].startswith("50.0 %")
    assert lines["Overall v3"][1] != "N/A"
    assert notes(summary, {"web_search_base": "no search endpoint is configured"}) == [
        "web_search_base was not run: no search endpoint is configured"
    ]


def test_questions_of_one_memory_are_one_task() -> None:
    assert BFCL.task(scored_row("memory_kv", "memory_kv_12-student-3")) == "memory_kv/student"
    assert BFCL.task(scored_row("memory_rec_sum", "memory_rec_sum_9-finance-0")) == (
        "memory_rec_sum/finance"
    )
    assert BFCL.task(scored_row("multiple", "multiple_1")) == "en/multiple/multiple_1"
    assert {c for group in BFCL.groups.values() for c in group} == set(CATEGORIES)
