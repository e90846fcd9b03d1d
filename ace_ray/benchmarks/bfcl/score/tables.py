"""Build a run's printed tables, and the leaderboard's groups, scores and tables in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks import statistics
from ace_ray.benchmarks.aggregates import column_score, complete_estimate, table_of_runs
from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.bfcl.score.summary import ENDINGS, TURN_METRICS, V4, VERSIONS
from ace_ray.benchmarks.comparability import mark_labels
from ace_ray.benchmarks.endings import endings_table
from ace_ray.benchmarks.results import BenchmarkResult, Estimate, Paper, Score, Table, Value
from ace_ray.benchmarks.sizes import curves_by_size, paper_with_curves
from ace_ray.benchmarks.statistics import VALUE, estimate, percents, pooled_score, sample_tables
from ace_ray.types import RULE_SETS, ResultRow, task_key

_HEADLINE = ("non_live", "live", "irrelevance_mean", "multi_turn", "agentic")


def table(summary: Mapping[str, Any], absent: Mapping[str, str]) -> dict[str, Any]:
    """Return the printed table: categories, groups in which no category is missing, and overall
    scores.

    ``absent`` maps each category that was not run to the reason; its scores read ``N/A``."""
    base_table = statistics.table(summary, RULE_SETS)
    lines = [*base_table["lines"], *([category, "", "N/A", "N/A"] for category in absent)]
    for version, names in (("v4", (*_HEADLINE, "overall")), ("v3", ("overall",))):
        for name in names:
            cells = [summary["rules"][rules][version][name] for rules in RULE_SETS]
            if name == "overall" or cells[0]["value"] is not None:
                lines.append([cells[0]["title"], "", *percents(cells, VALUE)])
    return {**base_table, "lines": lines}


def further_tables(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of episode endings, of turns in conversations, of accuracy per prompt form
    and of pass@k. Tables without lines are left out."""
    tables = []
    if summary["endings"]:
        tables.append(endings_table("how episodes ended", ENDINGS, summary["endings"]))
    if summary["turn_matches"]:
        lines = [[*map(str, line)] for line in _turn_lines(summary, "official")]
        title = "turns of conversations (%, official)"
        tables.append({"title": title, "header": _TURNS_HEADER, "lines": lines})
    if sensitivity := summary["format_sensitivity"]:
        blocks = [sensitivity[rules] for rules in RULE_SETS]
        lines = [
            [form, str(stats["n"]), *percents(block["forms"][form] for block in blocks)]
            for form, stats in blocks[0]["forms"].items()
        ]
        lines += [
            [f"{name} (points)", "", *(_points(block[name]) or "N/A" for block in blocks)]
            for name in ("range", "stdev")
        ]
        header = ["form", "n", "official", "strict"]
        tables.append({"title": "format sensitivity", "header": header, "lines": lines})
    return tables + sample_tables(summary["categories"], RULE_SETS)


def tables(summary: Mapping[str, Any], absent: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"table": table(summary, absent or {}), "further_tables": further_tables(summary)}


def notes(summary: Mapping[str, Any], absent: Mapping[str, str]) -> list[str]:
    """Return one sentence per category that did not run, and one on contamination if measured."""
    sentences = [f"{category} was not run: {why}" for category, why in absent.items()]
    if score := summary["contamination"]:
        low, high = score["interval"]
        single, live = score["perplexity"].values()
        sentences.append(
            f"contamination score {score['score']:.2f} [{low:.2f}, {high:.2f}]: perplexity of the "
            f"gold calls {single:.2f} single-turn, {live:.2f} live"
        )
    return sentences


def _points(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


_TURNS_HEADER = ["category", "conversations", "passed", "state match", "response match"]


def _turn_lines(summary: Mapping[str, Any], rules: str) -> list[list[Value]]:
    return [
        [name, sums["n"], *(_points(100 * sums[metric] / sums["n"]) for metric in TURN_METRICS)]
        for name, by_rules in summary["turn_matches"].items()
        for sums in [by_rules[rules]]
    ]


def scores(summary: Mapping[str, Any], rules: str) -> list[Score]:
    """Return the scores of a report: the overall score and groups of leaderboard v4, the overall
    score of v3, and the accuracy of all entries."""
    scores = []
    for version, name in (("v4", "overall"), *(("v4", n) for n in _HEADLINE), ("v3", "overall")):
        title = "Overall" if name == "overall" else V4[name].title
        columns = version, VERSIONS[version]
        scores.append(column_score(summary, rules, columns, name, title))
    return [*scores, pooled_score(stats[rules] for stats in summary["categories"].values())]


# The leaderboard's groups. Format sensitivity is a group of its own and enters no score.
TITLED_GROUPS: Mapping[str, Sequence[str]] = {
    **{
        V4[name].title: groups.GROUPS[name]
        for name in ("non_live", "live", "multi_turn", "web_search", "memory")
    },
    "Format sensitivity": (groups.FORMAT_SENSITIVITY,),
}


def task(row: ResultRow) -> str:
    """Return the id of a row's task. Rows that share a memory or a question have the same task."""
    if row.category in groups.MEMORY:  # memory_kv_12-student-3
        return f"{row.category}/{row.id.rsplit('_', 1)[-1].split('-')[1]}"
    if row.category == groups.FORMAT_SENSITIVITY:
        return groups.original_id(row.id)
    return task_key(row)


def paper(runs: Sequence[BenchmarkResult], rules: str) -> Paper:
    """Return tables of leaderboard columns and of accuracy per form, and curves by model size."""
    tables = [_leaderboard(runs, version, rules) for version in VERSIONS]
    notes = []
    if any(run.summary["turn_matches"] for run in runs):
        tables.append(_turns(runs, rules))
    if forms := _forms(runs, rules):
        tables.append(forms)
    else:
        notes.append("no table of format sensitivity: no run has its rows")
    names = ("non_live", "live", "irrelevance_mean", "multi_turn")
    panels = {V4[n].title: lambda run, n=n: _column(run, "v4", n, rules) for n in names}
    title = f"Accuracy against model size ({rules} rules)"
    return paper_with_curves(tables, notes, curves_by_size(runs, panels, "bfcl-sizes", title))


def _column(run: BenchmarkResult, version: str, name: str, rules: str) -> Estimate | None:
    return complete_estimate(run, run.summary, rules, (version, VERSIONS[version]), name)


def _leaderboard(runs: Sequence[BenchmarkResult], version: str, rules: str) -> Table:
    columns = VERSIONS[version]
    return table_of_runs(
        f"leaderboard-{version}",
        f"BFCL {version}: the leaderboard's columns (%), {rules} rules",
        [column.title for column in columns.values()],
        runs,
        lambda run: [_column(run, version, name, rules) for name in columns],
        ["a column with a missing category has no value"],
    )


def _turns(runs: Sequence[BenchmarkResult], rules: str) -> Table:
    labels, legend = mark_labels(runs)
    pairs = zip(runs, labels, strict=True)
    lines = [[label, *line] for run, label in pairs for line in _turn_lines(run.summary, rules)]
    title = f"Turns of conversations (%), {rules} rules: in no score"
    return Table("turn-matches", title, ["Model", *_TURNS_HEADER], lines, legend)


def _forms(runs: Sequence[BenchmarkResult], rules: str) -> Table | None:
    form_runs = [run for run in runs if run.summary["format_sensitivity"]]
    if not form_runs:
        return None
    labels, legend = mark_labels(form_runs)
    blocks = [run.summary["format_sensitivity"][rules] for run in form_runs]
    lines: list[list[Value]] = [
        [str(form), *(estimate(b["forms"].get(str(form))) for b in blocks)] for form in groups.FORMS
    ]
    lines += [
        [f"{name} (points)", *(_points(block[name]) for block in blocks)]
        for name in ("range", "stdev")
    ]
    return Table(
        name="format-sensitivity",
        title=f"Format sensitivity: accuracy of each form of prompt (%), {rules} rules",
        header=["Form", *labels],
        lines=lines,
        notes=legend,
    )
