"""The summary as printed tables, and what reports need: upstream's groups and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.conditions import marked
from ace_ray.benchmarks.results import (
    CategoryResult,
    Curves,
    Estimate,
    Figure,
    Paper,
    ReportedRun,
    Score,
    Table,
    Value,
    score_of,
)
from ace_ray.benchmarks.sizes import curves_by_size
from ace_ray.benchmarks.stabletoolbench.check import SOURCES
from ace_ray.benchmarks.stabletoolbench.groups import GROUPS
from ace_ray.benchmarks.stabletoolbench.score.summary import RATES, SHARES
from ace_ray.benchmarks.statistics import estimate, pooled, sample_tables
from ace_ray.records import RULE_SETS

HEADER = ("group", "queries", "SoPR", "SoPR strict")
AVERAGE = "average"


def table(summary: Mapping[str, Any]) -> dict[str, Any]:
    """SoPR by group, then the plain mean of all six."""
    lines = [
        [name, str(stats["declared"]), *(_shown_cell(stats[rules]["sopr"]) for rules in RULE_SETS)]
        for name, stats in summary["categories"].items()
    ]
    means = [_shown_cell(summary["rules"][rules]["sopr"]) for rules in RULE_SETS]
    lines.append([AVERAGE, str(summary["counts"]["declared"]), *means])
    return {"header": list(HEADER), "lines": lines}


def further_tables(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The judges' other numbers, those without a judge, where observations came from, and what
    several samples say."""
    categories = summary["categories"]
    tables = [_judged(summary)]
    tables.append(
        {
            "title": "without a judge",
            "header": ["group", *SHARES, "calls per query"],
            "lines": [
                [
                    name,
                    *(_short(stats["shares"][metric]) for metric in SHARES),
                    _number(stats["calls_per_query"]),
                ]
                for name, stats in categories.items()
            ]
            + [
                [
                    AVERAGE,
                    *(_short(summary["averages"][metric]) for metric in SHARES),
                    _number(summary["totals"]["calls_per_query"]),
                ]
            ],
        }
    )
    if summary["sources"]["calls"]:
        named = {name: stats["sources"] for name, stats in categories.items()}
        tables.append(
            {
                "title": "where observations came from",
                "header": ["group", "calls", *SOURCES],
                "lines": [
                    [name, str(sources["calls"]), *(_share(sources["shares"][s]) for s in SOURCES)]
                    for name, sources in {**named, "all": summary["sources"]}.items()
                ],
            }
        )
    return tables + sample_tables(categories, RULE_SETS)


def notes(summary: Mapping[str, Any]) -> list[str]:
    """What else there is to say, a sentence each."""
    sentences = []
    if failed := summary["judge_errors"]:
        sentences.append(
            f"{failed} rows have no verdict because the judge gave none (JudgeError); they count "
            "nowhere, and the same command tries them again"
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
    cached = {name: n for name, n in summary["sources"]["cached"].items() if n}
    if cached:
        made = ", ".join(f"{name} {n}" for name, n in cached.items())
        sentences.append(f"API answers out of the cache, by who made them: {made}")
    if lost := summary["sources"]["unrecorded"]:
        sentences.append(
            f"{lost} API answers could not be recorded, so a second run has to ask for them again "
            "(each call in a row's state says why)"
        )
    if free := summary["sources"]["schema_refused"]:
        sentences.append(
            f"{free} API calls were simulated without a schema for the answer (each call in a "
            "row's state says why)"
        )
    if failures := summary["sources"]["failures"]:
        kinds = ", ".join(f"{kind} {n}" for kind, n in failures.items())
        sentences.append(
            f"{sum(failures.values())} API calls failed without an answer of an API: {kinds}"
        )
    if summary["rules"]["official"]["sopr"]["missing"]:
        missing = ", ".join(summary["rules"]["official"]["sopr"]["missing"])
        sentences.append(f"no average: it needs every group, and these are missing: {missing}")
    return sentences


def _judged(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Upstream's SoPR with its spread over the votes, FAC, and SoWR where there is any."""
    compared = any(stats["sowr"]["win"]["n"] for stats in summary["categories"].values())
    rates = RATES if compared else ()
    lines = []
    for name, stats in summary["categories"].items():
        official = stats["official"]
        cells = [_short(stats["sowr"][rate]) for rate in rates]
        lines.append([name, *cells, *_upstream(official), _shown_cell(stats["fac"])])
    cells = [_short(summary["averages"][rate]) for rate in rates]
    average = _upstream(summary["rules"]["official"])
    lines.append([AVERAGE, *cells, *average, _shown_cell(summary["averages"]["fac"])])
    header = ["group", *(f"SoWR {rate}" for rate in rates), "answered", "SoPR answered only", "FAC"]
    return {"title": "judged", "header": header, "lines": lines}


def _upstream(official: Mapping[str, Any]) -> list[str]:
    cell, spread = official["answered_only"], official["spread"]
    if cell["value"] is None:
        return [str(cell["n"]), "N/A"]
    shown = f"{100 * cell['value']:.1f} %"
    return [str(cell["n"]), shown if spread is None else f"{shown} ± {100 * spread:.1f}"]


def _shown_cell(cell: Mapping[str, Any]) -> str:
    if cell["value"] is None:
        return "N/A"
    low, high = cell["interval"]
    return f"{100 * cell['value']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _short(cell: Mapping[str, Any]) -> str:
    return _share(cell["value"])


def _share(value: float | None) -> str:
    return "N/A" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "N/A" if value is None else f"{value:.2f}"


_LEVELS = {"G1": "I1", "G2": "I2", "G3": "I3"}
_KINDS = {"instruction": "Instruction", "category": "Category", "tool": "Tool"}
_SHARE_TITLES = {
    "api_recall": "API recall",
    "api_precision": "API precision",
    "exact_set": "Exact set",
    "finish": "Finish",
    "give_up": "Give up",
    "hallucinated": "Hallucinated",
    "errors": "Errors",
    "cache_hit": "Cache hits",
}
_LIKE_FOR_LIKE = "runs compare only with the same judge and the same source of observations"


def scores(summary: Mapping[str, Any], rules: str) -> list[Score]:
    """The means over the six groups, SoPR, FAC, SoWR's wins and the API call score; and the share
    of all queries that are solved."""
    averages = summary["averages"]
    cells = {
        "SoPR": summary["rules"][rules]["sopr"],
        "FAC": averages["fac"],
        "SoWR": averages["win"],
        "API recall": averages["api_recall"],
    }
    return [
        *(
            score_of(cell, name, "mean of groups", cell["n"], cell["missing"])
            for name, cell in cells.items()
        ),
        pooled(stats[rules] for stats in summary["categories"].values()),
    ]


def categories(run: ReportedRun) -> Sequence[CategoryResult]:
    """SoPR, and of runs with either FAC and API recall, which are the same in both rule
    sets."""
    results = []
    for name, stats in run.summary["categories"].items():
        measures = {
            "SoPR": {rules: _group_cell(run, name, rules) for rules in RULE_SETS},
            "FAC": dict.fromkeys(RULE_SETS, _usable(run, name, stats["fac"])),
            "API recall": dict.fromkeys(
                RULE_SETS, _usable(run, name, stats["shares"]["api_recall"])
            ),
        }
        results += [
            CategoryResult("en", name, measure, stats["declared"], stats["scored"], shares)
            for measure, shares in measures.items()
            if measure == "SoPR" or any(shares.values())
        ]
    return results


LEVELS: Mapping[str, Sequence[str]] = {
    level: [name for name in GROUPS if name.startswith(prefix)] for prefix, level in _LEVELS.items()
}


def paper(runs: Sequence[ReportedRun], rules: str) -> Paper:
    """Upstream's tables of SoPR, FAC and SoWR, what needs no judge, and SoPR against size."""
    tables = [_sopr(runs, rules)]
    notes = []
    for name, title, pick in (
        ("fac", "FAC, final answer completeness", "fac"),
        ("sowr", "SoWR, wins against the reference run", "win"),
    ):
        if table := _judged_table(runs, name, title, pick):
            tables.append(table)
        else:
            notes.append(f"no table of {name.upper()}: no run has it")
    tables.append(_judge_free(runs))
    figures: list[Figure] = []
    if sizes := _sizes(runs, rules):
        figures.append(sizes)
    else:
        notes.append("no curve over sizes: it needs models of at least two known sizes")
    return Paper(tables, figures, notes)


def _title(group: str) -> str:
    level, _, kind = group.partition("_")
    return f"{_LEVELS[level]} {_KINDS[kind]}"


def _usable(run: ReportedRun, name: str, cell: Mapping[str, Any]) -> Estimate | None:
    stats = run.summary["categories"][name]
    if stats["unscored"] > run.summary["max_unscored"] * stats["declared"]:
        return None
    return estimate(cell, "value")


def _group_cell(run: ReportedRun, name: str, rules: str) -> Estimate | None:
    stats = run.summary["categories"].get(name)
    return None if stats is None else _usable(run, name, stats[rules]["sopr"])


def _sopr(runs: Sequence[ReportedRun], rules: str) -> Table:
    labels, legend = marked(runs)
    lines: list[list[Value]] = []
    for run, label in zip(runs, labels, strict=True):
        stats = run.summary["rules"][rules]
        average = estimate(stats["sopr"], "value") if run.headline else None
        spread = None if stats["spread"] is None else f"{100 * stats['spread']:.1f}"
        cells = [_group_cell(run, name, rules) for name in GROUPS]
        lines.append([label, *cells, average, spread])
    return Table(
        name="sopr",
        title=f"SoPR, solvable pass rate (%), {rules} rules",
        header=["Model", *map(_title, GROUPS), "Average", "Spread of votes"],
        lines=lines,
        notes=[*legend, "skipped queries count as Unsolved", _LIKE_FOR_LIKE],
    )


def _judged_table(runs: Sequence[ReportedRun], name: str, title: str, pick: str) -> Table | None:
    def cell(stats: Mapping[str, Any]) -> Mapping[str, Any]:
        picked: Mapping[str, Any] = stats["fac"] if pick == "fac" else stats["sowr"][pick]
        return picked

    shown = [
        run for run in runs if any(cell(stats)["n"] for stats in run.summary["categories"].values())
    ]
    if not shown:
        return None
    labels, legend = marked(shown)
    lines: list[list[Value]] = []
    for run, label in zip(shown, labels, strict=True):
        categories = run.summary["categories"]
        cells = [
            _usable(run, group, cell(categories[group])) if group in categories else None
            for group in GROUPS
        ]
        average = estimate(run.summary["averages"][pick], "value") if run.headline else None
        lines.append([label, *cells, average])
    return Table(
        name=name,
        title=f"{title} (%)",
        header=["Model", *map(_title, GROUPS), "Average"],
        lines=lines,
        notes=[*legend, _LIKE_FOR_LIKE],
    )


def _judge_free(runs: Sequence[ReportedRun]) -> Table:
    labels, legend = marked(runs)
    lines: list[list[Value]] = []
    for run, label in zip(runs, labels, strict=True):
        calls = run.summary["totals"]["calls_per_query"]
        cells = [
            estimate(run.summary["averages"][name], "value") if run.headline else None
            for name in SHARES
        ]
        lines.append([label, *cells, None if calls is None else f"{calls:.2f}"])
    return Table(
        name="without-a-judge",
        title="What needs no judge: means of the six groups (%)",
        header=["Model", *(_SHARE_TITLES[name] for name in SHARES), "Calls per query"],
        lines=lines,
        notes=legend,
    )


def _sizes(runs: Sequence[ReportedRun], rules: str) -> Curves | None:
    panels = {_title(name): lambda run, name=name: _group_cell(run, name, rules) for name in GROUPS}
    title = f"SoPR against model size ({rules} rules)"
    return curves_by_size(runs, panels, "stabletoolbench-sizes", title)
