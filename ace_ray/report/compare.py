"""``ace-ray compare``: runs against each other, or against a baseline, with statistics."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence

from rich.console import Console

import ace_ray
from ace_ray.benchmarks.reporting import Table
from ace_ray.records import RULE_SETS
from ace_ray.report.compare_files import WARNING, files_of
from ace_ray.report.compare_tables import tables_of
from ace_ray.report.compared import Comparison, compared
from ace_ray.report.contenders import Contender, contenders_of
from ace_ray.report.flip_files import flip_lines, flip_tables
from ace_ray.report.flips import Flips, flips_of
from ace_ray.report.folder import claim, write
from ace_ray.report.render import print_table, say
from ace_ray.report.runs import load_runs
from ace_ray.report.sentences import sentence
from ace_ray.store import Store, open_store

BOTH = "both"


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
) -> None:
    """Print a comparison of the runs at ``uris``, and write it where ``out`` says.

    ``baseline`` is the label or the folder of one of them, what all others are compared with;
    ``rules`` a rule set or `BOTH`.

    Raises:
        NotComparable: the runs differ in what moves scores.
        UserError: not a run, nothing to compare, or ``out`` holds something else.
    """
    target = None if out is None else claim(out, opens)
    contenders = contenders_of(load_runs(uris, opens))
    for contender in contenders:
        if contender.run.elsewhere:
            say(contender.run.elsewhere, console)
    comparison = compared(
        contenders,
        baseline=_label(contenders, baseline),
        rule_sets=RULE_SETS if rules == BOTH else (rules,),
        groups=groups,
        allow_different=allow_different,
        select_best=select_best,
    )
    tables = list(tables_of(comparison))
    flips = every_flips(comparison) if with_flips else []
    print_comparison(comparison, tables, flips, console)
    if target is not None:
        write_comparison(target, comparison, tables, flips)
        say(f"comparison: {target.root}", console)


def write_comparison(
    target: Store, comparison: Comparison, tables: Sequence[Table], flips: Sequence[Flips]
) -> None:
    """Write all files of a comparison into ``target``, which `claim` gave."""
    facts = {
        "ace_ray_version": ace_ray.__version__,
        "rules": list(comparison.rule_sets),
        "runs": [
            {"uri": c.run.uri, "run_id": c.run.manifest.run_id, "label": c.label}
            for c in comparison.contenders
        ],
    }
    write(target, files_of(comparison, tables, flips), facts)


def every_flips(comparison: Comparison) -> list[Flips]:
    """The flips of every pair, benchmark and rule set that has lines."""
    runs = {c.label: c.run for c in comparison.contenders}
    return [
        flips_of((runs[base], base), (runs[other], other), benchmark, rules)
        for rules, base, other, benchmark in dict.fromkeys(
            line.asked.section for line in comparison.lines
        )
    ]


def print_comparison(
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
    shown = [line for line in comparison.lines if line.shown]
    for found in shown:
        say(f"{found.asked.rules}: {sentence(found)}", console)
    rest = len(comparison.lines) - len(shown)
    say(f"no difference shown in {rest} of {len(comparison.lines)} lines", console)
    for note in [*comparison.cautions, *comparison.notes]:
        say(note, console)
    for flipped in flips:
        for table in flip_tables(flipped) if flipped.flips else ():
            print_table(table, console, intervals=False)
        for text in flip_lines(flipped):
            say(text, console)
    if comparison.differences:
        say(f"WARNING: {WARNING} (listed above)", console)


def _label(contenders: Sequence[Contender], named: str | None) -> str | None:
    """The label of the run that ``named`` is, by its label or folder."""
    if named is None:
        return None
    plain = named.rstrip("/")
    folder = plain if "://" in plain else os.path.abspath(os.path.expanduser(plain))
    return next((c.label for c in contenders if c.run.uri == folder), named)
