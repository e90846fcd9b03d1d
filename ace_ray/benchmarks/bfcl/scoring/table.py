"""The summary as the lines of printed tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.categories import GROUPS
from ace_ray.benchmarks.bfcl.scoring.diagnostics import ENDINGS
from ace_ray.records import RULE_SETS

HEADER = ("group", "category", "n", "official", "strict")
_GROUPS = ("non_live", "live", "multi_turn", "web_search", "memory")
_COLUMNS = ("non_live", "live", "irrelevance_mean", "multi_turn", "agentic")


def table(summary: Mapping[str, Any], absent: Mapping[str, str]) -> dict[str, Any]:
    """Categories, then the groups that are whole, then both overall scores.

    ``absent`` are categories that were not run, and why; they read ``N/A``.
    """
    lines = []
    for category, stats in summary["categories"].items():
        group = next((name for name in _GROUPS if category in GROUPS[name]), "not scored")
        lines.append([group, category, str(stats["official"]["n"]), *_cells(stats, "accuracy")])
    for category in absent:
        group = next(name for name in _GROUPS if category in GROUPS[name])
        lines.append([group, category, "", "N/A", "N/A"])
    for version in ("v4", "v3"):
        for name in (*_COLUMNS, "overall") if version == "v4" else ("overall",):
            found = {rules: summary["rules"][rules][version][name] for rules in RULE_SETS}
            title = found["official"]["title"]
            if name == "overall" or found["official"]["value"] is not None:
                lines.append([title, "", "", *_cells(found, "value")])
    return {"header": list(HEADER), "lines": lines}


def further_tables(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How episodes ended, and the accuracy of each form of prompt, where there are any."""
    tables = []
    if summary["endings"]:
        tables.append(
            {
                "title": "how episodes ended",
                "header": ["category", *ENDINGS],
                "lines": [
                    [category, *map(str, found.values())]
                    for category, found in summary["endings"].items()
                ],
            }
        )
    if sensitivity := summary["format_sensitivity"]:
        official, strict = sensitivity["official"], sensitivity["strict"]
        lines = [
            [form, str(stats["n"]), *_cells({"official": stats, "strict": strict["forms"][form]})]
            for form, stats in official["forms"].items()
        ]
        lines += [
            [f"{name} (points)", "", *(_points(found[name]) for found in (official, strict))]
            for name in ("range", "stdev")
        ]
        header = ["form", "n", "official", "strict"]
        tables.append({"title": "format sensitivity", "header": header, "lines": lines})
    return tables


def notes(summary: Mapping[str, Any], absent: Mapping[str, str]) -> list[str]:
    """What else there is to say, a sentence each."""
    found = [f"{category} was not run: {why}" for category, why in absent.items()]
    if score := summary["contamination"]:
        low, high = score["interval"]
        single, live = score["perplexity"].values()
        found.append(
            f"contamination score {score['score']:.2f} [{low:.2f}, {high:.2f}]: perplexity of the "
            f"gold calls {single:.2f} single-turn, {live:.2f} live"
        )
    return found


def _cells(found: Mapping[str, Any], key: str = "accuracy") -> list[str]:
    return [_cell(found[rules][key], found[rules]["interval"]) for rules in RULE_SETS]


def _cell(value: float | None, interval: list[float] | None) -> str:
    if value is None or interval is None:
        return "N/A"
    low, high = interval
    return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _points(value: float | None) -> str:
    return "N/A" if value is None else f"{value:.1f}"
