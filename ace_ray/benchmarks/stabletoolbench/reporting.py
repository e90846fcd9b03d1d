"""What reports need of StableToolBench: upstream's groups and tables."""

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
    Table,
    Value,
)
from ace_ray.benchmarks.sizes import curves_by_size
from ace_ray.benchmarks.stabletoolbench.groups import GROUPS
from ace_ray.benchmarks.stabletoolbench.scoring.figures import SHARES
from ace_ray.records import RULE_SETS

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


def headline(run: ReportedRun, rules: str) -> Mapping[str, Estimate | None]:
    """The means over the six groups: SoPR, FAC, SoWR's wins, and the API call score."""
    averages = run.summary["averages"]
    found = {
        "SoPR": run.summary["rules"][rules]["sopr"],
        "FAC": averages["fac"],
        "SoWR": averages["win"],
        "API recall": averages["api_recall"],
    }
    return {name: _estimate(cell) if run.headline else None for name, cell in found.items()}


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
        if table := _judged(runs, name, title, pick):
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


def _estimate(cell: Mapping[str, Any]) -> Estimate | None:
    if cell["value"] is None:
        return None
    low, high = cell["interval"]
    return Estimate(cell["value"], (low, high), cell["n"])


def _usable(run: ReportedRun, name: str, cell: Mapping[str, Any]) -> Estimate | None:
    stats = run.summary["categories"][name]
    if stats["unscored"] > run.summary["max_unscored"] * stats["declared"]:
        return None
    return _estimate(cell)


def _group_cell(run: ReportedRun, name: str, rules: str) -> Estimate | None:
    stats = run.summary["categories"].get(name)
    return None if stats is None else _usable(run, name, stats[rules]["sopr"])


def _sopr(runs: Sequence[ReportedRun], rules: str) -> Table:
    labels, legend = marked(runs)
    lines: list[list[Value]] = []
    for run, label in zip(runs, labels, strict=True):
        found = run.summary["rules"][rules]
        average = _estimate(found["sopr"]) if run.headline else None
        spread = None if found["spread"] is None else f"{100 * found['spread']:.1f}"
        cells = [_group_cell(run, name, rules) for name in GROUPS]
        lines.append([label, *cells, average, spread])
    return Table(
        name="sopr",
        title=f"SoPR, solvable pass rate (%), {rules} rules",
        header=["Model", *map(_title, GROUPS), "Average", "Spread of votes"],
        lines=lines,
        notes=[*legend, "skipped queries count as Unsolved", _LIKE_FOR_LIKE],
    )


def _judged(runs: Sequence[ReportedRun], name: str, title: str, pick: str) -> Table | None:
    def cell(stats: Mapping[str, Any]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = stats["fac"] if pick == "fac" else stats["sowr"][pick]
        return found

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
        average = _estimate(run.summary["averages"][pick]) if run.headline else None
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
            _estimate(run.summary["averages"][name]) if run.headline else None for name in SHARES
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
