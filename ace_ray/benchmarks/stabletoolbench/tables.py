"""Build the printed tables from the summary, and the scores and tables of reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.conditions import marked
from ace_ray.benchmarks.results import (
    CategoryResult,
    Estimate,
    Paper,
    ReportedRun,
    Score,
    Table,
    Value,
    score_of,
)
from ace_ray.benchmarks.sizes import curves_by_size
from ace_ray.benchmarks.stabletoolbench.check import SOURCES
from ace_ray.benchmarks.stabletoolbench.names import GROUPS
from ace_ray.benchmarks.stabletoolbench.summary import RATES, SHARES, lacking
from ace_ray.benchmarks.statistics import estimate, percent, pooled, sample_tables
from ace_ray.types import RULE_SETS

AVERAGE = "average"
Stats = Mapping[str, Any]


def table(summary: Stats) -> dict[str, Any]:
    """Build the printed table: SoPR by group, then the unweighted mean of all six groups."""

    def line(name: str, declared: int, stats: Stats) -> list[str]:
        return [name, str(declared), *(_shown(stats[rules]["sopr"]) for rules in RULE_SETS)]

    lines = [line(name, one["declared"], one) for name, one in summary["categories"].items()]
    lines.append(line(AVERAGE, summary["counts"]["declared"], summary["rules"]))
    return {"header": ["group", "queries", "SoPR", "SoPR strict"], "lines": lines}


def further_tables(summary: Stats) -> list[dict[str, Any]]:
    """Build the tables that are printed after `table`: other judged metrics, metrics without a
    judge, sources of observations, and pass@k."""
    categories, averages = summary["categories"], summary["averages"]
    has_pool = any(one["shares"]["offered_recall"]["n"] for one in categories.values())
    metrics = SHARES if has_pool else [name for name in SHARES if name != "offered_recall"]
    free = [
        [name, *(_share(one["shares"][metric]["value"]) for metric in metrics), _number(one)]
        for name, one in categories.items()
    ]
    means = (_share(averages[metric]["value"]) for metric in metrics)
    free.append([AVERAGE, *means, _number(summary["totals"])])
    header = ["group", *metrics, "calls per query"]
    tables = [_judged(summary), {"title": "without a judge", "header": header, "lines": free}]
    if summary["sources"]["calls"]:
        named = {name: stats["sources"] for name, stats in categories.items()}
        lines = [
            [name, str(found["calls"]), *(_part(found, source) for source in SOURCES)]
            for name, found in {**named, "all": summary["sources"]}.items()
        ]
        header = ["group", "calls", *SOURCES]
        tables.append({"title": "where observations came from", "header": header, "lines": lines})
    return tables + sample_tables(categories, RULE_SETS)


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
    if cached := _listed(sources["cached"]):
        sentences.append(f"API answers from the cache, by origin: {cached}")
    if kinds := _listed(sources["failures"]):
        failed = sum(sources["failures"].values())
        sentences.append(f"{failed} API calls got no answer from an API: {kinds}")
    if missing := summary["rules"]["official"]["sopr"]["missing"]:
        sentences.append(f"no average: these groups have no SoPR: {', '.join(missing)}")
    return sentences


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items() if n)


def _judged(summary: Stats) -> dict[str, Any]:
    """Build the table of SoWR (if any), SoPR over the answered queries with its spread, and FAC."""
    compared = any(stats["sowr"]["win"]["n"] for stats in summary["categories"].values())
    rates = RATES if compared else ()

    def line(name: str, official: Stats, sowr: Stats, fac: Stats) -> list[str]:
        cells = [_share(sowr[rate]["value"]) for rate in rates]
        return [name, *cells, *_upstream(official), _shown(fac)]

    lines = [
        line(name, stats["official"], stats["sowr"], stats["fac"])
        for name, stats in summary["categories"].items()
    ]
    averages = summary["averages"]
    lines.append(line(AVERAGE, summary["rules"]["official"], averages, averages["fac"]))
    header = ["group", *(f"SoWR {rate}" for rate in rates), "answered", "SoPR answered only", "FAC"]
    return {"title": "judged", "header": header, "lines": lines}


def _upstream(official: Stats) -> list[str]:
    cell, spread = official["answered_only"], official["spread"]
    varies = "" if spread is None or cell["value"] is None else f" ± {100 * spread:.1f}"
    return [str(cell["n"]), _share(cell["value"]) + varies]


def _shown(cell: Stats) -> str:
    return percent(cell["value"], cell["interval"])


def _share(value: float | None) -> str:
    return "N/A" if value is None else f"{100 * value:.1f} %"


def _part(sources: Stats, source: str) -> str:
    calls = sources["calls"]
    return _share(sources["counts"][source] / calls if calls else None)


def _number(stats: Stats) -> str:
    calls = stats["calls_per_query"]
    return "N/A" if calls is None else f"{calls:.2f}"


_LIKE_FOR_LIKE = "runs are comparable only with the same judge and the same source of observations"


def scores(summary: Stats, rules: str) -> list[Score]:
    """Return the means over the six groups (SoPR, FAC, SoWR's wins, API recall), and the share of
    solved queries."""
    averages = summary["averages"]
    cells = {
        "SoPR": summary["rules"][rules]["sopr"],
        "FAC": averages["fac"],
        "SoWR": averages["win"],
        "API recall": averages["api_recall"],
    }
    return [
        *(
            score_of(cell, name, "mean of groups", cell["n"], len(GROUPS))
            for name, cell in cells.items()
        ),
        pooled(stats[rules] for stats in summary["categories"].values()),
    ]


def categories(run: ReportedRun) -> Sequence[CategoryResult]:
    """Return SoPR, FAC and API recall by group. FAC and API recall are equal in both rule sets, and
    are left out if a group lacks values."""
    results = []
    for name, stats in run.summary["categories"].items():
        measures = {
            "SoPR": {rules: _of_group(run, name, _sopr(rules)) for rules in RULE_SETS},
            "FAC": dict.fromkeys(RULE_SETS, _of_group(run, name, _FAC)),
            "API recall": dict.fromkeys(
                RULE_SETS, _of_group(run, name, lambda one: one["shares"]["api_recall"])
            ),
        }
        results += [
            CategoryResult("en", name, measure, stats["declared"], stats["scored"], shares)
            for measure, shares in measures.items()
            if measure == "SoPR" or any(shares.values())
        ]
    return results


def paper(runs: Sequence[ReportedRun], rules: str) -> Paper:
    """Build upstream's tables of SoPR, FAC and SoWR, and the curve of SoPR over model size."""

    def sopr(run: ReportedRun) -> list[Value]:
        stats = run.summary["rules"][rules]
        spread = None if stats["spread"] is None else f"{100 * stats['spread']:.1f}"
        return [*_groups(run, _sopr(rules)), _average(run, stats["sopr"]), spread]

    by_group = ["Model", *map(_title, GROUPS), "Average"]
    skipped = "skipped queries count as Unsolved"
    title = f"SoPR, solvable pass rate (%), {rules} rules"
    header = [*by_group, "Spread of votes"]
    tables, missing = [_table("sopr", title, header, runs, sopr, skipped, _LIKE_FOR_LIKE)], []
    for name, title, cell, average in (
        ("fac", "FAC, final answer completeness (%)", _FAC, "fac"),
        ("sowr", "SoWR, wins against the reference run (%)", _WINS, "win"),
    ):

        def line(run: ReportedRun, cell: Pick = cell, average: str = average) -> list[Value]:
            return [*_groups(run, cell), _average(run, run.summary["averages"][average])]

        shown = [r for r in runs if any(cell(one)["n"] for one in r.summary["categories"].values())]
        if shown:
            tables.append(_table(name, title, by_group, shown, line, _LIKE_FOR_LIKE))
        else:
            missing.append(f"no table of {name.upper()}: no run has it")
    panels = {
        _title(name): lambda run, name=name: _of_group(run, name, _sopr(rules)) for name in GROUPS
    }
    title = f"SoPR against model size ({rules} rules)"
    sizes = curves_by_size(runs, panels, "stabletoolbench-sizes", title)
    if not sizes:
        missing.append("no curve over sizes: it needs models of at least two known sizes")
    return Paper(tables, [sizes] if sizes else [], missing)


# Picks a cell of a group's statistics.
Pick = Callable[[Stats], Stats]
_FAC: Pick = lambda stats: stats["fac"]  # noqa: E731
_WINS: Pick = lambda stats: stats["sowr"]["win"]  # noqa: E731


def _sopr(rules: str) -> Pick:
    return lambda stats: stats[rules]["sopr"]


def _table(
    name: str,
    title: str,
    header: Sequence[str],
    runs: Sequence[ReportedRun],
    cells: Callable[[ReportedRun], list[Value]],
    *further: str,
) -> Table:
    labels, legend = marked(runs)
    lines = [[label, *cells(run)] for run, label in zip(runs, labels, strict=True)]
    return Table(name=name, title=title, header=header, lines=lines, notes=[*legend, *further])


def _title(group: str) -> str:
    level, _, kind = group.partition("_")
    return f"{level.replace('G', 'I')} {kind.capitalize()}"


def _of_group(run: ReportedRun, name: str, cell: Pick) -> Estimate | None:
    stats = run.summary["categories"].get(name)
    if stats is None or lacking(stats) > run.summary["max_unscored"] * stats["declared"]:
        return None
    return estimate(cell(stats), "value")


def _groups(run: ReportedRun, cell: Pick) -> list[Value]:
    return [_of_group(run, name, cell) for name in GROUPS]


def _average(run: ReportedRun, cell: Stats) -> Estimate | None:
    return estimate(cell, "value") if run.headline else None
