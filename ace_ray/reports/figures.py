"""Write every figure of a report as an SVG file, and its points as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.results import Bars, Curves
from ace_ray.reports.html.page import Figure, Lines, figure_svg
from ace_ray.reports.report_data import Content
from ace_ray.reports.table import csv_lines

# Attributes that a figure outside of the page needs.
_ALONE = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif"'


def figure_files(content: Content, engine_figures: Iterable[Lines]) -> dict[str, str | bytes]:
    """Return file name -> content: ``<name>.svg`` and ``<name>-points.csv`` of each figure.

    The names of a paper's figures end in the rule set, except under the first."""
    figures: list[Figure] = []
    for benchmark in content.benchmarks:
        figures += benchmark.pictures
        for rules in benchmark.rule_sets:
            suffix = "" if rules == benchmark.rules else f"-{rules}"
            paper_figures = benchmark.papers[rules].figures
            figures += [replace(figure, name=figure.name + suffix) for figure in paper_figures]
    files: dict[str, str | bytes] = {}
    for figure in (*figures, *engine_figures):
        files[f"{figure.name}.svg"] = svg_file(figure)
        files[f"{figure.name}-points.csv"] = csv_lines(_points(figure))
    return files


def svg_file(figure: Figure) -> bytes:
    """Return the content of an SVG file with ``figure``."""
    return figure_svg(figure).replace("<svg", f"<svg {_ALONE}", 1).encode() + b"\n"


def _points(figure: Figure) -> Iterator[list[Any]]:
    match figure:
        case Curves():
            yield ["Panel", "Curve", figure.axis, "Share (%)", "low", "high", "n", "partial"]
            for panel, curves in figure.panels.items():
                for name, points in curves.items():
                    for x, share in points:
                        shares = (100 * value for value in (share.value, *share.interval))
                        partial = "yes" if share.partial else ""
                        yield [panel, name, x, *(f"{v:.4f}" for v in shares), share.n, partial]
        case Bars():
            yield ["Model", "Kind", "Count", "Share (%)"]
            for name, counts in figure.bars.items():
                for kind, count in zip(figure.kinds, counts, strict=True):
                    yield [name, kind, count, f"{100 * count / max(1, sum(counts)):.4f}"]
        case _:
            yield ["Line", figure.across, "Value"]
            for name, line in figure.lines.items():
                yield from ([name, x, y] for x, y in line)
