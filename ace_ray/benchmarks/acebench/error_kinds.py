"""Build Figure 6: the kinds of errors on Normal, Special and Agent data, for each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.summary import GROUPS, TOP
from ace_ray.benchmarks.acebench.tables import notes_on_languages, notes_on_missing
from ace_ray.benchmarks.conditions import marked
from ace_ray.benchmarks.results import Bars, ReportedRun, Table, Value

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


def figure6(runs: Sequence[ReportedRun], rules: str) -> tuple[list[Table], list[Bars]]:
    """Return a table and a figure for each group of categories. The paper has only Normal data.

    Upstream's types are counted under the paper's kinds. A run without judged rows in a group has
    no values. A group without errors has no figure."""
    labels, legend = marked(runs)
    tables, figures = [], []
    for group in TOP:
        errors = [
            run.summary["combined"]["rules"][rules]["group_errors"].get(group) for run in runs
        ]
        counts = [_counts(kinds or {}) for kinds in errors]
        ranked = [kind for kind, _ in sum(counts, Counter()).most_common()]
        lines: list[list[Value]] = []
        for run, label, kinds, count in zip(runs, labels, errors, counts, strict=True):
            numbers = [_judged(run.summary, group), count.total(), *(count[k] for k in ranked)]
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


def _judged(summary: Mapping[str, Any], group: str) -> int:
    categories = summary["combined"]["categories"]
    return sum(categories[name]["scored"] for name in GROUPS[group] if name in categories)
