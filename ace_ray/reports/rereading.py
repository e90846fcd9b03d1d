"""Print what another parser changes: the result of `ace_ray.pipeline.reread`."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from ace_ray.benchmarks.results import Score, Table
from ace_ray.pipeline.reread import Reread
from ace_ray.reports.comparison import compare_runs
from ace_ray.reports.comparison_tables import interval_text, signed
from ace_ray.reports.paired import ALL
from ace_ray.reports.runs import load_runs
from ace_ray.reports.table import cell, print_table, say
from ace_ray.storage.object_store import Store

_COUNTS = ("answers", "gained", "lost", "diverged")


def print_reread(found: Reread, opens: Callable[[str], Store], console: Console) -> None:
    """Print the table of changes, the headlines, and examples."""
    lines = [
        [*key, *(str(counts[name]) for name in _COUNTS)]
        for key, counts in sorted(found.moved.items())
    ]
    header = ["Benchmark", "Category", "Answers read differently", "Gained", "Lost", "Diverged"]
    if lines:
        print_table(Table("reread", "Rereading", header, lines), console, intervals=False)
    say(f"{found.answers:,} answers of {found.rows:,} rows read with {found.reader}", console)
    if not found.with_ids:
        say("the rows have no token ids: their stored text was read", console)
    if found.unread:
        say(f"{found.unread:,} answers were not read: their whole text is not stored", console)
    for name, scores in found.bounds.items():
        say(f"{name}: {_headline(scores, found.total('diverged'))}", console)
    for line in _difference(found, opens) if found.total("answers") else ():
        say(line, console)
    for example in found.examples:
        say(f"  {example}", console)
    rows = sum(found.total(name) for name in ("gained", "lost", "diverged"))
    say(f"the model moved 0 rows, the parser {rows:,}", console)
    say(f"results: {found.uri}", console)


def _headline(scores: tuple[Score, Score, Score, Score], diverged: int) -> str:
    before, after, low, high = (cell(score.estimate) for score in scores)
    text = f"{scores[0].name} {before} before, {after} after"
    return f"{text}, {low} to {high} with the diverged rows wrong or right" if diverged else text


def _difference(found: Reread, opens: Callable[[str], Store]) -> list[str]:
    """Return a line per benchmark with the paired difference of all its rows."""
    runs = load_runs([found.run, found.uri], opens)
    # A benchmark of which one category was run has no group of all.
    results = compare_runs(runs, allow_different=True).results
    every = [one for one in results if one.hypothesis.group.name == ALL] or results
    every = [one for one in every if one.hypothesis.metric == "accuracy"]
    first = {one.hypothesis.section: one for one in reversed(every)}
    return [
        f"{one.hypothesis.benchmark}, {one.hypothesis.rules}: {signed(one.difference.value)} points"
        f", 95 % CI {interval_text(one.difference.interval)}, paired over all judged rows"
        for one in first.values()
    ]
