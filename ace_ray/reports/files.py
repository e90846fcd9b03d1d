"""A report's files: the page, and CSV."""

from __future__ import annotations

import ace_ray
from ace_ray.reports.compare import comparison_files
from ace_ray.reports.comparison import ReportedComparison, compare_reported
from ace_ray.reports.content import Content
from ace_ray.reports.folder import PAGE
from ace_ray.reports.html.answers import answers, choose
from ace_ray.reports.html.comparison import comparison, flips
from ace_ray.reports.html.page import Page, Section, render
from ace_ray.reports.html.sections import (
    categories,
    curves,
    early,
    errors,
    failures,
    headline,
    ledger,
    paper,
    picture,
    provenance,
)
from ace_ray.reports.table import csv_text


def files_of(content: Content, *, wrong: int, made_at: str) -> dict[str, bytes]:
    """Return name -> content: ``report.html``, a CSV file per table, and a comparison's CSV files.

    ``wrong``: wrong answers on the page, per run, language and category.
    """
    runs = [one.holders for one in content.benchmarks]
    reported = compare_reported(
        content.runs, runs, {one.holders.benchmark: one.rule_sets for one in content.benchmarks}
    )
    files = {PAGE: _page(content, reported, wrong, made_at)}
    for table in content.tables():
        files[f"{table.name}.csv"] = csv_text(table).encode("utf-8", "replace")
    if reported is not None and reported.comparison is not None:
        files |= comparison_files(reported.comparison, reported.flips)
    return files


def _page(content: Content, reported: ReportedComparison | None, wrong: int, made_at: str) -> bytes:
    """Reads the texts of the wrong answers from the runs."""
    sections: list[Section | None] = [
        picture(content),
        headline(content),
        failures(content),
        paper(content),
        categories(content),
        errors(content),
        curves(content),
        comparison(reported),
        flips(reported),
        early(content),
        ledger(content),
        answers(choose(content.runs, wrong), content.rule_sets),
        provenance(content),
    ]
    page = Page(content.title, _facts(content, made_at), [s for s in sections if s is not None])
    return render(page)


def _rule_sets(content: Content) -> str:
    count = len(content.rule_sets)
    if count < 2:
        return f"rule set: {content.rules}"
    return f"{'both' if count == 2 else 'all'} rule sets, {content.rules} first"


def _facts(content: Content, made_at: str) -> list[str]:
    declared = sum(run.totals["declared"] for run in content.runs)
    scored = sum(run.totals["scored"] for run in content.runs)
    facts = []
    if content.sweep is not None:
        facts.append(f"{len(content.runs)} of {len(content.sweep.lines)} models are complete")
    elif len(content.runs) == 1:
        model = content.runs[0].manifest.model
        facts.append(f"{model.source}, {model.adapter.source}" if model.adapter else model.source)
    return [
        *facts,
        f"{scored:,} of {declared:,} rows scored; {_rule_sets(content)}",
        f"made {made_at} by ace_ray {ace_ray.__version__}, from the rows as they were then",
    ]
