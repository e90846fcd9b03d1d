"""Create the files of a report: the page with its sections, and CSV files.

Each section has a template and a view, which is the data that the template renders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import ace_ray
from ace_ray.benchmarks.conditions import flattened
from ace_ray.benchmarks.results import CategoryResult, Estimate, Table
from ace_ray.reports.compare import comparison_files
from ace_ray.reports.comparison import ReportedComparison, compare_reported
from ace_ray.reports.content import (
    BenchmarkContent,
    Content,
    category_table,
    engine_tables,
    error_table,
)
from ace_ray.reports.early import decisions_table
from ace_ray.reports.figures import figure_files
from ace_ray.reports.folder import PAGE
from ace_ray.reports.html.answers import answers, choose
from ace_ray.reports.html.comparison import comparison, flips
from ace_ray.reports.html.page import Lines, Page, Section, render
from ace_ray.reports.runs import Run
from ace_ray.reports.sweeps import ledger_table
from ace_ray.reports.table import csv_text
from ace_ray.reports.text import shown

_MOVES_SCORES = ("identity", "model", "entries", "chat_template_sha256", "engine_args", "versions")
_LINES = 400
# Units of time, with their seconds.
_UNITS = {"hours": 3600, "minutes": 60, "seconds": 1}
# Maximum characters of one value. The script of a fake engine can be very long.
_CHARACTERS = 300


def files_of(content: Content, *, wrong: int, made_at: str) -> dict[str, bytes]:
    """Return file name -> content: ``report.html``, CSV files of the tables and comparison, and SVG
    files of the figures.

    ``wrong``: maximum wrong answers on the page, per run, language and category.
    """
    runs = [one.holders for one in content.benchmarks]
    reported = compare_reported(
        content.runs, runs, {one.holders.benchmark: one.rule_sets for one in content.benchmarks}
    )
    files = {PAGE: _page(content, reported, wrong, made_at)}
    for table in content.tables():
        files[f"{table.name}.csv"] = csv_text(table).encode("utf-8", "replace")
    files |= figure_files(content, filter(None, [_in_flight(content.runs)]))
    if reported is not None and reported.comparison is not None:
        files |= comparison_files(reported.comparison, reported.flips)
    return files


def _page(content: Content, reported: ReportedComparison | None, wrong: int, made_at: str) -> bytes:
    """Render the page. Reads the texts of wrong answers from the runs."""
    sections: list[Section | None] = [
        _picture(content),
        _headline(content),
        _failures(content),
        _paper(content),
        _categories(content),
        _errors(content),
        _curves(content),
        comparison(reported),
        flips(reported),
        _early(content),
        _ledger(content),
        _engine(content),
        answers(choose(content.runs, wrong), content.rule_sets),
        _provenance(content),
    ]
    page = Page(
        content.title, _page_facts(content, made_at), [s for s in sections if s is not None]
    )
    return render(page)


def _rule_sets(content: Content) -> str:
    count = len(content.rule_sets)
    if count < 2:
        return f"rule set: {content.rules}"
    return f"{'both' if count == 2 else 'all'} rule sets, {content.rules} first"


def _page_facts(content: Content, made_at: str) -> list[str]:
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
        f"made {made_at} by ace_ray {ace_ray.__version__}, from the rows stored at that time",
    ]


def _picture(content: Content) -> Section | None:
    """Build the section with the scores as curves, under the first rule set."""
    drawn = [picture for one in content.benchmarks for picture in one.pictures]
    return Section("picture", "Overview", "curves.html.j2", drawn) if drawn else None


def _headline(content: Content) -> Section:
    """Build the section with headlines, and with the reasons why runs have no headline."""
    blocks = []
    for benchmark in content.benchmarks:
        *first, last = [benchmark.comparisons[rules] for rules in benchmark.rule_sets]
        runs = zip(benchmark.holders.runs, benchmark.holders.reported, strict=True)
        why = [(run.label, run.totals["why"]) for run, told in runs if not told.headline]
        blocks.append({"tables": [*(replace(one, notes=[]) for one in first), last], "why": why})
    view = {"blocks": blocks, "left_out": content.sweep.left_out if content.sweep else []}
    return Section("results", "Results", "headline.html.j2", view)


def _paper(content: Content) -> Section | None:
    """Build the section with the papers' tables. Tables of all rule sets are side by side."""
    blocks = []
    for benchmark in content.benchmarks:
        own = [benchmark.papers[rules].tables for rules in benchmark.rule_sets]
        # The main table of a rule set is its first table with numbers, else its first table.
        main = [next(filter(_has_numbers, tables), tables[0]) for tables in own if tables]
        further = [t for pair in zip(*own, strict=True) for t in pair if t not in main]
        notes = benchmark.papers[benchmark.rules].notes
        if main or notes:
            blocks.append({"main": main, "further": further, "notes": notes})
    return Section("paper", "As in the paper", "paper.html.j2", blocks) if blocks else None


def _has_numbers(table: Table) -> bool:
    return any(isinstance(value, Estimate | int) for line in table.lines for value in line)


def _categories(content: Content) -> Section | None:
    """Build the section with scores by category, in a table by run and a table by rule set."""
    view = [
        {"matrix": _matrix(one) if len(one.categories) > 1 else None, "table": category_table(one)}
        for one in content.benchmarks
    ]
    return Section("categories", "By category", "categories.html.j2", view) if view else None


def _matrix(benchmark: BenchmarkContent) -> Table:
    """Return a table with a line per category and measure, and a column per run."""
    rules = benchmark.rules
    by_run = {
        label: {f"{r.category} {_which(r)}": r.shares[rules] for r in results}
        for label, results in benchmark.categories
    }
    keys = dict.fromkeys(key for shares in by_run.values() for key in shares)
    return Table(
        name="matrix",
        title=f"{benchmark.holders.benchmark}, {rules} rules (%)",
        header=["Category", *by_run],
        lines=[[key, *(shares.get(key) for shares in by_run.values())] for key in keys],
    )


def _which(result: CategoryResult) -> str:
    """Return the language, followed by the measure unless this is the accuracy."""
    plain = result.measure == "accuracy"
    return result.language if plain else f"{result.language}, {result.measure}"


def _errors(content: Content) -> Section | None:
    """Build the section with the error types of wrong answers."""
    view = [error_table(benchmark.holders) for benchmark in content.benchmarks]
    return Section("errors", "Error types", "errors.html.j2", view) if view else None


def _failures(content: Content) -> Section | None:
    """Build the section with reasons for missing verdicts; None if every row has a verdict."""
    found = [(run.label, list(run.totals["failures"])) for run in content.runs]
    view = [(label, failures) for label, failures in found if failures]
    title = "Rows without a verdict"
    return Section("failures", title, "failures.html.j2", view) if view else None


def _curves(content: Content) -> Section | None:
    """Build the section with the papers' figures; None if there are no figures."""
    figures = [
        figure
        for benchmark in content.benchmarks
        for rules in benchmark.rule_sets
        for figure in benchmark.papers[rules].figures
    ]
    return Section("curves", "Curves", "curves.html.j2", figures) if figures else None


def _engine(content: Content) -> Section | None:
    """Build the section with the engines' figures; None if no run has them."""
    figure = _in_flight(content.runs)
    tables = engine_tables(content.runs)
    view = {"figure": figure, "tables": tables}
    return Section("engine", "Engines", "engine.html.j2", view) if tables or figure else None


def _in_flight(runs: Sequence[Run]) -> Lines | None:
    stored = {run.label: run.totals["timing"].get("rows_in_flight") or {} for run in runs}
    series = {
        label: [(at * one.get("every_s", 1.0), rows) for at, rows in enumerate(one["rows"])]
        for label, one in stored.items()
        if len(one.get("rows") or ()) > 1
    }
    if not series:
        return None
    last = max(points[-1][0] for points in series.values())
    unit, seconds = next((u, s) for u, s in _UNITS.items() if last >= 2 * s or s == 1)
    lines = {name: [(at / seconds, rows) for at, rows in one] for name, one in series.items()}
    return Lines("rows-in-flight", "Rows in flight in the last session", lines, unit)


def _provenance(content: Content) -> Section:
    """Build the section with the manifests of the sweep and the runs."""
    view = [_run_provenance(run) for run in content.runs]
    if content.sweep is not None:
        sweep = content.sweep
        facts = [_facts("Manifest of the sweep", sweep.manifest.model_dump(mode="json").items())]
        label = f"Sweep {sweep.manifest.sweep_id}"
        view.insert(0, {"label": label, "uri": sweep.uri, "facts": facts})
    return Section("provenance", "Provenance", "provenance.html.j2", view)


def _run_provenance(run: Run) -> dict[str, Any]:
    manifest = run.manifest.model_dump(mode="json")
    moving = [(key, manifest[key]) for key in _MOVES_SCORES if key in manifest]
    others = [(key, value) for key, value in manifest.items() if key not in _MOVES_SCORES]
    facts = [
        _facts("Settings that affect scores", moving),
        _facts("Configuration and machine", others),
    ]
    return {"label": run.label, "uri": run.uri, "facts": facts}


def _facts(title: str, items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return at most `_LINES` dotted keys with JSON values. ``left_out`` counts the other keys."""
    flat = flattened(dict(items))
    lines = [
        (shown(key, _CHARACTERS), shown(value, _CHARACTERS))
        for key, value in list(flat.items())[:_LINES]
    ]
    return {"title": title, "lines": lines, "left_out": max(0, len(flat) - _LINES)}


def _early(content: Content) -> Section | None:
    """Build the section with early decisions; None if no run has early stopping."""
    table = decisions_table(content.early)
    return Section("early", "Early decisions", "early.html.j2", table) if content.early else None


def _ledger(content: Content) -> Section | None:
    """Build the section with the ledger of a sweep; None if the report has no sweep."""
    if content.sweep is None:
        return None
    notes = [(line.label, line.note) for line in content.sweep.lines if line.note]
    view = {"table": ledger_table(content.sweep), "notes": notes}
    return Section("ledger", "Ledger", "ledger.html.j2", view)
