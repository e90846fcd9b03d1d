"""The summary as the lines of printed tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.stabletoolbench.scoring.calls import SOURCES
from ace_ray.benchmarks.stabletoolbench.scoring.figures import RATES, SHARES
from ace_ray.records import RULE_SETS

HEADER = ("group", "queries", "SoPR", "SoPR strict")
AVERAGE = "average"


def table(summary: Mapping[str, Any]) -> dict[str, Any]:
    """SoPR by group, then the plain mean of all six."""
    lines = [
        [name, str(stats["declared"]), *(_cell(stats[rules]["sopr"]) for rules in RULE_SETS)]
        for name, stats in summary["categories"].items()
    ]
    means = [_cell(summary["rules"][rules]["sopr"]) for rules in RULE_SETS]
    lines.append([AVERAGE, str(summary["counts"]["declared"]), *means])
    return {"header": list(HEADER), "lines": lines}


def further_tables(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The judges' other numbers, those without a judge, and where observations came from."""
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
                    [name, str(found["calls"]), *(_share(found["shares"][s]) for s in SOURCES)]
                    for name, found in {**named, "all": summary["sources"]}.items()
                ],
            }
        )
    return tables


def notes(summary: Mapping[str, Any]) -> list[str]:
    """What else there is to say, a sentence each."""
    found = []
    if failed := summary["judge_errors"]:
        found.append(
            f"{failed} rows have no verdict because the judge gave none (JudgeError); they count "
            "nowhere, and the same command tries them again"
        )
    if skipped := summary["counts"]["status"]["skipped"]:
        found.append(
            f"{skipped} rows were skipped: SoPR and FAC count them as Unsolved, SoWR as lost; "
            "'answered only' leaves them out as upstream does"
        )
    if lacking := sum(stats["sowr"]["missing"] for stats in summary["categories"].values()):
        found.append(
            f"{lacking} rows have no SoWR: the reference has no answer to their queries; missing "
            "queries are neither won nor lost"
        )
    cached = {name: n for name, n in summary["sources"]["cached"].items() if n}
    if cached:
        made = ", ".join(f"{name} {n}" for name, n in cached.items())
        found.append(f"API answers out of the cache, by who made them: {made}")
    if lost := summary["sources"]["unrecorded"]:
        found.append(
            f"{lost} API answers could not be recorded, so a second run has to ask for them again "
            "(each call in a row's state says why)"
        )
    if failures := summary["sources"]["failures"]:
        kinds = ", ".join(f"{kind} {n}" for kind, n in failures.items())
        found.append(
            f"{sum(failures.values())} API calls failed without an answer of an API: {kinds}"
        )
    if summary["rules"]["official"]["sopr"]["missing"]:
        missing = ", ".join(summary["rules"]["official"]["sopr"]["missing"])
        found.append(f"no average: it needs every group, and these are missing: {missing}")
    return found


def _judged(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Upstream's SoPR with its spread over the votes, FAC, and SoWR where there is any."""
    compared = any(stats["sowr"]["win"]["n"] for stats in summary["categories"].values())
    rates = RATES if compared else ()
    lines = []
    for name, stats in summary["categories"].items():
        found = stats["official"]
        cells = [_short(stats["sowr"][rate]) for rate in rates]
        lines.append([name, *cells, *_upstream(found), _cell(stats["fac"])])
    cells = [_short(summary["averages"][rate]) for rate in rates]
    average = _upstream(summary["rules"]["official"])
    lines.append([AVERAGE, *cells, *average, _cell(summary["averages"]["fac"])])
    header = ["group", *(f"SoWR {rate}" for rate in rates), "answered", "SoPR answered only", "FAC"]
    return {"title": "judged", "header": header, "lines": lines}


def _upstream(found: Mapping[str, Any]) -> list[str]:
    cell, spread = found["answered_only"], found["spread"]
    if cell["value"] is None:
        return [str(cell["n"]), "N/A"]
    shown = f"{100 * cell['value']:.1f} %"
    return [str(cell["n"]), shown if spread is None else f"{shown} ± {100 * spread:.1f}"]


def _cell(cell: Mapping[str, Any]) -> str:
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
