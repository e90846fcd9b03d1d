"""Build the paper's groups, scores, tables and figures for reports.

Each rule set has its own error types. Table 5 maps them to the paper's two types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks import statistics
from ace_ray.benchmarks.acebench.options import AGENT, MULTI_TURN, agent_task
from ace_ray.benchmarks.acebench.summary import GROUPS, PAPER, PAPER_COLUMNS, TOP, WORKBOOK
from ace_ray.benchmarks.acebench.tables import (
    aggregate,
    identity_value,
    judged_stats,
    notes_on_languages,
    notes_on_missing,
    table6,
)
from ace_ray.benchmarks.acebench.tables import tables as paper_tables
from ace_ray.benchmarks.aggregates import column_score
from ace_ray.benchmarks.comparability import mark_labels
from ace_ray.benchmarks.results import (
    Bars,
    BenchmarkResult,
    CategoryResult,
    Curves,
    Paper,
    Score,
    Table,
    Value,
)
from ace_ray.benchmarks.sizes import curves_by_size, size_of
from ace_ray.benchmarks.statistics import pooled_score
from ace_ray.types import RULE_SETS, ResultRow, task_key

# Categories of Table 5. The paper does not name them. Only these make Tables 3 and 5 agree:
# Watt-Tool-8B's 188 + 4 errors are the 93 errors in Incomplete plus the 99 in Error.
_DETECTED_IN = ("special_incomplete", "special_error_param")
_SPECIAL = {
    "Error Detection": {"error_detection", "detection_failed"},
    "Error Correction": {"error_correction", "correction_failed"},
}


def table5(runs: Sequence[BenchmarkResult], rules: str) -> Table:
    """Build Table 5: errors by type on ``special_incomplete`` and ``special_error_param`` rows."""
    labels, legend = mark_labels(runs)
    lines: list[list[Value]] = []
    judged_rows, other_errors = [], []
    for run, label in zip(runs, labels, strict=True):
        blocks = [judged_stats(run, run.summary["combined"], name) for name in _DETECTED_IN]
        judged_blocks = [block for block in blocks if block is not None]
        if len(judged_blocks) < len(blocks):
            lines.append([label, None, None])
            continue
        errors: Counter[str] = Counter()
        for block in judged_blocks:
            errors.update({k: int(v["count"]) for k, v in block[rules]["errors"].items()})
        counts = [sum(errors[name] for name in names) for names in _SPECIAL.values()]
        lines.append([label, *counts])
        judged_rows.append(f"{sum(block['scored'] for block in judged_blocks)} of {run.label}")
        if other_count := errors.total() - sum(counts):
            other_errors.append(f"{other_count} of {run.label}")
    notes = ["rows of the incomplete and error_param categories, as the paper's counts imply"]
    if judged_rows:
        notes.append(f"judged rows: {', '.join(judged_rows)}")
    if other_errors:
        notes.append(f"errors of another kind, in neither column: {', '.join(other_errors)}")
    return Table(
        name="table5",
        title="Table 5: errors on Special data by type (rows)",
        header=["Model", *_SPECIAL],
        lines=lines,
        notes=[
            *legend,
            *notes_on_languages(runs),
            *notes,
            *notes_on_missing("rows of the incomplete and error_param categories", lines),
        ],
    )


# The paper's kinds of errors on Normal data, by upstream's types (`check.official`).
_KINDS = {
    "wrong_output_format": "output_format",
    "wrong functions number": "function_name",
    "function_mismatch": "function_name",
    "wrong_function_name": "function_name",
    "wrong_param": "param_num",
    "lack_args": "param_num",
    "addition_args": "param_num",
    "type_error": "param_type",
}


def figure6(runs: Sequence[BenchmarkResult], rules: str) -> tuple[list[Table], list[Bars]]:
    """Return a table and a figure for each group of categories. The paper has only Normal data.

    Upstream's types are counted under the paper's kinds. A run without judged rows in a group has
    no values. A group without errors has no figure."""
    labels, legend = mark_labels(runs)
    tables, figures = [], []
    for group in TOP:
        errors = [
            run.summary["combined"]["rules"][rules]["group_errors"].get(group) for run in runs
        ]
        counts = [_counts(kinds or {}) for kinds in errors]
        ranked = [kind for kind, _ in sum(counts, Counter()).most_common()]
        lines: list[list[Value]] = []
        for run, label, kinds, count in zip(runs, labels, errors, counts, strict=True):
            present = run.summary["combined"]["categories"]
            scored = sum(present[name]["scored"] for name in GROUPS[group] if name in present)
            numbers = [scored, count.total(), *(count[kind] for kind in ranked)]
            lines.append([label, *(numbers if kinds is not None else [None] * len(numbers))])
        name, title = f"figure6-{group}", f"Figure 6: kinds of errors on {group.capitalize()} data"
        header = ["Model", "Judged rows", "Errors", *ranked]
        notes = [
            *legend,
            *notes_on_languages(runs),
            *notes_on_missing(f"rows of {group} categories", lines),
        ]
        tables.append(Table(name, f"{title} (rows)", header, lines, notes))
        bars = {
            label: [count[kind] for kind in ranked]
            for label, count in zip(labels, counts, strict=True)
            if count
        }
        if bars:
            figures.append(Bars(name, f"{title} ({rules} rules)", ranked, bars))
    return tables, figures


def _counts(errors: Mapping[str, Any]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, error in errors.items():
        value_error = name.partition(":")[0] == "value_error"
        counts["param_value" if value_error else _KINDS.get(name, name)] += error["count"]
    return counts


_TITLES = {**PAPER_COLUMNS, "normal": "Normal"}


def figure7(runs: Sequence[BenchmarkResult], rules: str) -> tuple[Curves | None, list[str]]:
    """Return Figure 7, with a curve over model size for each model family, and notes on the sizes.

    The figure is None if fewer than two sizes are known. Accuracies cover all languages of runs."""
    sizes = [size_of(run) for run in runs]
    origins: dict[str, list[str]] = {}
    for run, size in zip(runs, sizes, strict=True):
        none = "unknown, not drawn" if run.step is None else "of checkpoints, not drawn"
        origin = f"from {size.source}" if size else none
        label = f"{run.label} {size.billions:g}B" if size else run.label
        origins.setdefault(origin, []).append(label)
    notes = [f"Figure 7: sizes {origin}: {', '.join(who)}" for origin, who in origins.items()]
    if len({size.billions for size in sizes if size}) < 2:
        notes.append("Figure 7 is not drawn: it needs runs of models of at least two known sizes")
        return None, notes
    title = f"Figure 7: accuracy against model size ({rules} rules)"
    panels = {
        _TITLES[name]: lambda run, name=name: aggregate(run, run.summary["combined"], name, rules)
        for name in (*TOP, "overall")
    }
    curves = curves_by_size(runs, panels, "figure7", title)
    missing = [panel for panel in panels if curves is None or panel not in curves.panels]
    if missing:
        notes.append(f"Figure 7 has no panel for {', '.join(missing)}: N/A in every run")
    return curves, notes


# Prompts of the runs in a set of tables, by `variant`, and the heading of the set. The shorter
# variants are in Table 6.
_PROMPTS = {
    "standard": "",
    "native": "native tool calls; the paper used prompts",
    "unknown": "prompt not known",
}


def scores(summary: Mapping[str, Any], rules: str) -> list[Score]:
    """Return the scores of a run over its languages: the workbook's aggregates, the overall number
    with the paper's weights, and the share of valid entries, without weights."""
    block = summary["combined"]
    workbook, languages = ("workbook", WORKBOOK), len(summary["languages"])
    return [
        *(
            column_score(block, rules, workbook, name, _TITLES[name], languages)
            for name in ("overall", *TOP)
        ),
        column_score(block, rules, ("paper", PAPER), "overall", "Overall", languages),
        pooled_score(stats[rules] for stats in block["categories"].values()),
    ]


def categories(run: BenchmarkResult) -> Sequence[CategoryResult]:
    """Return the accuracies of all categories by language, and for dialogues and agents the process
    accuracies."""
    return statistics.categories(run, RULE_SETS, (*MULTI_TURN, *AGENT))


# Groups of the paper's Table 2, with the name Normal in place of Summary.
PAPER_GROUPS = {_TITLES[group]: members for group, members in GROUPS.items()}


def task(row: ResultRow) -> str:
    """Return the key of a row's task. Agent entries with the same question share a key."""
    return agent_task(row.category, row.id) if row.category in AGENT else task_key(row)


def paper(runs: Sequence[BenchmarkResult], rules: str) -> Paper:
    """Build Tables 2 to 8, Figures 6 and 7. Each kind of prompt has its own tables and figures."""
    tables: list[Table] = []
    figures: list[Curves | Bars] = []
    notes: list[str] = []
    for variant, heading in _PROMPTS.items():
        members = [run for run in runs if identity_value(run, "variant") == variant]
        if not members:
            continue
        suffix, title = (f"-{variant}", f" ({heading})") if heading else ("", "")
        scaling, origins = figure7(members, rules)
        kinds, bars = figure6(members, rules)
        tables += [
            replace(table, name=table.name + suffix, title=table.title + title)
            for table in (*paper_tables(members, rules), table5(members, rules), *kinds)
        ]
        drawn: list[Curves | Bars] = [*bars, *([scaling] if scaling else [])]
        figures += [
            replace(figure, name=figure.name + suffix, title=figure.title + title)
            for figure in drawn
        ]
        notes += [note.replace("Figure 7", f"Figure 7{title}", 1) for note in origins]
    shorter = [
        f"{run.label} ({identity_value(run, 'variant')})"
        for run in runs
        if identity_value(run, "variant") not in _PROMPTS
    ]
    if shorter:
        notes.append(f"only in Table 6, the prompt variant is not standard: {', '.join(shorter)}")
    if not tables:
        notes.append("no run has standard prompts: other tables and figures are not shown")
    tables.append(table6(runs, rules))
    tables.sort(key=_sort_key)
    return Paper(
        [replace(table, title=f"{table.title}, {rules} rules") for table in tables], figures, notes
    )


def _sort_key(table: Table) -> tuple[bool, str, str]:
    """Return the sort key: standard prompts first, then Tables 2 to 8 before Figure 6."""
    *_, variant = ["", *(name for name in _PROMPTS if table.name.endswith(f"-{name}"))]
    return bool(variant), variant, "z" if table.name.startswith("figure") else table.name
