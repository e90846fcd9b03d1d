"""``ace-ray report``: print a report on runs or a sweep, and write it as a page and CSV files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from ace_ray.errors import UserError
from ace_ray.reports.early import decisions_table, early_decisions
from ace_ray.reports.report_data import Content, content_of
from ace_ray.reports.report_folder import PAGE, claim, claim_within, write
from ace_ray.reports.runs import ScoredRun, across_line, read_runs
from ace_ray.reports.sweeps import Sweep, load_sweep
from ace_ray.reports.table import print_table
from ace_ray.storage.object_store import Store, open_store
from ace_ray.sweep.config import SWEEP
from ace_ray.util.sanitizing import print_line

WRONG = 5  # default number of wrong answers on the page, per run, language and category


def make_report(
    uris: Sequence[str],
    *,
    paper: bool = False,
    out: str | None = None,
    rules: str | None = None,
    console: Console,
    wrong: int = WRONG,
    opens: Callable[[str], Store] = open_store,
) -> str | None:
    """Print a report on the runs, or the sweep, at ``uris``, and write it.

    Returns the URI of the page, or None if the report is only printed. If ``out`` is None, a report
    on one run or sweep is written to its subfolder ``report/``, and a report on several runs is
    only printed. ``paper``: also print the tables of the benchmarks' papers. ``wrong``: maximum
    wrong answers per run, language and category. Raises `UserError` when a URI is not a run or
    sweep, or ``out`` contains other files."""
    target = None if out is None else claim(out, opens)
    stores = [opens(uri) for uri in uris]
    runs, sweep = _load(stores)
    if target is None and len(stores) == 1:
        target = claim_within(stores[0])
    labels = {run.manifest.run_id: run.label for run in runs}
    early = sweep.early if sweep is not None else early_decisions(runs, labels)
    content = replace(content_of(runs, sweep, rules), early=early)
    if paper and not any(b.holders.reporting.has_paper() for b in content.benchmarks):
        names = ", ".join(benchmark.holders.benchmark for benchmark in content.benchmarks)
        problem = f"there are no paper tables for {names or 'these runs'}"
        raise UserError(problem, where="--paper", fix="leave --paper out to compare the runs")
    if target is not None:
        for line in _write(target, content, wrong, {"paper": paper}):
            print_line(console, line)
    _print(content, console, paper=paper)
    if target is None:
        return None
    page = f"{target.root}/{PAGE}"
    print_line(console, f"report: {page}")
    return page


def _load(stores: Sequence[Store]) -> tuple[Sequence[ScoredRun], Sweep | None]:
    sweep = next(filter(None, map(load_sweep, stores)), None)
    if sweep is None:
        return read_runs(stores), None
    if len(stores) > 1:
        problem = f"is a sweep (it contains {SWEEP}), which cannot be reported with other runs"
        fix = "name only the sweep, or name single runs of the sweep"
        raise UserError(problem, where=sweep.uri, fix=fix)
    return sweep.runs, sweep


def _print(content: Content, console: Console, *, paper: bool) -> None:
    if line := across_line(content.runs):
        print_line(console, line)
    # `evaluate` has printed the numbers of a single run.
    for benchmark in content.benchmarks if len(content.runs) > 1 or content.sweep else ():
        print_table(benchmark.comparisons[benchmark.rules], console, intervals=True)
    if content.early:
        console.print()
        print_table(decisions_table(content.early), console, intervals=True)
    for model in content.sweep.left_out if content.sweep else ():
        print_line(console, f"not in the report: {model}")
    for benchmark in content.benchmarks if paper else ():
        for table in benchmark.papers[benchmark.rules].tables:
            console.print()
            print_table(table, console, intervals=False)
        for note in benchmark.papers[benchmark.rules].notes:
            print_line(console, note)


def _write(target: Store, content: Content, wrong: int, facts: dict[str, Any]) -> list[str]:
    """Write the report, and return sentences on what models keep of the sweep's reference."""
    # Imported here: scipy and Jinja are needed only for files.
    from ace_ray.reports.report_files import files_of

    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    files, lines = files_of(content, wrong=wrong, made_at=made_at)
    facts = {"made_at": made_at, "rules": content.rules, **facts}
    if (sweep := content.sweep) is not None:
        names = {"uri": sweep.uri, "sweep_id": sweep.manifest.sweep_id}
        facts["sweep"] = {**names, "left_out": [model.label for model in sweep.left_out]}
    write(target, files, content.runs, facts)
    return lines
