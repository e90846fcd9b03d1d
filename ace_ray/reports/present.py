"""Tables and figures without what the runs hold nothing of, which a note names instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ace_ray.benchmarks.headline import few
from ace_ray.benchmarks.results import Curves, Estimate, Figure, Intervals, Paper, Table

MOST_NAMES = 8


def left_out(names: Sequence[str]) -> list[str]:
    """The note that names what is not there; none for nothing."""
    return [f"left out, no run has a number of it: {few(names, MOST_NAMES)}"] if names else []


def present(paper: Paper) -> Paper:
    """``paper`` without empty columns, lines, tables, panels and figures."""
    tables = [(table, present_table(table)) for table in paper.tables]
    figures = [(figure, _present_figure(figure)) for figure in paper.figures]
    gone = [table.title for table, kept in tables if kept is None]
    gone += [figure.title for figure, kept in figures if kept is None]
    return Paper(
        [kept for _, kept in tables if kept is not None],
        [kept for _, kept in figures if kept is not None],
        [*left_out(gone), *paper.notes],
    )


def present_table(table: Table) -> Table | None:
    """``table`` without columns and lines that hold no number where others do; None where all of it
    is empty."""
    columns = range(len(table.header))
    numbers = [i for i in columns if any(_is_number(line[i]) for line in table.lines)]
    empty = [i for i in columns if table.lines and all(line[i] is None for line in table.lines)]
    if not numbers:
        return None if empty else table
    blank = [all(line[i] is None for i in numbers) for line in table.lines]
    if not empty and not any(blank):
        return table
    gone = [table.header[i] for i in empty]
    gone += [str(line[0]) for line, gone in zip(table.lines, blank, strict=True) if gone]
    kept = [i for i in columns if i not in empty]
    return replace(
        table,
        header=[table.header[i] for i in kept],
        lines=[
            [line[i] for i in kept]
            for line, gone in zip(table.lines, blank, strict=True)
            if not gone
        ],
        notes=[*left_out(list(dict.fromkeys(gone))), *table.notes],
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Estimate | int)


def _present_figure(figure: Figure) -> Figure | None:
    if isinstance(figure, Curves):
        panels = {
            panel: kept
            for panel, series in figure.panels.items()
            if (kept := {name: points for name, points in series.items() if points})
        }
        bands = {panel: bands for panel, bands in figure.bands.items() if panel in panels}
        return replace(figure, panels=panels, bands=bands) if panels else None
    if isinstance(figure, Intervals):
        held = any(share is not None for shares in figure.lines.values() for share in shares)
        return figure if held else None
    bars = [(label, counts) for label, counts in figure.bars if any(counts)]
    return replace(figure, bars=bars) if bars else None
