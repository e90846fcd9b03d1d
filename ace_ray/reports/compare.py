"""``ace-ray compare``: runs against each other, or against a baseline, with statistics.

Printed, and as Markdown, CSV, JSON and figures; docs/statistics.md has the formats.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

import ace_ray
from ace_ray.benchmarks.results import Table
from ace_ray.reports.compared_runs import ComparedRun, compared_runs
from ace_ray.reports.comparison import Comparison, compare_runs
from ace_ray.reports.comparison_tables import sentence, tables_of
from ace_ray.reports.content import comparison_table
from ace_ray.reports.flips import Flips, flip_csv, flip_lines, flip_markdown, flip_tables
from ace_ray.reports.folder import claim, write
from ace_ray.reports.hypotheses import TestResult
from ace_ray.reports.runs import by_benchmark, load_runs
from ace_ray.reports.table import csv_lines, markdown, print_table, say
from ace_ray.store import Store, open_store

BOTH = "both"
SCHEMA_VERSION = 1
WARNING = (
    "THE RUNS DIFFER IN WHAT MOVES SCORES, as --allow-different allows: a difference below need "
    "not be one between models"
)


def compare(
    uris: Sequence[str],
    *,
    rules: str,
    out: str | None,
    baseline: str | None,
    groups: Collection[str],
    allow_different: bool,
    with_flips: bool,
    select_best: bool,
    console: Console,
    opens: Callable[[str], Store] = open_store,
) -> Comparison:
    """Print a comparison of the runs at ``uris``, write it where ``out`` says, and return it.

    ``baseline`` is the label or the folder of one of them, what all others are compared with;
    ``rules`` a rule set, or `BOTH` for all.

    Raises:
        NotComparable: the runs differ in what moves scores.
        UserError: not a run, nothing to compare, or ``out`` holds something else.
    """
    target = None if out is None else claim(out, opens)
    runs = compared_runs(load_runs(uris, opens))
    for compared in runs:
        if compared.run.elsewhere:
            say(compared.run.elsewhere, console)
    comparison = compare_runs(
        runs,
        baseline=_label(runs, baseline),
        rule_sets=None if rules == BOTH else (rules,),
        groups=groups,
        allow_different=allow_different,
        select_best=select_best,
    )
    tables = [*_headlines(comparison), *tables_of(comparison)]
    flips = comparison.flips() if with_flips else []
    _print(comparison, tables, flips, console)
    if target is not None:
        facts = {
            "ace_ray_version": ace_ray.__version__,
            "rules": list(comparison.rule_sets),
            "runs": [
                {"uri": c.run.uri, "run_id": c.run.manifest.run_id, "label": c.label} for c in runs
            ],
        }
        write(target, comparison_files(comparison, tables, flips), facts)
        say(f"comparison: {target.root}", console)
    return comparison


def _headlines(comparison: Comparison) -> list[Table]:
    """The scores of each run: lines below them are of paired entries, and pooled."""
    return [
        comparison_table(holders, rules, with_facts=False)
        for holders in by_benchmark([compared.run for compared in comparison.runs])
        for rules in comparison.rule_sets
        if rules in holders.reporting.rule_sets
    ]


def _label(runs: Sequence[ComparedRun], named: str | None) -> str | None:
    """The label of the run that ``named`` is, by its label or folder."""
    if named is None:
        return None
    plain = named.rstrip("/")
    folder = plain if "://" in plain else os.path.abspath(os.path.expanduser(plain))
    return next((c.label for c in runs if c.run.uri == folder), named)


def _print(
    comparison: Comparison, tables: Sequence[Table], flips: Sequence[Flips], console: Console
) -> None:
    """Tables, what they show in words, and what to know; flips by count, and the first ones."""
    if comparison.differences:
        say(f"WARNING: {WARNING}:", console)
        for line in comparison.differences:
            say(f"  {line}", console)
    for table in tables:
        print_table(table, console, intervals=True)
        console.print()
    shown = [result for result in comparison.results if result.shown]
    for result in shown:
        say(f"{result.hypothesis.rules}: {sentence(result)}", console)
    rest = len(comparison.results) - len(shown)
    say(f"no difference shown in {rest} of {len(comparison.results)} lines", console)
    for note in [*comparison.cautions, *comparison.notes]:
        say(note, console)
    for flipped in flips:
        for table in flip_tables(flipped) if flipped.flips else ():
            print_table(table, console, intervals=False)
        for text in flip_lines(flipped):
            say(text, console)
    if comparison.differences:
        say(f"WARNING: {WARNING} (listed above)", console)


def comparison_files(
    comparison: Comparison, tables: Sequence[Table], flips: Sequence[Flips]
) -> dict[str, bytes]:
    """File name -> content: ``comparison.json``, ``.csv`` and ``.md``, figures, flips."""
    from ace_ray.reports.figures import FORMATS, draw

    files: dict[str, bytes] = {
        f"{curves.name}.{form}": draw(curves, form)
        for curves in comparison.curves
        for form in FORMATS
    }
    texts = {
        "comparison.json": json.dumps(_json(comparison), indent=2),
        "comparison.csv": _csv(comparison.results),
        "comparison.md": _markdown(comparison, tables, flips),
    }
    for number, flipped in enumerate(flips, start=1):
        texts[f"{_stem(number, flipped)}.csv"] = flip_csv(flipped)
        texts[f"{_stem(number, flipped)}.md"] = f"# Flips\n\n{flip_markdown(flipped)}"
    return files | {name: text.encode("utf-8", "replace") for name, text in texts.items()}


def _json(comparison: Comparison) -> dict[str, Any]:
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
            for c in comparison.runs
        ],
        "differences": list(comparison.differences),
        "cautions": list(comparison.cautions),
        "notes": list(comparison.notes),
        "lines": [
            _values(result) | {"sentence": sentence(result)} for result in comparison.results
        ],
        "best": [
            asdict(best) | {"series": best.series or None, "group": best.group.name}
            for best in comparison.best
        ],
        "laws": [
            {
                "benchmark": fits.benchmark,
                "rules": fits.rules,
                "group": group,
                "series": series,
                "sizes": fit.sizes,
                "slope": fit.slope,
                "interval": list(fit.interval),
                "dispersion": fit.dispersion,
                "smallest_billions": fit.smallest,
                "largest_billions": fit.largest,
            }
            for fits in comparison.scaling_fits
            for (group, series), fit in fits.fits.items()
        ],
    }


def _values(result: TestResult) -> dict[str, Any]:
    """A result as a line of ``comparison.csv`` and ``comparison.json``."""
    hypothesis, difference, noise = result.hypothesis, result.difference, result.noise
    low, high = difference.interval or (None, None)
    return {
        "benchmark": hypothesis.benchmark,
        "rules": hypothesis.rules,
        "base": hypothesis.base,
        "other": hypothesis.other,
        "group": hypothesis.group.name,
        "language": hypothesis.group.language,
        "metric": hypothesis.metric,
        "n": difference.n,
        "clusters": len(difference.sizes),
        "left_out_rows": difference.left_out,
        "base_value": difference.base,
        "other_value": difference.other,
        "difference": difference.value,
        "low": low,
        "high": high,
        "gained": difference.gained,
        "lost": difference.lost,
        "test": difference.test,
        "p": difference.p,
        "holm_p": result.holm,
        "family": result.family,
        "shown": result.shown,
        "detectable": result.detectable,
        "detectable_alone": result.detectable_alone,
        "noise_floor": result.noise_floor,
        "under_noise": result.under_noise,
        "repeated": 0 if noise is None else noise.n,
        "repeated_flips": 0 if noise is None else noise.flips,
    }


def _csv(results: Sequence[TestResult]) -> str:
    rows = [_values(result) for result in results]
    return csv_lines([rows[0] if rows else [], *(row.values() for row in rows)])


def _markdown(comparison: Comparison, tables: Sequence[Table], flips: Sequence[Flips]) -> str:
    runs = Table(
        name="runs",
        title="Runs",
        header=["Run", "Folder", "Incomplete"],
        lines=[[c.label, c.run.uri, c.run.incomplete] for c in comparison.runs],
        notes=[comparison.against],
    )
    in_words = [
        _listed(
            f"In words, {rules} rules",
            [sentence(r) for r in comparison.results if r.hypothesis.rules == rules],
        )
        for rules in comparison.rule_sets
    ]
    notes = [*comparison.cautions, *comparison.notes]
    parts = ["# Comparison", ""]
    if comparison.differences:
        parts += [f"**{WARNING}:**", "", markdown(_listed("Differences", comparison.differences))]
    parts += [markdown(table, n=True) for table in (runs, *tables, *in_words)]
    for curves in comparison.curves:
        parts += [f"## {curves.title}", "", f"![{curves.name}]({curves.name}.svg)", ""]
    if notes:
        parts.append(markdown(_listed("To know", notes)))
    for number, flipped in enumerate(flips, start=1):
        stem = _stem(number, flipped)
        parts.append(
            f"- flips of {flipped.benchmark}, {flipped.rules} rules: [{stem}.md]({stem}.md), "
            f"[{stem}.csv]({stem}.csv)"
        )
    return "\n".join(parts).rstrip() + "\n"


def _listed(title: str, lines: Sequence[str]) -> Table:
    return Table("", title, [], [], lines)


def _stem(number: int, flips: Flips) -> str:
    return f"flips-{number}-{flips.benchmark}-{flips.rules}"
