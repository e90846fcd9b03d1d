"""Figures as PNG and SVG files, or as SVG elements of a page; the only importer of matplotlib.

Figures are made without pyplot, so there is no display, no state between two of them, and equal
data give equal bytes.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, NullFormatter

from ace_ray.benchmarks.results import (
    BandPoint,
    Curves,
    Estimate,
    Figure,
    Intervals,
    StackedBars,
)
from ace_ray.reports.text import visible

Format = Literal["png", "svg"]
FORMATS: tuple[Format, ...] = ("png", "svg")

# Okabe and Ito's colours, which the colour-blind tell apart.
_COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#000000",
)
_MARKERS = "osD^vPX*"
_LEGIBLE_SHARE = 0.06
"""Segments narrower than this hold no number."""
_PAGE_INK = "#010203"
"""The ink of a figure drawn for a page: a colour of its own, to be found and replaced."""
_MOST_STEPS = 6
"""Labels on an axis of steps."""
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_REFERENCE = re.compile(r"url\(#([^()]*)\)")
_DROPPED = {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}
"""Matplotlib's facts about itself, and a style that would apply to the whole page."""


def draw(figure: Figure, form: Format, *, inline: bool = False) -> bytes:
    """``figure`` as an image; ``inline``: without a background, inked with `_PAGE_INK`."""
    ink = _PAGE_INK if inline else "black"
    style = matplotlib.rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "ace_ray",
            # A dollar sign in a model's name must not start a formula.
            "text.parse_math": False,
            "text.color": ink,
            "axes.edgecolor": ink,
            "axes.labelcolor": ink,
            "xtick.color": ink,
            "ytick.color": ink,
        }
    )
    with style:
        canvas = _canvas(figure)
        FigureCanvasAgg(canvas)
        out = io.BytesIO()
        # Dates and versions would make equal figures differ.
        unstamped = {"Date": None} if form == "svg" else {"Software": None}
        canvas.savefig(out, format=form, dpi=160, metadata=unstamped, transparent=inline)
        return out.getvalue()


def _canvas(figure: Figure) -> Canvas:
    if isinstance(figure, StackedBars):
        return _bars(figure)
    return _curves(figure) if isinstance(figure, Curves) else _intervals(figure)


def _intervals(figure: Intervals) -> Canvas:
    """A point and its interval for each label and run; what is partial is not filled."""
    runs = len(figure.lines)
    height = 1.1 + len(figure.labels) * (0.22 + 0.16 * runs) + 0.2 * (runs > 1) * -(-runs // 2)
    canvas = Canvas(figsize=(8.0, height), layout="constrained")
    axes = canvas.add_subplot()
    for number, (label, shares) in enumerate(figure.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        offset = 0.7 * ((number + 0.5) / runs - 0.5)
        for place, share in enumerate(shares):
            if share is None:
                continue
            low, high = share.interval
            axes.errorbar(
                [100 * share.value],
                [place + offset],
                xerr=[[100 * (share.value - low)], [100 * (high - share.value)]],
                color=colour,
                marker=_MARKERS[number // len(_COLOURS) % len(_MARKERS)],
                markersize=5,
                markerfacecolor="none" if share.partial else colour,
                linestyle="none",
                elinewidth=1.2,
                capsize=2,
                label=_short_label(label, 60),
            )
    axes.set_yticks(range(len(figure.labels)), [_short_label(label) for label in figure.labels])
    axes.set_ylim(len(figure.labels) - 0.5, -0.5)
    axes.set_xlim(-2, 102)
    axes.set_xlabel("%")
    axes.grid(axis="x", alpha=0.25, linewidth=0.6)
    canvas.suptitle(_short_label(figure.title, 100), fontsize=10)
    if runs > 1:
        handles, names = axes.get_legend_handles_labels()
        first = dict(zip(reversed(names), reversed(handles), strict=True))
        shown = [name for name in dict.fromkeys(names)]
        canvas.legend(
            [first[name] for name in shown],
            shown,
            loc="outside lower center",
            ncols=2,
            frameon=False,
            fontsize=8,
        )
    return canvas


def _bars(figure: StackedBars) -> Canvas:
    canvas = Canvas(figsize=(8.0, 1.6 + 0.42 * len(figure.bars)), layout="constrained")
    axes = canvas.add_subplot()
    labels = [f"{_short_label(label)}  (n={sum(counts)})" for label, counts in figure.bars]
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
    canvas.suptitle(_short_label(figure.title, 100), fontsize=10)
    canvas.legend(
        loc="outside lower center",
        ncols=len(figure.kinds),
        frameon=False,
        fontsize=8,
        handlelength=1.2,
        columnspacing=1.2,
    )
    return canvas


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"


def _curves(figure: Curves) -> Canvas:
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
                _band(axes, bands[name], _COLOURS[number % len(_COLOURS)])
            _curve(axes, points, number, name, joined=name not in bands)
        axes.set_title(_short_label(panel), fontsize=9)
        axes.set_ylim(-3, 103)
        axes.set_ylabel("accuracy (%)")
        axes.grid(alpha=0.25, linewidth=0.6)
        if figure.axis == "rows":
            _difference_axis(axes, [p for points in curves.values() for p in points])
        elif figure.axis == "step":
            _step_axis(axes, places)
        else:
            _size_axis(axes, places)
    canvas.suptitle(_short_label(figure.title, 100), fontsize=10)
    handles = {
        _short_label(name, 60): axes.get_legend_handles_labels()[0][list(curves).index(name)]
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
    values = [100 * estimate.value for _, estimate in points]
    below = [100 * (estimate.value - estimate.interval[0]) for _, estimate in points]
    above = [100 * (estimate.interval[1] - estimate.value) for _, estimate in points]
    axes.errorbar(
        [x for x, _ in points],
        values,
        yerr=[below, above],
        label=name,
        color=_COLOURS[number % len(_COLOURS)],
        marker=_MARKERS[number // len(_COLOURS) % len(_MARKERS)],
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


def _difference_axis(axes: Axes, points: Sequence[tuple[float, Estimate]]) -> None:
    """Over rows; as high as the values need, since sequences begin with everything that can be."""
    values = [100 * abs(estimate.value) for _, estimate in points]
    most = min(100.0, max(10.0, 3 * max(values)))
    axes.set_ylim(-most, most)
    axes.set_xlim(left=0)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_ylabel("difference (points)")
    axes.set_xlabel("rows of the prefix")


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
    axes.set_xticks(
        ticks, [f"{size:.3g}B" if size >= 1 else f"{1e3 * size:.3g}M" for size in ticks]
    )
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)
    axes.set_xlabel("parameters")


def _short_label(text: str, longest: int = 44) -> str:
    """``text`` on one line, cut in the middle. An SVG with control characters is none."""
    text = visible(" ".join(text.split()))
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text


def inline_svg(figure: Figure, prefix: str) -> str:
    """``figure`` as one ``<svg>`` element; ``prefix`` keeps its ids apart from other figures'."""
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    root = ET.fromstring(draw(figure, "svg", inline=True))
    for parent in root.iter():
        for child in [c for c in parent if c.tag in _DROPPED]:
            parent.remove(child)
    for node in root.iter():
        for name, value in node.attrib.items():
            node.set(name, _with_prefix(name, value, prefix))
    # The page decides how wide it is.
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", figure.title)
    return ET.tostring(root, encoding="unicode").replace(_PAGE_INK, "currentColor")


def _with_prefix(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == f"{{{_XLINK}}}href" and value.startswith("#"):
        return f"#{prefix}-{value[1:]}"
    return _REFERENCE.sub(rf"url(#{prefix}-\1)", value)
