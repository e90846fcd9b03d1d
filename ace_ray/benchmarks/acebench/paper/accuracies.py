"""Tables 2, 3, 4, 7 and 8 of the paper: accuracies of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ace_ray.benchmarks.acebench.paper.cells import (
    Block,
    aggregate,
    both_languages,
    category,
    notes_on_runs,
    standard,
)
from ace_ray.benchmarks.acebench.scoring.aggregates import PAPER_COLUMNS
from ace_ray.benchmarks.conditions import marked, self_played
from ace_ray.benchmarks.results import ReportedRun, Table, Value

_SPECIAL = {
    "Incomplete": "special_incomplete",
    "Error": "special_error_param",
    "Irrelevant": "special_irrelevant",
}
_AGENT = {"Multi-Turn": "agent_multi_turn", "Multi-Step": "agent_multi_step"}


def table2(runs: Sequence[ReportedRun], rules: str) -> Table:
    """All groups, mean of English and Chinese; a run with one of them only has no such mean."""
    return _groups("table2", "English and Chinese combined", runs, rules, both_languages)


def table3(runs: Sequence[ReportedRun], rules: str) -> Table:
    """The three special categories, rows of both languages pooled."""

    def cells(run: ReportedRun) -> list[Value]:
        block = run.summary["combined"]
        return [category(run, block, name, rules) for name in _SPECIAL.values()]

    return _table(
        "table3", "Table 3: accuracy on Special data (%)", list(_SPECIAL), runs, cells, agents=False
    )


def table4(runs: Sequence[ReportedRun], rules: str) -> Table:
    """End-to-end (EA) and process accuracy (PA) of the agent categories, languages pooled."""

    def cells(run: ReportedRun) -> list[Value]:
        block = run.summary["combined"]
        return [
            category(run, block, name, rules, process=process)
            for name in _AGENT.values()
            for process in (False, True)
        ]

    title = "Table 4: end-to-end (EA) and process accuracy (PA) on Agent data (%)"
    header = [f"{name} {kind}" for name in _AGENT for kind in ("EA", "PA")]
    return _table("table4", title, header, runs, cells, agents=True)


def table7(runs: Sequence[ReportedRun], rules: str) -> Table:
    """All groups, English."""
    return _groups("table7", "English", runs, rules, lambda run: run.summary["languages"].get("en"))


def table8(runs: Sequence[ReportedRun], rules: str) -> Table:
    """All groups, Chinese."""
    return _groups("table8", "Chinese", runs, rules, lambda run: run.summary["languages"].get("zh"))


def _groups(
    name: str,
    data: str,
    runs: Sequence[ReportedRun],
    rules: str,
    block: Callable[[ReportedRun], Block | None],
) -> Table:
    def cells(run: ReportedRun) -> list[Value]:
        return [aggregate(run, block(run), column, rules) for column in PAPER_COLUMNS]

    title = f"Table {name.removeprefix('table')}: accuracy by kind of data, {data} (%)"
    return _table(name, title, list(PAPER_COLUMNS.values()), runs, cells, agents=True)


def _table(
    name: str,
    title: str,
    header: Sequence[str],
    runs: Sequence[ReportedRun],
    cells: Callable[[ReportedRun], list[Value]],
    *,
    agents: bool,
) -> Table:
    shown = standard(runs)
    labels, legend = marked(shown)
    return Table(
        name=name,
        title=title,
        header=["Model", *header],
        lines=[[label, *cells(run)] for label, run in zip(labels, shown, strict=True)],
        notes=[*legend, *notes_on_runs(shown, runs), *(self_played(shown) if agents else ())],
    )
