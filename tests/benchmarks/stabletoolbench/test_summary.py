"""Verdicts and metrics of rows, groups, means, tables and reports."""

from typing import Any

import pytest

from ace_ray.benchmarks.headline import titles
from ace_ray.benchmarks.results import BenchmarkResult
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.callable_names import GROUPS
from ace_ray.benchmarks.stabletoolbench.check import metrics, verdicts
from ace_ray.benchmarks.stabletoolbench.summary import summarize
from ace_ray.benchmarks.stabletoolbench.tables import further_tables, notes, table
from ace_ray.types import RULE_SETS, ResultRow
from ace_ray.util.stats import wilson
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.stabletoolbench.builders import ENTRY, SCRIPTS, entry, state


def call(api: str | None = "Breads", **fields: Any) -> dict[str, Any]:
    base_fields = {"name": f"{api}_for_bakery".lower(), "tool": "Bakery Finder", "api": api}
    return base_fields | {"arguments": "{}", "code": 0, "source": "cache", "error": ""} | fields


UNKNOWN = call(name="oven", tool=None, api=None, code=1, source="none", error="unknown function")
S, U, N = "Solved", "Unsure", "Unsolved"
BREADS, SHOPS = ["Bakery Finder", "Breads"], ["Bakery Finder", "Shops"]


def test_metrics_of_calls() -> None:
    assert metrics([BREADS], []) == {"api_recall": 0.0, "exact_set": 0.0, "calls_0": 1.0}
    values = metrics([BREADS, SHOPS], [call(), call(), call("Cakes"), UNKNOWN])
    assert (values["api_recall"], values["api_precision"], values["exact_set"]) == (0.5, 0.5, 0)
    exact = metrics([BREADS, SHOPS], [call("Shops"), call(), UNKNOWN])
    assert (exact["api_recall"], exact["api_precision"], exact["exact_set"]) == (1, 1, 1)
    failed = call(code=5, source="real", failure="real")
    errored_call = call(error="no such bread", source="simulator")
    assert metrics([BREADS], [call(), failed, errored_call, UNKNOWN, call(source="elsewhere")]) == {
        **{"api_recall": 1, "api_precision": 1, "exact_set": 1, "calls_5": 1},
        **{"hallucinated": 0.2, "errors": 0.4, "cache_hit": 0.2, "failed_real": 0.2},
        **{"from_cache": 0.2, "from_real": 0.2, "from_simulator": 0.2, "from_none": 0.4},
    }


@pytest.mark.parametrize(
    ("votes", "official", "strict", "points"),
    [
        ([S, S, N], "", "unsolved", 2 / 3),
        ([S, N], "unsure", "unsolved", 0.5),
        ([S, N, N], "unsolved", "unsolved", 1 / 3),
        ([U] * 3, "unsure", "unsure", 0.5),
        ([S, U], "", "unsure", 0.75),
    ],
    ids=["majority solved", "tie", "majority unsolved", "all unsure", "solved and unsure"],
)
def test_votes_become_verdicts(votes: Any, official: str, strict: str, points: float) -> None:
    outcome = verdicts(ENTRY, state(SCRIPTS["answered"], votes))
    assert (outcome["official"].error_type, outcome["strict"].error_type) == (official, strict)
    assert (outcome["official"].valid, outcome["strict"].valid) == (not official, not strict)
    assert outcome["official"].metrics["sopr"] == pytest.approx(points)
    assert outcome["strict"].metrics["sopr"] == float(strict == "")
    assert f"vote_{len(votes) - 1}" in outcome["strict"].metrics


@pytest.mark.parametrize(
    ("script", "votes", "kind", "finish", "gave_up"),
    [
        pytest.param("hopeless", [N], "no_finish", 0, 0, id="no finish"),
        pytest.param("gave_up", [N], "gave_up", 1, 1, id="give-up"),
        pytest.param("bad_finish", [N], "empty_answer", 1, 0, id="empty answer"),
        pytest.param("answered", None, "not_judged", 1, 0, id="answer without a judge"),
        pytest.param("hopeless", None, "not_judged", 0, 0, id="neither answer nor judge"),
    ],
)
def test_runs_without_an_answer_or_a_judge_are_not_valid(script, votes, kind, finish, gave_up):
    for verdict in verdicts(ENTRY, state(SCRIPTS[script], votes)).values():
        assert (verdict.valid, verdict.error_type) == (False if votes else None, kind)
        assert (verdict.metrics["finish"], verdict.metrics["give_up"]) == (finish, gave_up)
        assert verdict.metrics.get("sopr") == (0 if votes else None)


def rows(group: str, *votes: list[str], **more: Any) -> list[ResultRow]:
    return [
        scored_row(
            group, str(n), verdicts(entry(str(n)), state(SCRIPTS["answered"], row_votes) | more)
        )
        for n, row_votes in enumerate(votes)
    ]


LOST = verdicts(ENTRY, state(SCRIPTS["answered"], [N, N]))
G1 = rows("G1_tool", [S, S], [S, N], [N, N], [U, U])
NOTHING = {"value": None, "interval": None, "n": 0}


def share(solved: float, n: int) -> dict[str, Any]:
    return {"value": solved / n, "interval": list(wilson(solved, n) or ()), "n": n}


FAC, WIN = {"status": "Solved"}, {"outcome": "win", "by": "judge", "rounds": []}
SKIPPED = [scored_row(group, "8", status="skipped") for group in ("G1_tool", "G2_category")]


def reported(summary: dict[str, Any]) -> BenchmarkResult:
    plain: Any = {"candidate": {}, "identity": {}, "conditions": {}, "plays": (), "incomplete": ""}
    run: dict[str, Any] = {"label": "a", "model": "Qwen2.5-a", "parameters": None}
    return BenchmarkResult(**run, headline=True, summary=summary, **plain)


def test_skipped_queries_are_unsolved_and_failed_ones_do_not_count() -> None:
    failed = [
        scored_row("G1_tool", n, status="infra_error", error_class=name)
        for n, name in (("9", "JudgeError"), ("10", "RequestFailed"))
    ]
    summary = summarize([*G1, SKIPPED[0], *failed], max_unscored=0.5)
    group = summary["categories"]["G1_tool"]
    stats = group["official"]
    assert (stats["sopr"], stats["answered_only"]) == (share(2, 5), share(2, 4))
    assert group["strict"]["sopr"] == share(1, 5)
    # By vote: 1 + 1 + 0 + 0.5 and 1 + 0 + 0 + 0.5 of 4.
    assert (stats["votes"], stats["spread"]) == ([0.625, 0.375], 0.125)
    assert (stats["accuracy"], set(stats["errors"])) == (0.25, {"unsolved", "unsure"})
    assert (group["shares"]["api_recall"]["value"], group["shares"]["exact_set"]["value"]) == (1, 0)
    assert (summary["judge_errors"], summary["complete"]) == (1, True)
    lines = notes(summary)
    assert lines[0].startswith("1 rows have no verdict because the judge gave none")
    assert lines[1].startswith("1 rows were skipped")
    short = summarize([*G1, SKIPPED[0], *failed])
    assert short["incomplete"] == ["en/G1_tool: 3 of 7 rows not scored (2 infra_error, 1 skipped)"]
    run = reported(short)
    assert StableToolBench.categories(run)[0].shares == {"official": None, "strict": None}
    assert StableToolBench.paper([run], "official").tables[0].lines[0][1:] == [None] * 8


def test_skipped_queries_are_incomplete_and_lost() -> None:
    judged = rows("G1_tool", [S], [S], [S], fac=FAC, sowr=WIN)
    categories = summarize([*judged, *SKIPPED], max_unscored=1)["categories"]
    tool_group, category_group = categories["G1_tool"], categories["G2_category"]
    assert tool_group["fac"] == share(3, 4)
    rates = {"win": share(3, 4), "lose": share(1, 4), "tie": share(0, 4)}
    assert tool_group["sowr"] == rates | {"missing": 0}
    assert category_group["fac"] == category_group["official"]["sopr"] == share(0, 1)
    assert category_group["sowr"]["lose"] == share(1, 1)
    # Without FAC and SoWR there are no numbers of them.
    plain = summarize([*rows("G1_tool", [S]), *SKIPPED])["categories"]["G2_category"]
    assert plain["official"]["sopr"]["value"] == 0
    assert plain["fac"] == plain["sowr"]["lose"] == NOTHING
    # Without a scored row, skipped queries count in SoPR.
    assert summarize(SKIPPED)["categories"]["G1_tool"]["official"]["sopr"]["n"] == 1
    # A group that the reference lacks is not lost.
    unknown = rows("G2_category", [S], sowr_missing=True)
    lacking = summarize([*rows("G1_tool", [S], sowr=WIN), *unknown, *SKIPPED])["categories"]
    assert lacking["G1_tool"]["sowr"]["lose"]["value"] == 0.5
    assert lacking["G2_category"]["sowr"]["lose"] == NOTHING


def full_rows(**more: Any) -> list[ResultRow]:
    """Make n + 1 queries of the nth group, the first of them solved."""
    return [
        row
        for number, group in enumerate(GROUPS)
        for row in rows(group, [S, S], *[[N, N]] * number, **more)
    ]


def table_cells(layout: dict[str, Any]) -> dict[str, dict[str, str]]:
    assert all(isinstance(cell, str) for line in layout["lines"] for cell in line)
    return {line[0]: dict(zip(layout["header"], line, strict=True)) for line in layout["lines"]}


def test_the_average_is_the_plain_mean_of_six_groups() -> None:
    summary = summarize(full_rows(fac=FAC))
    mean = sum(1 / n for n in range(1, 7)) / 6
    for rules in RULE_SETS:
        average = summary["rules"][rules]["sopr"]
        assert average["value"] == pytest.approx(mean)
        assert (average["n"], average["missing"]) == (21, [])
        low, high = average["interval"]
        assert low < mean < high
    official = summary["rules"]["official"]
    assert (official["answered_only"]["value"], official["spread"]) == (pytest.approx(mean), 0)
    assert (summary["averages"]["fac"]["value"], summary["averages"]["win"]["value"]) == (1, None)
    assert table_cells(table(summary))["G1_category"]["SoPR"].startswith("50.0 % [")
    judged, *_ = (table_cells(layout) for layout in further_tables(summary))
    assert judged["average"]["FAC"].startswith("100.0 %")
    # Scores of a report.
    scores = StableToolBench.scores(summary, "official")
    assert titles(scores) == [
        *("SoPR (mean of groups)", "FAC", "SoWR", "API recall", "Accuracy (pooled)")
    ]
    sopr, _, sowr, _, accuracy = scores
    assert sopr.estimate is not None
    assert accuracy.estimate is not None
    assert (sopr.estimate.n, sopr.estimate.partial, sopr.missing) == (21, False, ())
    assert (sowr.estimate, accuracy.estimate.n) == (None, 21)


def test_a_missing_group_makes_the_mean_partial() -> None:
    rows = [row for row in full_rows() if row.category in ("G1_category", "G3_instruction")]
    summary = summarize(rows)
    absent = [name for name in GROUPS if name not in ("G1_category", "G3_instruction")]
    sopr = summary["rules"]["official"]["sopr"]
    assert (sopr["value"], sopr["interval"], sopr["missing"]) == (None, None, absent)
    score = StableToolBench.scores(summary, "official")[0]
    assert score.estimate is not None
    assert score.estimate.partial
    assert list(score.missing) == absent
    assert (score.estimate.value, score.estimate.n) == ((1 / 2 + 1 / 6) / 2, 8)
    assert table(summarize([]))["lines"] == [["average", "0", "N/A", "N/A"]]
    # Samples of one query are one query.
    lost = scored_row("G1_category", "0", LOST, sample=1)
    stats = summarize([rows[0], lost])["categories"]["G1_category"]["official"]
    assert stats["sopr"] == share(0.5, 1)
    assert stats["samples"]["pass_hat_k"] == {"1": 0.5, "2": 0.0}
