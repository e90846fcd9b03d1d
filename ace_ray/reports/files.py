"""A report's files: the page, Markdown, CSV and images."""

from __future__ import annotations

import ace_ray
from ace_ray.benchmarks.results import Figure
from ace_ray.reports.compare import comparison_files
from ace_ray.reports.comparison import ReportedComparison, compare_reported
from ace_ray.reports.comparison_tables import tables_of
from ace_ray.reports.content import Content
from ace_ray.reports.figures import FORMATS, draw
from ace_ray.reports.folder import PAGE
from ace_ray.reports.html.answers import answers
from ace_ray.reports.html.comparison import comparison, flips
from ace_ray.reports.html.page import Page, Section, render
from ace_ray.reports.html.provenance import early, ledger, provenance
from ace_ray.reports.html.scores import (
    categories,
    curves,
    errors,
    failures,
    headline,
    paper,
    picture,
)
from ace_ray.reports.table import csv_text, escaped, markdown
from ace_ray.reports.wrong import GoldAnswers, choose


def files_of(content: Content, *, wrong: int, made_at: str) -> dict[str, bytes]:
    """Name -> content: ``report.html``, a CSV and a Markdown file per table, a PNG and an SVG per
    figure, the files of a comparison, and ``report.md`` with all of it but those.

    ``wrong``: wrong answers on the page, per run, language and category.
    """
    runs = [one.holders for one in content.benchmarks]
    reported = compare_reported(
        content.runs, runs, {one.holders.benchmark: one.rule_sets for one in content.benchmarks}
    )
    files: dict[str, str | bytes] = {PAGE: _page(content, reported, wrong, made_at)}
    pages = [f"# {escaped(content.title)}" if content.sweep else "# Report", ""]
    pages += [f"Rule set: {content.rules}. Shares in percent with 95 % intervals.", ""]
    pages += [f"- {escaped(run.label)}: {escaped(run.uri)}" for run in content.runs]
    if content.sweep is not None:
        pages += [f"- not here: {escaped(str(one))}" for one in content.sweep.left_out]
    pages.append("")
    opening = [one.pictures[one.rules] for one in content.benchmarks]
    pages += [line for figure in opening if figure is not None for line in _image(figure)]
    with_n = [one.comparisons[one.rules] for one in content.benchmarks]
    for table in content.tables():
        files[f"{table.name}.csv"] = csv_text(table)
        files[f"{table.name}.md"] = markdown(table, n=table in with_n)
        pages.append(str(files[f"{table.name}.md"]))
    for figure in content.figures():
        files |= {f"{figure.name}.{form}": draw(figure, form) for form in FORMATS}
        if figure not in opening:
            pages += [f"## {escaped(figure.title)}", "", *_image(figure)]
    for one in content.benchmarks:
        pages += [f"- {escaped(note)}" for note in one.papers[one.rules].notes]
    if reported is not None and reported.comparison is not None:
        tables = list(tables_of(reported.comparison))
        files |= comparison_files(reported.comparison, tables, reported.flips)
        pages.append("- differences and flips, with statistics: [comparison.md](comparison.md)")
    elif reported is not None:
        pages.append(f"- not compared: {escaped(reported.refused)}")
        pages += [f"  - {escaped(one)}" for one in reported.differences]
    files["report.md"] = "\n".join(pages).rstrip() + "\n"
    return {
        name: content if isinstance(content, bytes) else content.encode("utf-8", "replace")
        for name, content in files.items()
    }


def _image(figure: Figure) -> list[str]:
    return [f"![{escaped(figure.title)}]({figure.name}.svg)", ""]


def _page(content: Content, reported: ReportedComparison | None, wrong: int, made_at: str) -> bytes:
    """Reads the texts of the wrong answers from the runs, and their gold answers from the
    benchmarks' data."""
    sections: list[Section | None] = [
        picture(content),
        headline(content),
        failures(content),
        paper(content),
        categories(content),
        errors(content),
        curves(content, reported),
        comparison(reported),
        flips(reported),
        early(content),
        ledger(content),
        answers(choose(content.runs, wrong), GoldAnswers(content.runs), content.rule_sets),
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
