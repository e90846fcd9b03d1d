"""Create the files of a report: the page with its sections, and CSV files.

Each section has a template and a view, which is the data that the template renders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import ace_ray
from ace_ray.benchmarks.comparability import flatten
from ace_ray.benchmarks.results import Estimate, Table
from ace_ray.reports.compare import comparison_files
from ace_ray.reports.comparison import Comparison, compare_reported
from ace_ray.reports.comparison_tables import verdicts
from ace_ray.reports.excerpts import excerpt
from ace_ray.reports.figures import figure_files
from ace_ray.reports.html.answers import answers, choose
from ace_ray.reports.html.comparison import comparison, flips
from ace_ray.reports.html.page import Lines, Section, render
from ace_ray.reports.report_data import BenchmarkContent, Content
from ace_ray.reports.report_folder import PAGE
from ace_ray.reports.runs import ScoredRun, across_line
from ace_ray.reports.table import csv_text

_MOVES_SCORES = ("identity", "model", "entries", "chat_template_sha256", "engine_args", "versions")
_UNITS = {"hours": 3600, "minutes": 60, "seconds": 1}  # of time, with their seconds
# Maximum lines, and characters of one value. The script of a fake engine can be very long.
_LINES, _CHARACTERS = 400, 300
_FLIPPED_PAIRS = 3  # maximum pairs of runs whose flips are shown; of more, only the last pair is


def files_of(
    content: Content, *, wrong: int, made_at: str
) -> tuple[dict[str, str | bytes], list[str]]:
    """Return file name -> content: ``report.html``, CSV files of the tables and comparison, and SVG
    files of the figures. Also return sentences on what models keep of the sweep's reference.

    ``wrong``: maximum wrong answers on the page, per run, language and category."""
    compared, flipped, unflipped = compare_reported(content), [], []
    tables = chain.from_iterable(content.tables.values())
    files: dict[str, str | bytes] = {f"{table.name}.csv": csv_text(table) for table in tables}
    lines: list[str] = []
    if isinstance(compared, Comparison):
        pairs = compared.pairs[-1 if len(compared.pairs) > _FLIPPED_PAIRS else 0 :]
        flipped = compared.flips(pairs, {b.holders.benchmark: b.rules for b in content.benchmarks})
        unflipped = [r.label for r in content.runs if all(r.label not in pair for pair in pairs)]
        lines = verdicts(compared.kept)
        files |= comparison_files(compared, flipped)
    sections = [*comparison(compared), flips(flipped, unflipped)]
    files[PAGE] = _page(content, sections, wrong, [*lines, *_page_facts(content, made_at)])
    files |= figure_files(content, filter(None, [_in_flight_lines(content.runs)]))
    return files, lines


def _page(content: Content, compared: Sequence[Section], wrong: int, facts: Sequence[str]) -> bytes:
    """Render the page with the sections ``compared``. Reads wrong answers' texts from the runs."""
    benchmarks, sweep, tables = content.benchmarks, content.sweep, content.tables
    failures = [(run.label, causes) for run in content.runs if (causes := run.totals["failures"])]
    pictures = [picture for b in benchmarks for picture in b.pictures]
    figures = [f for b in benchmarks for rules in b.rule_sets for f in b.papers[rules].figures]
    categories = [
        {"matrix": _matrix(b) if len(b.categories) > 1 else None, "table": table}
        for b, table in zip(benchmarks, tables["categories"], strict=True)
    ]
    ledger = sweep and {"table": tables["ledger"][0], "lines": sweep.lines}
    figure = _in_flight_lines(content.runs)
    engine = {"figure": figure, "tables": tables["engine"]} if tables["engine"] or figure else None
    sections = [
        *(section for section in compared if section.anchor == "kept"),
        Section("picture", "Overview", "curves.html.j2", pictures),
        Section("results", "Results", "headline.html.j2", content),
        Section("failures", "Rows without a verdict", "failures.html.j2", failures),
        Section("paper", "As in the paper", "paper.html.j2", _paper(content)),
        Section("categories", "By category", "categories.html.j2", categories),
        Section("errors", "Error types", "errors.html.j2", tables["errors"]),
        Section("curves", "Curves", "curves.html.j2", figures),
        *(section for section in compared if section.anchor != "kept"),
        Section("early", "Early decisions", "early.html.j2", tables["early"]),
        Section("ledger", "Ledger", "ledger.html.j2", ledger),
        Section("engine", "Engines", "engine.html.j2", engine),
        answers(choose(content.runs, wrong), content.rule_sets),
        Section("provenance", "Provenance", "provenance.html.j2", _provenance(content)),
    ]
    return render(content.title, facts, sections)


def _page_facts(content: Content, made_at: str) -> list[str]:
    declared = sum(run.totals["declared"] for run in content.runs)
    scored = sum(run.totals["scored"] for run in content.runs)
    facts = list(filter(None, [across_line(content.runs)]))
    if content.sweep is not None:
        facts.append(f"{len(content.runs)} of {len(content.sweep.lines)} models are complete")
    elif len(content.runs) == 1:
        model = content.runs[0].manifest.model
        facts.append(f"{model.source}, {model.adapter.source}" if model.adapter else model.source)
    rule_sets = f"rule set: {content.rules}"
    if (count := len(content.rule_sets)) > 1:
        rule_sets = f"{'both' if count == 2 else 'all'} rule sets, {content.rules} first"
    return [
        *facts,
        f"{scored:,} of {declared:,} rows scored; {rule_sets}",
        f"made {made_at} by ace_ray {ace_ray.__version__}, from the rows stored at that time",
    ]


def _paper(content: Content) -> list[dict[str, Any]]:
    """Return the view with the papers' tables. Tables of all rule sets are side by side."""
    blocks = []
    for benchmark in content.benchmarks:
        by_rules = [benchmark.papers[rules].tables for rules in benchmark.rule_sets]
        # The main table of a rule set is its first table with numbers, else its first table.
        main = [next(filter(_has_numbers, tables), tables[0]) for tables in by_rules if tables]
        more_tables = [t for pair in zip(*by_rules, strict=True) for t in pair if t not in main]
        notes = benchmark.papers[benchmark.rules].notes
        if main or notes:
            blocks.append({"main": main, "further": more_tables, "notes": notes})
    return blocks


def _has_numbers(table: Table) -> bool:
    return any(isinstance(value, Estimate | int) for line in table.lines for value in line)


def _matrix(benchmark: BenchmarkContent) -> Table:
    """Return a table with a line per category and measure, and a column per run. The measure is
    named unless it is the accuracy."""
    rules = benchmark.rules
    by_run: dict[str, dict[str, Estimate | None]] = {}
    for label, results in benchmark.categories:
        shares = by_run.setdefault(label, {})
        for result in results:
            measure = "" if result.measure == "accuracy" else f", {result.measure}"
            shares[f"{result.category} {result.language}{measure}"] = result.shares[rules]
    keys = dict.fromkeys(key for shares in by_run.values() for key in shares)
    return Table(
        name="matrix",
        title=f"{benchmark.holders.benchmark}, {rules} rules (%)",
        header=["Category", *by_run],
        lines=[[key, *(shares.get(key) for shares in by_run.values())] for key in keys],
    )


def _in_flight_lines(runs: Sequence[ScoredRun]) -> Lines | None:
    stored = {run.label: run.totals["timing"].get("rows_in_flight") or {} for run in runs}
    series = {
        label: [(at * trace.get("every_s", 1.0), rows) for at, rows in enumerate(trace["rows"])]
        for label, trace in stored.items()
        if len(trace.get("rows") or ()) > 1
    }
    if not series:
        return None
    last = max(points[-1][0] for points in series.values())
    unit, seconds = next((u, s) for u, s in _UNITS.items() if last >= 2 * s or s == 1)
    lines = {name: [(at / seconds, rows) for at, rows in line] for name, line in series.items()}
    return Lines("rows-in-flight", "Rows in flight in the last session", lines, unit)


def _provenance(content: Content) -> list[dict[str, Any]]:
    """Return the view with the manifests of the sweep and the runs."""
    view = []
    if (sweep := content.sweep) is not None:
        facts = [_facts("Manifest of the sweep", sweep.manifest.model_dump(mode="json"))]
        view.append({"label": content.title, "uri": sweep.uri, "facts": facts})
    for run in content.runs:
        manifest = run.manifest.model_dump(mode="json")
        moving = {key: manifest.pop(key) for key in _MOVES_SCORES if key in manifest}
        facts = [
            _facts("Settings that affect scores", moving),
            _facts("Configuration and machine", manifest),
        ]
        view.append({"label": run.label, "uri": run.uri, "facts": facts})
    return view


def _facts(title: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of dotted keys and JSON values; ``left_out``: number of lines cut off."""
    flat = flatten(tree)
    lines = [
        (excerpt(key, _CHARACTERS), excerpt(value, _CHARACTERS))
        for key, value in list(flat.items())[:_LINES]
    ]
    return {"title": title, "lines": lines, "left_out": max(0, len(flat) - _LINES)}
