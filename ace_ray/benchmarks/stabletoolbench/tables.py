"""Build the printed tables from the summary, and the scores and tables of reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ace_ray.benchmarks.aggregates import score_of, table_of_runs
from ace_ray.benchmarks.results import (
    BenchmarkResult,
    CategoryResult,
    Estimate,
    Paper,
    Score,
    Value,
)
from ace_ray.benchmarks.sizes import curves_by_size, paper_with_curves
from ace_ray.benchmarks.stabletoolbench.callable_names import GROUPS
from ace_ray.benchmarks.stabletoolbench.check import SOURCES
from ace_ray.benchmarks.stabletoolbench.summary import RATES, SHARES, has_values
from ace_ray.benchmarks.statistics import (
    VALUE,
    estimate,
    percent,
    percents,
    pooled_score,
    sample_tables,
)
from ace_ray.types import RULE_SETS

AVERAGE = "average"
Stats = Mapping[str, Any]


def _group_stats(summary: Stats) -> dict[str, Stats]:
    """Return the statistics of each group, and of the mean over groups in the same form."""
    averages, totals = summary["averages"], summary["totals"]
    means = {"declared": summary["counts"]["declared"], **summary["rules"], "fac": averages["fac"]}
    means |= {"sowr": averages, "shares": averages, "calls_per_query": totals["calls_per_query"]}
    return {**summary["categories"], AVERAGE: means}


def _group_table(
    header: Sequence[str], groups: Mapping[str, Stats], cells: Callable[[Stats], Sequence[str]]
) -> dict[str, Any]:
    """Build a printed table with a line for each of ``groups``."""
    lines = [[name, *cells(stats)] for name, stats in groups.items()]
    return {"header": ["group", *header], "lines": lines}


def table(summary: Stats) -> dict[str, Any]:
    """Build the printed table: solvable pass rates (SoPR) by group, and their mean over groups."""

    def cells(stats: Stats) -> list[str]:
        sopr = percents((stats[rules]["sopr"] for rules in RULE_SETS), VALUE)
        return [str(stats["declared"]), *sopr]

    return _group_table(["queries", "SoPR", "SoPR strict"], _group_stats(summary), cells)


def further_tables(summary: Stats) -> list[dict[str, Any]]:
    """Build the tables that are printed after `table`: other metrics from a judge, metrics without
    a judge, sources of API answers, and pass@k."""
    categories, groups = summary["categories"], _group_stats(summary)
    has_pool = any(stats["shares"]["offered_recall"]["n"] for stats in categories.values())
    metrics = SHARES if has_pool else [name for name in SHARES if name != "offered_recall"]
    compared = any(stats["sowr"]["win"]["n"] for stats in categories.values())
    rates = RATES if compared else ()

    def judged_cells(stats: Stats) -> list[str]:
        sowr = [percent(stats["sowr"][rate]["value"]) for rate in rates]
        answered, spread = stats["official"]["answered_only"], stats["official"]["spread"]
        has_spread = spread is not None and answered["value"] is not None
        sopr = percent(answered["value"]) + (f" ± {100 * spread:.1f}" if has_spread else "")
        return [*sowr, str(answered["n"]), sopr, *percents([stats["fac"]], VALUE)]

    def unjudged_cells(stats: Stats) -> list[str]:
        calls = stats["calls_per_query"]
        shares = [percent(stats["shares"][name]["value"]) for name in metrics]
        return [*shares, "N/A" if calls is None else f"{calls:.2f}"]

    def source_cells(stats: Stats) -> list[str]:
        calls, counts = stats["sources"]["calls"], stats["sources"]["counts"]
        return [str(calls), *(percent(counts[s] / calls if calls else None) for s in SOURCES)]

    header = [*(f"SoWR {rate}" for rate in rates), "answered", "SoPR answered only", "FAC"]
    unjudged_header = [*metrics, "calls per query"]
    tables = [
        {"title": "judged", **_group_table(header, groups, judged_cells)},
        {"title": "without a judge", **_group_table(unjudged_header, groups, unjudged_cells)},
    ]
    if summary["sources"]["calls"]:
        lines = _group_table(["calls", *SOURCES], {**categories, "all": summary}, source_cells)
        tables.append({"title": "where observations came from", **lines})
    return tables + sample_tables(categories, RULE_SETS)


def tables(summary: Stats) -> dict[str, Any]:
    return {"table": table(summary), "further_tables": further_tables(summary)}


def notes(summary: Stats) -> list[str]:
    """Return further notes on the numbers, one sentence each."""
    sources, sentences = summary["sources"], []
    if failed := summary["judge_errors"]:
        sentences.append(
            f"{failed} rows have no verdict because the judge gave none (JudgeError); they are "
            "not counted, and the same command retries them"
        )
    if skipped := summary["counts"]["status"]["skipped"]:
        sentences.append(
            f"{skipped} rows were skipped: SoPR and FAC count them as Unsolved, SoWR as lost; "
            "'answered only' leaves them out as upstream does"
        )
    if lacking := sum(stats["sowr"]["missing"] for stats in summary["categories"].values()):
        sentences.append(
            f"{lacking} rows have no SoWR: the reference has no answer to their queries; missing "
            "queries are neither won nor lost"
        )
    if cached := _join_counts(sources["cached"]):
        sentences.append(f"API answers from the cache, by origin: {cached}")
    if kinds := _join_counts(sources["failures"]):
        failed = sum(sources["failures"].values())
        sentences.append(f"{failed} API calls got no answer from an API: {kinds}")
    if missing := summary["rules"]["official"]["sopr"]["missing"]:
        sentences.append(f"no average: these groups have no SoPR: {', '.join(missing)}")
    return sentences


def _join_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items() if n)


_LIKE_FOR_LIKE = "runs are comparable only with the same judge and the same source of observations"
# The measures of reports, in the statistics of a group under a rule set.
_MEASURES: Mapping[str, Callable[[Stats, str], Stats]] = {
    "SoPR": lambda stats, rules: stats[rules]["sopr"],
    "FAC": lambda stats, _: stats["fac"],
    "SoWR": lambda stats, _: stats["sowr"]["win"],
    "API recall": lambda stats, _: stats["shares"]["api_recall"],
}


def scores(summary: Stats, rules: str) -> list[Score]:
    """Return means over the six groups (SoPR, FAC, SoWR, API recall), and the mean over queries."""
    means = _group_stats(summary)[AVERAGE]
    cells = {name: measure(means, rules) for name, measure in _MEASURES.items()}
    return [
        *(score_of(c, name, "mean of groups", c["n"], len(GROUPS)) for name, c in cells.items()),
        pooled_score(stats[rules] for stats in summary["categories"].values()),
    ]


def categories(run: BenchmarkResult) -> Sequence[CategoryResult]:
    """Return SoPR, FAC and API recall by group. FAC and API recall are equal in both rule sets, and
    are left out if a group lacks values."""
    results = []
    for name, stats in run.summary["categories"].items():
        for measure in ("SoPR", "FAC", "API recall"):
            shares = {rules: _group_estimate(run, name, measure, rules) for rules in RULE_SETS}
            if measure == "SoPR" or any(shares.values()):
                numbers = stats["declared"], stats["scored"], shares
                results.append(CategoryResult("en", name, measure, *numbers))
    return results


def paper(runs: Sequence[BenchmarkResult], rules: str) -> Paper:
    """Build upstream's tables of SoPR, FAC and SoWR, and the curve of SoPR over model size."""
    tables, missing = [], []
    for measure, title, notes in (
        ("SoPR", f"solvable pass rate (%), {rules} rules", ["skipped queries count as Unsolved"]),
        ("FAC", "final answer completeness (%)", []),
        ("SoWR", "wins against the reference run (%)", []),
    ):
        cell = _MEASURES[measure]
        present = [
            run
            for run in runs
            if any(cell(stats, rules)["n"] for stats in run.summary["categories"].values())
        ]
        votes = measure == "SoPR"
        if not present and not votes:
            missing.append(f"no table of {measure.upper()}: no run has values")
            continue
        header = [*map(_title, GROUPS), "Average", *(["Spread of votes"] if votes else [])]
        line = partial(_line, measure=measure, rules=rules)
        table_runs = runs if votes else present
        title = f"{measure}, {title}"
        notes = [*notes, _LIKE_FOR_LIKE]
        tables.append(table_of_runs(measure.lower(), title, header, table_runs, line, notes))
    panels = {
        _title(name): lambda run, name=name: _group_estimate(run, name, "SoPR", rules)
        for name in GROUPS
    }
    title = f"SoPR against model size ({rules} rules)"
    curves = curves_by_size(runs, panels, "stabletoolbench-sizes", title)
    return paper_with_curves(tables, missing, curves)


def _line(run: BenchmarkResult, measure: str, rules: str) -> list[Value]:
    """Return the values of the groups and their mean, and the spread of SoPR's votes."""
    mean = _MEASURES[measure](_group_stats(run.summary)[AVERAGE], rules)
    average = estimate(mean, VALUE) if run.headline else None
    line: list[Value] = [*(_group_estimate(run, g, measure, rules) for g in GROUPS), average]
    if measure == "SoPR":
        spread = run.summary["rules"][rules]["spread"]
        line.append(None if spread is None else f"{100 * spread:.1f}")
    return line


def _title(group: str) -> str:
    level, _, kind = group.partition("_")
    return f"{level.replace('G', 'I')} {kind.capitalize()}"


def _group_estimate(run: BenchmarkResult, name: str, measure: str, rules: str) -> Estimate | None:
    stats = run.summary["categories"].get(name)
    if stats is None or not has_values(stats, run.summary["max_unscored"]):
        return None
    return estimate(_MEASURES[measure](stats, rules), VALUE)
