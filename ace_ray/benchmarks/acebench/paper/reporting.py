"""What reports need of ACEBench: the paper's aggregates, groups, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ace_ray.benchmarks.acebench.categories import AGENT, MULTI_TURN, agent_task
from ace_ray.benchmarks.acebench.paper.accuracies import table2, table3, table4, table7, table8
from ace_ray.benchmarks.acebench.paper.cells import aggregate, category
from ace_ray.benchmarks.acebench.paper.error_types import figure6, table5
from ace_ray.benchmarks.acebench.paper.scaling import figure7
from ace_ray.benchmarks.acebench.paper.variants import table6
from ace_ray.benchmarks.acebench.scoring.aggregates import GROUPS, PAPER_COLUMNS
from ace_ray.benchmarks.results import (
    CategoryResult,
    Estimate,
    Figure,
    Paper,
    ReportedRun,
    ScoredRow,
    own_task,
)
from ace_ray.records import RULE_SETS

_HEADLINE = {"overall": "Overall", "normal": "Normal", "special": "Special", "agent": "Agent"}
_TABLES = (table2, table3, table4, table5, table6, table7, table8)


def headline(run: ReportedRun, rules: str) -> Mapping[str, Estimate | None]:
    """The paper's aggregates over the languages that the run holds."""
    block = run.summary["combined"]
    return {title: aggregate(run, block, column, rules) for column, title in _HEADLINE.items()}


def categories(run: ReportedRun) -> Sequence[CategoryResult]:
    """Accuracies, and the process accuracies of dialogues and agents; by language."""
    return [
        CategoryResult(
            language,
            name,
            measure,
            found["declared"],
            found["scored"],
            {rules: category(run, block, name, rules, process=process) for rules in RULE_SETS},
        )
        for language, block in run.summary["languages"].items()
        for name, found in block["categories"].items()
        for measure, process in (("accuracy", False), ("process accuracy", True))
        if not process or name in (*MULTI_TURN, *AGENT)
    ]


PAPER_GROUPS = {
    {**PAPER_COLUMNS, "normal": _HEADLINE["normal"]}[group]: members
    for group, members in GROUPS.items()
}
"""Those of the paper's Table 2, the Normal data by their name and not as Summary."""


def task(row: ScoredRow) -> str:
    """Agent entries share few tasks, also between the languages; all others stand alone."""
    return agent_task(row.category, row.id) if row.category in AGENT else own_task(row)


def paper(runs: Sequence[ReportedRun], rules: str) -> Paper:
    """Tables 2 to 8, Figure 6 (error types) and Figure 7 (scaling)."""
    figures: list[Figure] = []
    notes: list[str] = []
    errors = figure6(runs, rules)
    if errors is None:
        notes.append("Figure 6 is not drawn: no run has an invalid row of the Normal data")
    else:
        figures.append(errors)
    scaling, origins = figure7(runs, rules)
    if scaling is not None:
        figures.append(scaling)
    tables = [table(runs, rules) for table in _TABLES]
    return Paper(
        [replace(table, title=f"{table.title}, {rules} rules") for table in tables],
        figures,
        [*notes, *origins],
    )
