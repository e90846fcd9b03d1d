"""The summary as the lines of a printed table: categories, then the workbook's aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT
from ace_ray.benchmarks.acebench.scoring.aggregates import GROUPS

HEADER = ("language", "group", "category", "n", "official", "strict")
_TOP = ("normal", "special", "agent")
_NAMED = ("atom", "single_turn", "multi_turn", *_TOP, "overall")
"""Aggregates worth a line of their own; the other two are single categories."""


def table(summary: Mapping[str, Any]) -> list[list[str]]:
    """Lines of `HEADER` cells per language, and combined when there are several.

    Accuracies read ``84.0 % [71.5, 91.7]``; what is not available reads ``-``. Agent categories
    have a line for end-to-end and one for process accuracy. Aggregates show the workbook's value of
    each rule set, of agents end-to-end.
    """
    blocks = dict(summary["languages"])
    if len(blocks) > 1:
        blocks["combined"] = summary["combined"]
    return [line for language, block in blocks.items() for line in _lines(language, block)]


def _lines(language: str, block: Mapping[str, Any]) -> list[list[str]]:
    lines = []
    for category, stats in block["categories"].items():
        official, strict = stats["official"], stats["strict"]
        group = next(name for name in _TOP if category in GROUPS[name])
        cells = [_cell(found["accuracy"], found["interval"]) for found in (official, strict)]
        lines.append([language, group, category, str(official["n"]), *cells])
        if category in AGENT and "process_accuracy" in official:
            cells = [
                _cell(f["process_accuracy"], f["process_interval"]) for f in (official, strict)
            ]
            lines.append([language, group, f"{category} (process)", str(official["n"]), *cells])
    for name in _NAMED:
        found = [block["rules"][rule]["workbook"][name] for rule in ("official", "strict")]
        if any(cell["value"] is not None for cell in found) or name == "overall":
            lines.append(
                [language, name, "", "", *(_cell(c["value"], c["interval"]) for c in found)]
            )
    return lines


def _cell(value: float | None, interval: list[float] | None) -> str:
    if value is None or interval is None:
        return "-"
    low, high = interval
    return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
