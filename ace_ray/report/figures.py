"""Figures of a report as PNG and SVG bytes: the only door to matplotlib.

Figures are made without pyplot, so there is no display, no state between two of them, and equal
data give equal bytes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from ace_ray.benchmarks.reporting import Curves, Estimate, Figure, StackedBars
from ace_ray.report.text import visible

Format = Literal["png", "svg"]
FORMATS: tuple[Format, ...] = ("png", "svg")

# Okabe and Ito's colours, which the colour-blind tell apart.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_MARKERS = "osD^vPX*"
_LEGIBLE_SHARE = 0.06
"""Segments narrower than this hold no number."""
_LONGEST_LABEL = 44

INK = "#010203"
"""The ink of a figure drawn for a page: a colour of its own, to be found and replaced."""


def draw(figure: Figure, form: Format, *, inline: bool = False) -> bytes:
    """``figure`` as the bytes of an image; ``inline``: without a background, inked with `INK`."""
    style = matplotlib.rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "ace_ray",
            # A dollar sign in a model's name must not start a formula.
            "text.parse_math": False,
        }
    )
    ink = INK if inline else "black"
    inked = matplotlib.rc_context(
        {
            "text.color": ink,
            "axes.edgecolor": ink,
            "axes.labelcolor": ink,
            "xtick.color": ink,
            "ytick.color": ink,
        }
    )
    with style, inked:
        canvas = _bars(figure) if isinstance(figure, StackedBars) else _curves(figure)
        FigureCanvasAgg(canvas)
        out = io.BytesIO()
        # Dates and versions would make equal figures differ.
        unstamped = {"Date": None} if form == "svg" else {"Software": None}
        canvas.savefig(out, format=form, dpi=160, metadata=unstamped, transparent=inline)
        return out.getvalue()


def _bars(figure: StackedBars) -> Canvas:
    canvas = Canvas(figsize=(8.0, 1.6 + 0.42 * len(figure.bars)), layout="constrained")
    axes = canvas.add_subplot()
    labels = [f"{_label(label)}  (n={sum(counts)})" for label, counts in figure.bars]
    places = range(len(labels))
    starts = [0.0] * len(labels)
    for kind, name in enumerate(figure.kinds):
        shares = [counts[kind] / sum(counts) for _, counts in figure.bars]
        colour = _COLOURS[kind % len(_COLOURS)]
        axes.barh(places, shares, left=starts, color=colour, label=name, height=0.7)
        for place, share, start in zip(places, shares, starts, strict=True):
            if share >= _LEGIBLE_SHARE:
                axes.text(
                    start + share / 2,
                    place,
                    f"{100 * share:.0f}%",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=_ink(colour),
                )
        starts = [start + share for start, share in zip(starts, shares, strict=True)]
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the invalid rows")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:.0f}%"))
    canvas.suptitle(_label(figure.title, 100), fontsize=10)
    canvas.legend(
        loc="outside lower center",
        ncols=len(figure.kinds),
        frameon=False,
        fontsize=8,
        handlelength=1.2,
        columnspacing=1.2,
    )
    return canvas


def _curves(figure: Curves) -> Canvas:
    names = list(dict.fromkeys(name for curves in figure.panels.values() for name in curves))
    columns = min(len(figure.panels), 2)
    rows = -(-len(figure.panels) // columns)
    legend_rows = -(-len(names) // columns)
    size = (4.2 * columns, 2.7 * rows + 0.5 + 0.22 * legend_rows)
    canvas = Canvas(figsize=size, layout="constrained")
    every = [p for curves in figure.panels.values() for points in curves.values() for p in points]
    places = sorted({place for place, _ in every})
    for number, (panel, curves) in enumerate(figure.panels.items(), start=1):
        axes = canvas.add_subplot(rows, columns, number)
        for name, points in curves.items():
            _curve(axes, points, names.index(name), name)
        axes.set_title(panel, fontsize=9)
        axes.set_ylim(-3, 103)
        axes.set_ylabel("accuracy (%)")
        if figure.axis == "step":
            _step_axis(axes, places)
        else:
            _size_axis(axes, places)
    canvas.suptitle(_label(figure.title, 100), fontsize=10)
    handles = {
        _label(name, 60): axes.get_legend_handles_labels()[0][list(curves).index(name)]
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


def _curve(axes: Axes, points: Sequence[tuple[float, Estimate]], number: int, name: str) -> None:
    values = [100 * found.value for _, found in points]
    below = [100 * (found.value - found.interval[0]) for _, found in points]
    above = [100 * (found.interval[1] - found.value) for _, found in points]
    axes.errorbar(
        [place for place, _ in points],
        values,
        yerr=[below, above],
        label=name,
        color=_COLOURS[number % len(_COLOURS)],
        marker=_MARKERS[number // len(_COLOURS) % len(_MARKERS)],
        markersize=5,
        linewidth=1.4,
        elinewidth=0.8,
        capsize=2,
    )


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
    axes.grid(alpha=0.25, linewidth=0.6)


def _step_axis(axes: Axes, steps: Sequence[float]) -> None:
    margin = 0.05 * (steps[-1] - steps[0]) or 1.0
    axes.set_xlim(steps[0] - margin, steps[-1] + margin)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.set_xlabel("training step")
    axes.grid(alpha=0.25, linewidth=0.6)


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"


def _label(text: str, longest: int = _LONGEST_LABEL) -> str:
    """``text`` on one line, cut in the middle. An SVG with control characters is none."""
    text = visible(" ".join(text.split()))
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text
