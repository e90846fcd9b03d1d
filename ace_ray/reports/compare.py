"""``ace-ray compare``: compare runs statistically, with each other or with a reference.

The result is printed, and written as a page and CSV files. docs/statistics.md has the columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

import ace_ray
from ace_ray.benchmarks.results import Table
from ace_ray.errors import UserError
from ace_ray.reports.comparison import Comparison, ReportedComparison, compare_runs
from ace_ray.reports.comparison_tables import joined, sentences_of, tables_of
from ace_ray.reports.explain import Explanation, explain
from ace_ray.reports.flips import Flips, flip_csv, flip_lines, flip_table
from ace_ray.reports.hypotheses import TestResult
from ace_ray.reports.kept import MARGIN
from ace_ray.reports.kept_tables import headlines, kept_tables, verdicts
from ace_ray.reports.report_data import comparison_table
from ace_ray.reports.report_folder import PAGE, claim, write
from ace_ray.reports.runs import group_runs, load_runs
from ace_ray.reports.table import csv_lines, print_parts, print_table
from ace_ray.rescoring.prompts import FirstPrompts
from ace_ray.storage.object_store import Store, open_store
from ace_ray.util.sanitizing import print_line

BOTH = "both"
# Maximum lines that are printed by default, and maximum sentences among them.
LINES, SENTENCES = 40, 8
# Columns of ``comparison.csv`` that are attributes of a `TestResult`.
_RESULT_COLUMNS = ("detectable", "noise_floor", "under_noise")
WARNING = (
    "THE RUNS DIFFER IN CONDITIONS THAT AFFECT SCORES (--allow-different): "
    "a difference below may not be a difference between models"
)


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
    `compare_runs`, and `UserError`: a URI is not a run, or ``out`` has other files."""
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
        allow_different=allow_different,
        margin=margin,
    )
    if groups:
        chosen = [line for line in comparison.kept if line["group"] in groups]
        comparison = replace(comparison, kept=chosen)
    pairs = comparison.pairs if with_causes else []
    by_label = {run.label: run for run in runs}
    causes = [explain(*(by_label[label] for label in pair), prompts=prompts) for pair in pairs]
    if causes and not any(c.paired for c in causes):
        raise UserError("the runs share no rows", where="--explain", fix="name other runs")
    # Scores of each run over all its rows, not only over paired rows.
    scores = joined(
        (rule_set, comparison_table(holders, rule_set, with_facts=False))
        for holders in group_runs(runs)
        for rule_set in comparison.rule_sets
        if rule_set in holders.reporting.rule_sets
    )
    flips = comparison.flips() if with_flips else []
    print_parts(_parts(comparison, scores, full=full), console, None if full else LINES)
    for flipped in flips:
        if flipped.flips:
            print_table(flip_table(flipped), console, intervals=False)
        for text in flip_lines(flipped):
            print_line(console, text)
    for explanation in causes:
        print_table(explanation.table(), console, intervals=False)
    if target is not None:
        facts = {
            "ace_ray_version": ace_ray.__version__,
            "rules": list(comparison.rule_sets),
            "runs": [run.reference for run in runs],
        }
        files = comparison_files(comparison, flips)
        for number, explanation in enumerate(causes, 1):
            files[f"explained-{number}.csv"] = explanation.csv().encode()
        write(target, {PAGE: _page(comparison, flips, causes), **files}, facts)
        print_line(console, f"comparison: {target.root}")
    return comparison


def _parts(
    comparison: Comparison, scores: Sequence[Table], *, full: bool
) -> Iterator[Sequence[Table | str]]:
    """Yield the parts of the printed comparison, the most important first."""
    if comparison.across:
        yield [comparison.across]
    if comparison.differences:
        yield [f"WARNING: {WARNING}:"]
        yield [f"  {line}" for line in comparison.differences]
    yield verdicts(comparison.kept)
    kept = comparison.kept if full else headlines(comparison.kept)
    tables = kept_tables(kept)
    yield [*(comparison.noise if kept else ()), *tables[:1]]
    yield from ([table] for table in tables[1:])
    sentences = sentences_of(comparison.results)
    rest_count = sum(not result.is_significant for result in comparison.results)
    count = f"no difference shown in {rest_count} of {len(comparison.results)} lines"
    yield [*sentences[: None if full else SENTENCES], count]
    yield [*comparison.cautions, *(() if kept else comparison.noise)]
    yield from ([table] for table in [*scores, *tables_of(comparison.results)])
    yield comparison.notes
    if comparison.differences:
        yield [f"WARNING: {WARNING} (listed above)"]


def _page(comparison: Comparison, flips: Sequence[Flips], causes: Sequence[Explanation]) -> bytes:
    # Imported here: Jinja is needed only when a page is written.
    from ace_ray.reports.html import comparison as sections
    from ace_ray.reports.html.page import Section, render

    reported = ReportedComparison(comparison, flips)
    tables = [explanation.table() for explanation in causes]
    parts = [
        sections.kept(reported),
        sections.comparison(reported),
        sections.flips(reported),
        Section("explained", "Why rows differ", "explained.html.j2", tables),
    ]
    facts = [f"WARNING: {WARNING}:", *comparison.differences] if comparison.differences else []
    first = [comparison.across] if comparison.across else []
    return render("Comparison", [*verdicts(comparison.kept), *first, *facts], parts)


def comparison_files(comparison: Comparison, flips: Sequence[Flips]) -> dict[str, bytes]:
    """Return the CSV files by name: one of all test results, one of what is kept, and one for each
    item of ``flips``."""
    rows = [_csv_row(result) | {"across": comparison.across} for result in comparison.results]
    texts = {"comparison.csv": csv_lines([rows[0] if rows else [], *(r.values() for r in rows)])}
    if comparison.kept:
        texts["kept.csv"] = csv_lines([comparison.kept[0], *(k.values() for k in comparison.kept)])
    for number, flipped in enumerate(flips, start=1):
        texts[f"flips-{number}-{flipped.benchmark}-{flipped.rules}.csv"] = flip_csv(flipped)
    return {name: text.encode("utf-8", "replace") for name, text in texts.items()}


def _csv_row(result: TestResult) -> dict[str, Any]:
    """Return the values of a line of ``comparison.csv`` by column."""
    hypothesis, difference, noise = result.hypothesis, result.difference, result.noise
    low, high = difference.interval or (None, None)
    return {
        **{name: getattr(hypothesis, name) for name in ("benchmark", "rules", "base", "other")},
        "group": hypothesis.group.name,
        "language": hypothesis.group.language,
        "metric": hypothesis.metric,
        "n": difference.n,
        "clusters": len(difference.sizes),
        "left_out_rows": difference.left_out,
        "base_value": difference.base_mean,
        "other_value": difference.other_mean,
        "difference": difference.value,
        "low": low,
        "high": high,
        **{name: getattr(difference, name) for name in ("gained", "lost", "test", "p")},
        "holm_p": result.holm,
        "family": result.family,
        "shown": result.is_significant,
        **{name: getattr(result, name) for name in _RESULT_COLUMNS},
        "repeated": 0 if noise is None else noise.n,
        "repeated_flips": 0 if noise is None else noise.flips,
    }
