"""Curves as a figure: panels of accuracies over model sizes or training steps, laws as bands."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullFormatter

from ace_ray.benchmarks.reporting import BandPoint, Curves, Estimate
from ace_ray.report.figure_style import COLOURS, MARKERS, short_label

_MOST_STEPS = 6
"""Labels on an axis of steps."""


def curves_canvas(figure: Curves) -> Canvas:
    names = list(dict.fromkeys(name for curves in figure.panels.values() for name in curves))
    columns = min(len(figure.panels), 2)
    rows = -(-len(figure.panels) // columns)
    legend_rows = -(-len(names) // columns)
    size = (4.2 * columns, 2.7 * rows + 0.5 + 0.22 * legend_rows)
    canvas = Canvas(figsize=size, layout="constrained")
    every = [p for curves in figure.panels.values() for points in curves.values() for p in points]
    places = sorted({x for x, _ in every})
    for place, (panel, curves) in enumerate(figure.panels.items(), start=1):
        axes = canvas.add_subplot(rows, columns, place)
        bands = figure.bands.get(panel, {})
        for name, points in curves.items():
            number = names.index(name)
            if name in bands:
                _band(axes, bands[name], COLOURS[number % len(COLOURS)])
            _curve(axes, points, number, name, joined=name not in bands)
        axes.set_title(short_label(panel), fontsize=9)
        axes.set_ylim(-3, 103)
        axes.set_ylabel("accuracy (%)")
        axes.grid(alpha=0.25, linewidth=0.6)
        if figure.axis == "step":
            _step_axis(axes, places)
        else:
            _size_axis(axes, places)
    canvas.suptitle(short_label(figure.title, 100), fontsize=10)
    handles = {
        short_label(name, 60): axes.get_legend_handles_labels()[0][list(curves).index(name)]
        for axes, curves in zip(canvas.axes, figure.panels.values(), strict=True)
        for name in curves
    }
    canvas.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )
    return canvas


def _curve(
    axes: Axes, points: Sequence[tuple[float, Estimate]], number: int, name: str, *, joined: bool
) -> None:
    values = [100 * found.value for _, found in points]
    below = [100 * (found.value - found.interval[0]) for _, found in points]
    above = [100 * (found.interval[1] - found.value) for _, found in points]
    axes.errorbar(
        [x for x, _ in points],
        values,
        yerr=[below, above],
        label=name,
        color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number // len(COLOURS) % len(MARKERS)],
        markersize=5,
        linestyle="-" if joined else "none",
        linewidth=1.4,
        elinewidth=0.8,
        capsize=2,
    )


def _band(axes: Axes, band: Sequence[BandPoint], colour: str) -> None:
    places, middle, low, high = zip(*band, strict=True)
    axes.fill_between(
        places, [100 * y for y in low], [100 * y for y in high], color=colour, alpha=0.15, lw=0
    )
    axes.plot(places, [100 * y for y in middle], color=colour, linewidth=1.2, linestyle="--")


def _step_axis(axes: Axes, steps: Sequence[float]) -> None:
    margin = (steps[-1] - steps[0]) / 20 or 1.0
    axes.set_xlim(steps[0] - margin, steps[-1] + margin)
    every = -(-len(steps) // _MOST_STEPS)
    # From the end, so that the last checkpoint always has its number.
    ticks = steps[::-1][::every][::-1]
    axes.set_xticks(ticks, [f"{step:,.0f}" for step in ticks])
    axes.set_xlabel("training step")


def _size_axis(axes: Axes, sizes: Sequence[float]) -> None:
    """Powers of ten say little about model sizes: the ticks are the sizes themselves."""
    axes.set_xscale("log")
    axes.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
    spread = sizes[-1] / sizes[0]
    ticks: list[float] = []
    for size in sizes:
        # A label needs a tenth of the axis.
        if not ticks or size / ticks[-1] >= (1.96 * spread) ** 0.1:
            ticks.append(size)
    axes.set_xticks(ticks, [f"{size:g}B" if size >= 1 else f"{1e3 * size:g}M" for size in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)
    axes.set_xlabel("parameters")
