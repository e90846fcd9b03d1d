"""``ace-ray compare``: compare runs statistically, with each other or with a reference.

The result is printed, and written as a page and CSV files. docs/statistics.md has the columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from rich.console import Console

from ace_ray.benchmarks.results import Table
from ace_ray.errors import UserError
from ace_ray.reports import comparison_tables as tables
from ace_ray.reports.comparison import Comparison, compare_runs
from ace_ray.reports.explain import Explanation, explain
from ace_ray.reports.flips import ANSWER_COLUMNS, COLUMNS, Flips, flip_lines, flip_table
from ace_ray.reports.kept import MARGIN
from ace_ray.reports.report_data import comparison_table
from ace_ray.reports.report_folder import PAGE, claim, write
from ace_ray.reports.runs import group_runs, load_runs
from ace_ray.reports.table import csv_records, print_parts, print_table
from ace_ray.rescoring.prompts import FirstPrompts
from ace_ray.storage.object_store import Store, open_store
from ace_ray.util.sanitizing import print_line

BOTH = "both"
# Maximum lines that are printed by default, and maximum sentences among them.
LINES, SENTENCES = 40, 8


def compare(
    uris: Sequence[str],
    *,
    rules: str,
    out: str | None,
    reference: str | None,
    groups: Collection[str],
    across: Collection[str] = (),
    allow_different: bool,
    with_flips: bool,
    with_causes: bool = False,
    prompts: FirstPrompts | None = None,
    margin: float = MARGIN,
    full: bool = False,
    console: Console,
    opens: Callable[[str], Store] = open_store,
) -> Comparison:
    """Print a comparison of the runs at ``uris``, write it to ``out``, and return it.

    ``reference``: the label or the folder of the run that all others are compared with. ``rules``:
    a rule set, or `BOTH` for all. ``across``: see `ScoredRun`. ``prompts``: see `explain`.
    ``margin``: in points. ``full``: print more than `LINES` lines. Raises the errors of
    `compare_runs`, and `UserError` when a URI is not a run or ``out`` has other files."""
    if unknown := {*across} - {"sampling"}:
        raise UserError(f"{min(unknown)!r} is unknown", where="--across", fix="write sampling")
    if prompts is not None and not with_causes:
        raise UserError("applies to --explain only", where="--tokenizer", fix="add --explain")
    target = None if out is None else claim(out, opens)
    runs = load_runs(uris, opens)
    for run in runs:
        run.across = across
    if reference is not None and all(run.label != reference for run in runs):
        uri = opens(reference).root
        reference = next((run.label for run in runs if run.uri == uri), reference)
    comparison = compare_runs(
        runs,
        reference=reference,
        rule_sets=None if rules == BOTH else (rules,),
        groups=groups,
        allow_different=allow_different or with_causes,
        margin=margin,
    )
    pairs = comparison.pairs if with_causes else []
    by_label = {run.label: run for run in runs}
    causes = [explain(*(by_label[label] for label in pair), prompts=prompts) for pair in pairs]
    if causes and not any(c.paired for c in causes):
        raise UserError("the runs share no rows", where="--explain", fix="name other runs")
    flips = comparison.flips() if with_flips else []
    print_parts(_parts(comparison, full=full), console, None if full else LINES)
    for flipped in flips:
        if flipped.flips:
            print_table(flip_table(flipped), console, intervals=False)
        for text in flip_lines(flipped):
            print_line(console, text)
    for explanation in causes:
        print_table(explanation.table(), console, intervals=False)
    if target is not None:
        files = {PAGE: _page(comparison, flips, causes), **comparison_files(comparison, flips)}
        for number, explanation in enumerate(causes, 1):
            files[f"explained-{number}.csv"] = explanation.csv()
        write(target, files, runs, {"rules": list(comparison.rule_sets)})
        print_line(console, f"comparison: {target.root}")
    return comparison


def _parts(comparison: Comparison, *, full: bool) -> Iterator[Sequence[Table | str]]:
    """Yield the parts of the printed comparison, the most important first."""
    yield from ([line] for line in comparison.warnings)
    yield tables.verdicts(comparison.kept)
    kept = comparison.kept if full else tables.headlines(comparison.kept)
    kept_tables = tables.kept_tables(kept)
    yield [*(comparison.noise if kept else ()), *kept_tables[:1]]
    yield from ([table] for table in kept_tables[1:])
    rest_count = sum(not result.is_significant for result in comparison.results)
    count = f"no difference shown in {rest_count} of {len(comparison.results)} lines"
    yield [*tables.sentences_of(comparison.results)[: None if full else SENTENCES], count]
    yield [*comparison.cautions, *(() if kept else comparison.noise)]
    # Scores of each run over all its rows, not only over paired rows.
    scores = tables.joined(
        (rule_set, comparison_table(holders, rule_set, with_facts=False))
        for holders in group_runs(comparison.runs)
        for rule_set in comparison.rule_sets
        if rule_set in holders.reporting.rule_sets
    )
    yield from ([table] for table in [*scores, *tables.tables_of(comparison.results)])
    yield comparison.notes


def _page(comparison: Comparison, flips: Sequence[Flips], causes: Sequence[Explanation]) -> bytes:
    # Imported here: Jinja is needed only when a page is written.
    from ace_ray.reports.html import comparison as sections
    from ace_ray.reports.html.page import Section, render

    explained = [explanation.table() for explanation in causes]
    parts = [
        *sections.comparison(comparison),
        sections.flips(flips),
        Section("explained", "Why rows differ", "explained.html.j2", explained),
    ]
    return render("Comparison", [*tables.verdicts(comparison.kept), *comparison.warnings], parts)


def comparison_files(comparison: Comparison, flips: Sequence[Flips]) -> dict[str, str | bytes]:
    """Return the CSV files by name: all test results, what is kept, and each item of ``flips``."""
    texts: dict[str, str | bytes] = {"comparison.csv": csv_records(comparison.records)}
    if comparison.kept:
        texts["kept.csv"] = csv_records(comparison.kept)
    for number, flipped in enumerate(flips, start=1):
        name = f"flips-{number}-{flipped.benchmark}-{flipped.rules}.csv"
        texts[name] = csv_records(flipped.flips, (*COLUMNS, *ANSWER_COLUMNS))
    return texts
