"""Verdicts and metrics of rows, groups, means, tables and reports."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.headline import titles
from ace_ray.benchmarks.results import ReportedRun, ResultRow
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.check import metrics, verdicts
from ace_ray.benchmarks.stabletoolbench.names import GROUPS
from ace_ray.benchmarks.stabletoolbench.summary import summarize
from ace_ray.benchmarks.stabletoolbench.tables import further_tables, notes, table
from ace_ray.types import RULE_SETS
from ace_ray.util.stats import wilson
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.stabletoolbench.stb_rows import ENTRY, SCRIPTS, entry, state


def call(api: str | None = "Breads", **fields: Any) -> dict[str, Any]:
    given = {
        "name": f"{api}_for_bakery".lower(),
        "tool": "Bakery Finder",
        "api": api,
        "arguments": "{}",
        "code": 0,
        "source": "cache",
        "error": "",
    }
    return given | fields


UNKNOWN = call(name="oven", tool=None, api=None, code=1, source="none", error="unknown function")
BREADS, SHOPS = ["Bakery Finder", "Breads"], ["Bakery Finder", "Shops"]


# calls


def test_recall_precision_and_exact_set() -> None:
    found = metrics([BREADS, SHOPS], [call(), call(), call("Cakes"), UNKNOWN])
    assert found["api_recall"] == 0.5
    assert found["api_precision"] == 0.5
    assert found["exact_set"] == 0
    exact = metrics([BREADS, SHOPS], [call("Shops"), call(), UNKNOWN])
    assert (exact["api_recall"], exact["api_precision"], exact["exact_set"]) == (1, 1, 1)


def test_without_calls_there_are_no_shares_of_calls() -> None:
    assert metrics([BREADS], []) == {
        "api_recall": 0.0,
        "exact_set": 0.0,
        "calls_0": 1.0,
    }


def test_whose_answers_the_cache_gave() -> None:
    made = [call(origin="recorded"), call(origin="simulator"), call(source="real"), call()]
    answered = state(SCRIPTS["answered"]) | {"calls": made}
    summary = summarize([scored_row("G1_tool", "1", verdicts=verdicts(ENTRY, answered))])
    assert summary["sources"]["cached"] == {"recorded": 1, "simulator": 1, "real": 0}
    assert any("recorded 1, simulator 1" in note for note in notes(summary))


def test_calls_that_no_api_answered_are_said() -> None:
    made = [
        call(failure="simulator", source="simulator"),
        call(failure="simulator", origin="simulator"),
        call(failure="no_backend", source="none"),
        call(failure=""),
        UNKNOWN,
    ]
    found = metrics([BREADS], made)
    assert (found["failed_simulator"], found["failed_no_backend"]) == (0.4, 0.2)
    assert "failed_simulator" not in metrics([BREADS], [call()])
    answered = state(SCRIPTS["answered"]) | {"calls": made}
    row = scored_row("G1_tool", "1", verdicts=verdicts(ENTRY, answered))
    summary = summarize([row, row, *rows("G3_instruction", [S])])
    assert summary["sources"]["failures"] == {"no_backend": 2, "simulator": 4}
    assert summary["categories"]["G3_instruction"]["sources"]["failures"] == {}
    said = "6 API calls failed without an answer of an API: no_backend 2, simulator 4"
    assert said in notes(summary)
    assert not any("failed without" in note for note in notes(summarize(G1)))


def test_errors_and_sources() -> None:
    made = [
        call(),
        call(code=5, source="real"),
        call(error="no such bread", source="simulator"),
        UNKNOWN,
        call(source="elsewhere"),
    ]
    found = metrics([BREADS], made)
    assert found["hallucinated"] == 0.2
    assert found["errors"] == 0.4
    assert found["cache_hit"] == 0.2
    sources = {name: value for name, value in found.items() if name.startswith("from_")}
    assert sources == {"from_cache": 0.2, "from_real": 0.2, "from_simulator": 0.2, "from_none": 0.4}
    assert found["calls_5"] == 1
    assert all(0 <= value <= 1 for value in found.values())


# verdicts


@pytest.mark.parametrize(
    ("votes", "official", "strict", "points"),
    [
        (["Solved"] * 3, "", "", 1),
        (["Solved", "Solved", "Unsolved"], "", "unsolved", 2 / 3),
        (["Solved", "Solved", "Unsure"], "", "unsure", 5 / 6),
        (["Solved", "Unsolved"], "unsure", "unsolved", 0.5),
        (["Solved", "Unsolved", "Unsolved"], "unsolved", "unsolved", 1 / 3),
        (["Unsure"] * 3, "unsure", "unsure", 0.5),
        (["Solved", "Unsure"], "", "unsure", 0.75),
    ],
)
def test_votes(votes: list[str], official: str, strict: str, points: float) -> None:
    found = verdicts(ENTRY, state(SCRIPTS["answered"], votes))
    assert (found["official"].error_type, found["strict"].error_type) == (official, strict)
    assert found["official"].valid == (official == "")
    assert found["strict"].valid == (strict == "")
    assert found["official"].metrics["sopr"] == pytest.approx(points)
    assert found["strict"].metrics["sopr"] == float(strict == "")
    assert bool(found["official"].error) == bool(official)
    assert len([name for name in found["strict"].metrics if name.startswith("vote_")]) == len(votes)


@pytest.mark.parametrize(
    ("script", "kind", "finish", "give_up"),
    [
        ("hopeless", "no_finish", 0, 0),
        ("talks", "no_finish", 0, 0),
        ("gave_up", "gave_up", 1, 1),
        ("bad_finish", "empty_answer", 1, 0),
    ],
)
def test_why_there_is_no_answer(script: str, kind: str, finish: int, give_up: int) -> None:
    found = verdicts(ENTRY, state(SCRIPTS[script], ["Unsolved"] * 3))
    for verdict in found.values():
        assert (verdict.valid, verdict.error_type) == (False, kind)
        assert verdict.metrics["finish"] == finish
        assert verdict.metrics["give_up"] == give_up
        assert verdict.metrics["sopr"] == 0


def test_other_judgements_are_metrics_where_there_are_any() -> None:
    plain = verdicts(ENTRY, state(SCRIPTS["answered"]))["official"].metrics
    assert not {"fac", "win", "lose", "tie"} & set(plain)
    judged = state(SCRIPTS["answered"]) | {
        "fac": {"status": "Solved"},
        "sowr": {"outcome": "tie", "by": "judge", "rounds": []},
    }
    found = verdicts(ENTRY, judged)["strict"].metrics
    assert (found["fac"], found["win"], found["lose"], found["tie"]) == (1, 0, 0, 1)


def test_an_answer_that_nobody_judged_has_no_score() -> None:
    for verdict in verdicts(ENTRY, state(SCRIPTS["answered"], None)).values():
        assert (verdict.valid, verdict.error_type) == (False, "not_judged")
        assert "sopr" not in verdict.metrics
        assert verdict.metrics["api_recall"] == 1


# groups


def rows(group: str, *votes: list[str], start: int = 0, **more: Any) -> list[ResultRow]:
    found = []
    for number, one in enumerate(votes, start):
        given = state(SCRIPTS["answered"], one) | more
        found.append(scored_row(group, str(number), verdicts(entry(str(number)), given)))
    return found


S, U, N = "Solved", "Unsure", "Unsolved"
G1 = rows("G1_tool", [S, S], [S, N], [N, N], [U, U])


def test_a_group() -> None:
    stats = summarize(G1)["categories"]["G1_tool"]
    official, strict = stats["official"], stats["strict"]
    assert official["sopr"]["value"] == (1 + 0.5 + 0 + 0.5) / 4
    assert strict["sopr"]["value"] == 0.25
    assert official["sopr"]["interval"] == pytest.approx(list(wilson(2, 4) or ()))
    assert official["sopr"]["n"] == 4
    # By vote: 1 + 1 + 0 + 0.5 and 1 + 0 + 0 + 0.5 of 4.
    assert official["votes"] == [0.625, 0.375]
    assert official["spread"] == 0.125
    assert official["accuracy"] == 0.25
    assert set(official["errors"]) == {"unsolved", "unsure"}
    assert stats["shares"]["api_recall"]["value"] == 1
    assert stats["shares"]["exact_set"]["value"] == 0
    assert stats["calls_per_query"] == 3
    assert stats["sources"] == {
        "calls": 12,
        "counts": {"cache": 12, "simulator": 0, "real": 0, "none": 0},
        "cached": {"recorded": 0, "simulator": 0, "real": 0},
        "failures": {},
    }
    assert stats["fac"] == {"value": None, "interval": None, "n": 0}


def test_skipped_queries_are_unsolved_and_failed_ones_are_nothing() -> None:
    more = [
        scored_row("G1_tool", "8", status="skipped"),
        scored_row("G1_tool", "9", status="infra_error", error_class="JudgeError"),
        scored_row("G1_tool", "10", status="infra_error", error_class="RequestFailed"),
    ]
    summary = summarize([*G1, *more], max_unscored=0.5)
    stats = summary["categories"]["G1_tool"]["official"]
    assert stats["sopr"]["value"] == pytest.approx(2 / 5)
    assert stats["sopr"]["n"] == 5
    assert stats["answered_only"]["value"] == 0.5
    assert stats["answered_only"]["n"] == 4
    assert summary["judge_errors"] == 1
    assert summary["counts"]["status"]["infra_error"] == 2
    assert summary["complete"]
    said = notes(summary)
    assert said[0].startswith("1 rows have no verdict because the judge gave none")
    assert said[1].startswith("1 rows were skipped")
    short = summarize([*G1, *more])
    assert short["incomplete"] == ["en/G1_tool: 3 of 7 rows not scored (2 infra_error, 1 skipped)"]


FAC, WIN = {"status": "Solved"}, {"outcome": "win", "by": "judge", "rounds": []}
SKIPPED = [
    scored_row("G1_tool", "8", status="skipped"),
    scored_row("G2_category", "9", status="skipped"),
]


def test_what_was_skipped_is_incomplete_and_lost() -> None:
    judged = rows("G1_tool", [S], [S], [S], fac=FAC, sowr=WIN)
    summary = summarize([*judged, *SKIPPED], max_unscored=1)
    one, other = (summary["categories"][name] for name in ("G1_tool", "G2_category"))
    assert one["fac"] == {"value": 0.75, "interval": list(wilson(3, 4) or ()), "n": 4}
    assert {name: one["sowr"][name]["value"] for name in ("win", "lose", "tie")} == {
        "win": 0.75,
        "lose": 0.25,
        "tie": 0,
    }
    assert one["official"]["answered_only"]["n"] == 3
    assert one["shares"]["finish"]["n"] == 3, "what needs no judge has rows alone"
    # All were skipped.
    for cell in (other["official"]["sopr"], other["strict"]["sopr"], other["fac"]):
        assert (cell["value"], cell["n"]) == (0, 1)
    assert (other["sowr"]["lose"]["value"], other["sowr"]["lose"]["n"]) == (1, 1)
    assert other["official"]["answered_only"]["value"] is None
    assert any("SoWR as lost" in note for note in notes(summary))


def test_what_nobody_asked_for_has_no_number() -> None:
    summary = summarize([*rows("G1_tool", [S]), *SKIPPED])
    for stats in summary["categories"].values():
        assert stats["official"]["sopr"]["value"] is not None
        assert (stats["fac"]["value"], stats["sowr"]["lose"]["n"]) == (None, 0)
    unjudged = scored_row("G1_tool", "1", verdicts(ENTRY, state(SCRIPTS["answered"], None)))
    unasked = summarize([unjudged, *SKIPPED])["categories"]
    assert {stats["official"]["sopr"]["value"] for stats in unasked.values()} == {None}
    # Where no row was scored, rows do not tell.
    assert summarize(SKIPPED)["categories"]["G1_tool"]["official"]["sopr"]["n"] == 1


def test_a_group_that_the_reference_lacks_is_not_lost() -> None:
    known, unknown = (
        rows("G1_tool", [S], sowr=WIN),
        rows("G2_category", [S], sowr_missing=True),
    )
    found = summarize([*known, *unknown, *SKIPPED])["categories"]
    assert found["G1_tool"]["sowr"]["lose"]["value"] == 0.5
    assert found["G2_category"]["sowr"]["lose"]["value"] is None


def whole(**more: Any) -> list[ResultRow]:
    """Of the nth group n + 1 queries, the first of them solved."""
    return [
        row
        for number, group in enumerate(GROUPS)
        for row in rows(group, [S, S], *[[N, N]] * number, **more)
    ]


def test_the_average_is_the_plain_mean_of_six_groups() -> None:
    summary = summarize(whole())
    mean = sum(1 / n for n in range(1, 7)) / 6
    for rules in RULE_SETS:
        found = summary["rules"][rules]["sopr"]
        assert found["value"] == pytest.approx(mean)
        assert (found["n"], found["missing"]) == (21, [])
        low, high = found["interval"]
        assert low < mean < high
    assert summary["rules"]["official"]["answered_only"]["value"] == pytest.approx(mean)
    assert summary["rules"]["official"]["spread"] == 0
    assert list(summary["categories"]) == list(GROUPS)
    assert summary["averages"]["fac"]["missing"] == list(GROUPS)
    assert summary["totals"]["api_calls"] == 63
    assert summary["totals"]["prompt_tokens"] == 210


@pytest.mark.parametrize("absent", GROUPS)
def test_there_is_no_average_without_a_group(absent: str) -> None:
    summary = summarize([row for row in whole() if row.category != absent])
    sopr = summary["rules"]["official"]["sopr"]
    assert (sopr["value"], sopr["interval"], sopr["missing"]) == (None, None, [absent])
    assert any(absent in note for note in notes(summary))


def test_samples_of_one_query_are_one_query() -> None:
    one = rows("G1_tool", [S, S])[0]
    two = rows("G1_tool", [N, N])[0]
    two.sample = 1
    found = summarize([one, two])["categories"]["G1_tool"]["official"]
    assert found["sopr"] == {
        "value": 0.5,
        "interval": list(wilson(0.5, 1) or ()),
        "n": 1,
    }
    assert found["samples"]["pass_at_k"] == {"1": 0.5, "2": 1.0}
    assert found["samples"]["pass_hat_k"] == {"1": 0.5, "2": 0.0}


def test_no_rows() -> None:
    summary = summarize([])
    assert summary["totals"]["calls_per_query"] is None
    assert summary["rules"]["strict"]["sopr"]["missing"] == list(GROUPS)
    assert table(summary)["lines"] == [["average", "0", "N/A", "N/A"]]
    assert further_tables(summary)


# printed


def shown(layout: dict[str, Any]) -> dict[str, dict[str, str]]:
    for line in layout["lines"]:
        assert len(line) == len(layout["header"])
        assert all(isinstance(cell, str) for cell in line)
    return {line[0]: dict(zip(layout["header"], line, strict=True)) for line in layout["lines"]}


def test_the_printed_tables() -> None:
    summary = summarize(whole(fac={"status": "Solved"}))
    lines = shown(table(summary))
    assert lines["G1_category"]["SoPR"].startswith("50.0 % [")
    assert lines["average"]["SoPR strict"].startswith("40.8 % [")
    judged, free, sources = (shown(layout) for layout in further_tables(summary))
    assert judged["G1_category"]["SoPR answered only"] == "50.0 % ± 0.0"
    assert judged["average"]["FAC"].startswith("100.0 %")
    assert "SoWR win" not in judged["average"]
    assert free["average"]["api_recall"] == "100.0 %"
    assert free["G1_tool"]["calls per query"] == "3.00"
    assert sources["all"]["cache"] == "100.0 %"


def test_sowr_is_printed_where_there_is_any() -> None:
    won = whole(sowr={"outcome": "win", "by": "status", "rounds": []})
    judged = shown(further_tables(summarize(won))[0])
    assert judged["average"]["SoWR win"] == "100.0 %"
    assert judged["G1_tool"]["SoWR tie"] == "0.0 %"


# reports


def reported(summary: dict[str, Any], label: str = "a", **fields: Any) -> ReportedRun:
    given: dict[str, Any] = {
        "label": label,
        "model": f"Qwen2.5-{label}",
        "candidate": {},
        "identity": {},
        "conditions": {},
        "parameters": None,
        "summary": summary,
        "plays": (),
        "headline": True,
        "incomplete": "",
    }
    return ReportedRun(**given | fields)


def test_the_scores() -> None:
    found = StableToolBench.scores(summarize(whole(fac={"status": "Solved"})), "official")
    assert titles(found) == [
        "SoPR (mean of groups)",
        "FAC",
        "SoWR",
        "API recall",
        "Accuracy (pooled)",
    ]
    sopr, _, sowr, _, accuracy = found
    assert sopr.estimate is not None
    assert accuracy.estimate is not None
    assert (sopr.estimate.n, sopr.estimate.partial, sopr.missing) == (21, False, ())
    assert (sowr.estimate, accuracy.estimate.n) == (None, 21)


def test_some_groups_have_a_partial_mean() -> None:
    names = ("G1_tool", "G3_instruction")
    rows = [row for row in whole() if row.category in names]
    one, other = (
        StableToolBench.scores(summarize([r for r in rows if r.category == name]), "official")[0]
        for name in names
    )
    found = StableToolBench.scores(summarize(rows), "official")[0]
    assert one.estimate is not None
    assert other.estimate is not None
    assert found.estimate is not None
    assert found.estimate.partial
    assert found.missing == tuple(
        name for name in GROUPS if name not in ("G1_tool", "G3_instruction")
    )
    assert found.estimate.value == (one.estimate.value + other.estimate.value) / 2
    assert found.estimate.n == one.estimate.n + other.estimate.n


def test_categories_and_groups() -> None:
    results = StableToolBench.categories(reported(summarize(whole())))
    assert [one.category for one in results if one.measure == "SoPR"] == list(GROUPS)
    assert not any(one.measure == "FAC" for one in results)
    last = results[-1]
    assert (last.category, last.measure, last.declared) == ("G3_instruction", "API recall", 6)
    assert [name for names in StableToolBench.groups.values() for name in names] == list(GROUPS)
    assert StableToolBench.task(G1[0]) == "en/G1_tool/0"


def test_upstreams_tables() -> None:
    summary = summarize(whole(fac={"status": "Unsolved"}))
    runs = [
        reported(summary, "1.5B", parameters=1_500_000_000),
        reported(summary, "7B", parameters=7_000_000_000),
    ]
    paper = StableToolBench.paper(runs, "official")
    assert [one.name for one in paper.tables] == ["sopr", "fac"]
    for one in paper.tables:
        assert all(len(line) == len(one.header) for line in one.lines)
    assert paper.tables[0].header[1] == "I1 Instruction"
    assert [figure.name for figure in paper.figures] == ["stabletoolbench-sizes"]
    assert paper.notes == ["no table of SOWR: no run has it"]


def test_a_group_with_too_many_failures_has_no_number_in_a_report() -> None:
    failed = scored_row("G1_tool", "99", status="infra_error", error_class="JudgeError")
    run = reported(summarize([*G1, failed]))
    assert StableToolBench.categories(run)[0].shares == {"official": None, "strict": None}
    assert StableToolBench.paper([run], "official").tables[0].lines[0][1:] == [None] * 8
