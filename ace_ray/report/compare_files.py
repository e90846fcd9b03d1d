"""What a comparison writes: Markdown, CSV, JSON, figures. docs/statistics.md has the formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from ace_ray.benchmarks.reporting import Estimate, Table
from ace_ray.clean import spreadsheet
from ace_ray.report.compared import Comparison
from ace_ray.report.flip_files import flip_csv, flip_markdown
from ace_ray.report.flips import Flips
from ace_ray.report.lines import Line
from ace_ray.report.render import markdown
from ace_ray.report.sentences import sentence

SCHEMA_VERSION = 1
WARNING = (
    "THE RUNS DIFFER IN WHAT MOVES SCORES, as --allow-different allows: a difference below need "
    "not be one between models"
)


def files_of(
    comparison: Comparison, tables: Sequence[Table], flips: Sequence[Flips]
) -> dict[str, bytes]:
    """File name -> content: ``comparison.json``, ``.csv`` and ``.md``, figures, flips."""
    from ace_ray.report.figures import FORMATS, draw

    files: dict[str, bytes] = {
        f"{curves.name}.{form}": draw(curves, form)
        for curves in comparison.curves
        for form in FORMATS
    }
    texts = {
        "comparison.json": json.dumps(as_json(comparison), indent=2),
        "comparison.csv": _csv(comparison.lines),
        "comparison.md": _markdown(comparison, tables, flips),
    }
    for number, found in enumerate(flips, start=1):
        texts[f"{_stem(number, found)}.csv"] = flip_csv(found)
        texts[f"{_stem(number, found)}.md"] = f"# Flips\n\n{flip_markdown(found)}"
    return files | {name: text.encode("utf-8", "replace") for name, text in texts.items()}


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON values; shares in 0..1, None for what the data do not give."""
    return {
        "schema_version": SCHEMA_VERSION,
        "baseline": comparison.baseline,
        "rules": list(comparison.rule_sets),
        "runs": [
            {
                "label": c.label,
                "uri": c.run.uri,
                "run_id": c.run.manifest.run_id,
                "step": c.step,
                "incomplete": c.run.incomplete,
            }
            for c in comparison.contenders
        ],
        "differences": list(comparison.differences),
        "cautions": list(comparison.cautions),
        "notes": list(comparison.notes),
        "lines": [_line(line) | {"sentence": sentence(line)} for line in comparison.lines],
        "best": [
            {
                "benchmark": best.benchmark,
                "rules": best.rules,
                "series": best.series or None,
                "group": best.group.name,
                "chosen": best.chosen,
                "tied": list(best.tied),
                "choosing": _estimate(best.choosing),
                "held_out": _estimate(best.held_out),
                "highest": best.highest,
                "everything": _estimate(best.everything),
            }
            for best in comparison.best
        ],
        "laws": [
            {
                "benchmark": found.benchmark,
                "rules": found.rules,
                "group": group,
                "series": series,
                "sizes": law.sizes,
                "slope": law.slope,
                "interval": list(law.interval),
                "dispersion": law.dispersion,
                "smallest_billions": law.smallest,
                "largest_billions": law.largest,
            }
            for found in comparison.laws
            for (group, series), law in found.laws.items()
        ],
    }


def _line(line: Line) -> dict[str, Any]:
    asked, found, noise = line.asked, line.found, line.noise
    low, high = found.interval or (None, None)
    return {
        "benchmark": asked.benchmark,
        "rules": asked.rules,
        "base": asked.base,
        "other": asked.other,
        "group": asked.group.name,
        "language": asked.group.language,
        "metric": asked.metric,
        "n": found.n,
        "clusters": len(found.sizes),
        "left_out_rows": found.left_out,
        "base_value": found.base,
        "other_value": found.other,
        "difference": found.value,
        "low": low,
        "high": high,
        "gained": found.gained,
        "lost": found.lost,
        "test": found.test,
        "p": found.p,
        "holm_p": line.holm,
        "family": line.family,
        "shown": line.shown,
        "detectable": line.detectable,
        "detectable_alone": line.detectable_alone,
        "noise_floor": line.noise_floor,
        "under_noise": line.under_noise,
        "repeated": 0 if noise is None else noise.n,
        "repeated_flips": 0 if noise is None else noise.flips,
    }


def _csv(lines: Sequence[Line]) -> str:
    out = io.StringIO()
    rows = [_line(line) for line in lines]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0] if rows else [])
    for row in rows:
        writer.writerow(spreadsheet(v) if isinstance(v, str) else v for v in row.values())
    return out.getvalue()


def _markdown(comparison: Comparison, tables: Sequence[Table], flips: Sequence[Flips]) -> str:
    runs = Table(
        name="runs",
        title="Runs",
        header=["Run", "Folder", "Incomplete"],
        lines=[[c.label, c.run.uri, c.run.incomplete] for c in comparison.contenders],
        notes=[comparison.against],
    )
    said = [
        _listed(
            f"In words, {rules} rules",
            [sentence(line) for line in comparison.lines if line.asked.rules == rules],
        )
        for rules in comparison.rule_sets
    ]
    known = [*comparison.cautions, *comparison.notes]
    parts = ["# Comparison", ""]
    if comparison.differences:
        parts += [f"**{WARNING}:**", "", markdown(_listed("Differences", comparison.differences))]
    parts += [markdown(table, n=True) for table in (runs, *tables, *said)]
    for curves in comparison.curves:
        parts += [f"## {curves.title}", "", f"![{curves.name}]({curves.name}.svg)", ""]
    if known:
        parts.append(markdown(_listed("To know", known)))
    for number, found in enumerate(flips, start=1):
        stem = _stem(number, found)
        parts.append(
            f"- flips of {found.benchmark}, {found.rules} rules: [{stem}.md]({stem}.md), "
            f"[{stem}.csv]({stem}.csv)"
        )
    return "\n".join(parts).rstrip() + "\n"


def _listed(title: str, lines: Sequence[str]) -> Table:
    return Table("", title, [], [], lines)


def _stem(number: int, flips: Flips) -> str:
    return f"flips-{number}-{flips.benchmark}-{flips.rules}"


def _estimate(found: Estimate) -> dict[str, Any]:
    return {"value": found.value, "interval": list(found.interval), "n": found.n}
