"""``ace-ray report``: runs side by side, or the tables and figures of their benchmark's paper."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

import ace_ray
from ace_ray.benchmarks.reporting import Paper, Reporting, Table, reporting_of
from ace_ray.errors import UserError
from ace_ray.report.comparison import comparisons
from ace_ray.report.folder import claim, write
from ace_ray.report.render import csv_text, markdown, print_table, say
from ace_ray.report.runs import Run, load_runs

DEFAULT_FOLDER = "report"


def make_report(
    uris: Sequence[str], *, paper: bool, out: str | None, rules: str, console: Console
) -> None:
    """Print a report over the runs at ``uris``, and write it where ``out`` says.

    Without ``out`` a comparison is only printed; the paper's tables go to `DEFAULT_FOLDER`.

    Raises:
        UserError: not a run, nothing in common, or ``out`` holds something else.
    """
    if out is None and paper:
        out = DEFAULT_FOLDER
    path = None if out is None else claim(out)
    runs = load_runs(uris)
    compared = list(comparisons(runs, rules))
    found = _paper(runs, rules) if paper else None
    for table in compared:
        print_table(table, console, intervals=True)
    if found is not None:
        for table in found.tables:
            console.print()
            print_table(table, console, intervals=False)
        for note in found.notes:
            say(note, console)
    if path is not None:
        files = _files(runs, rules, compared, found)
        facts = {
            "ace_ray_version": ace_ray.__version__,
            "rules": rules,
            "paper": paper,
            "runs": [
                {"uri": run.uri, "run_id": run.manifest.run_id, "label": run.label} for run in runs
            ],
        }
        write(path, files, facts)
        say(f"report: {path}", console)


def _paper(runs: Sequence[Run], rules: str) -> Paper:
    benchmark, reporting = _common(runs)
    return reporting.paper([run.reported(benchmark, reporting.summarize) for run in runs], rules)


def _common(runs: Sequence[Run]) -> tuple[str, Reporting]:
    """The one benchmark with a paper that all ``runs`` hold. Raises `UserError`."""
    named = list(dict.fromkeys(name for run in runs for name in run.benchmarks))
    offers = {name: offer for name in named if (offer := reporting_of(name)) is not None}
    if not offers:
        raise UserError(
            f"no tables of a paper are known for {', '.join(named)}",
            where="--paper",
            fix="leave --paper out to compare the runs",
        )
    shared = [name for name in offers if all(name in run.benchmarks for run in runs)]
    if len(shared) != 1:
        held = "; ".join(f"{run.label}: {', '.join(run.benchmarks)}" for run in runs)
        raise UserError(
            f"the runs share {'several benchmarks' if shared else 'no benchmark'} ({held})",
            where="--paper",
            fix="name runs of one benchmark",
        )
    return shared[0], offers[shared[0]]


def _files(
    runs: Sequence[Run], rules: str, compared: Sequence[Table], paper: Paper | None
) -> dict[str, bytes]:
    files: dict[str, str | bytes] = {}
    tables = [*compared, *(paper.tables if paper else ())]
    for table in tables:
        files[f"{table.name}.csv"] = csv_text(table)
        files[f"{table.name}.md"] = markdown(table, n=table in compared)
    pages = ["# Report", "", f"Rule set: {rules}. Shares in percent with 95 % intervals.", ""]
    pages += [f"- {run.label}: `{run.uri}`" for run in runs]
    pages += ["", *(str(files[f"{table.name}.md"]) for table in tables)]
    if paper is not None:
        from ace_ray.report.figures import FORMATS, draw

        for figure in paper.figures:
            files |= {f"{figure.name}.{form}": draw(figure, form) for form in FORMATS}
            pages += [f"## {figure.title}", "", f"![{figure.title}]({figure.name}.svg)", ""]
        pages += [f"- {note}" for note in paper.notes]
    files["report.md"] = "\n".join(pages).rstrip() + "\n"
    return {
        name: content if isinstance(content, bytes) else content.encode()
        for name, content in files.items()
    }
