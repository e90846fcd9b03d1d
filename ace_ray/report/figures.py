"""Figures of a report as PNG and SVG bytes; matplotlib is used by the figure modules only.

Figures are made without pyplot, so there is no display, no state between two of them, and equal
data give equal bytes.
"""

from __future__ import annotations

import io
from typing import Literal

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from ace_ray.benchmarks.reporting import Figure, StackedBars
from ace_ray.report.curve_figures import curves_canvas
from ace_ray.report.figure_style import COLOURS, short_label

Format = Literal["png", "svg"]
FORMATS: tuple[Format, ...] = ("png", "svg")

_LEGIBLE_SHARE = 0.06
"""Segments narrower than this hold no number."""

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
        canvas = _bars(figure) if isinstance(figure, StackedBars) else curves_canvas(figure)
        FigureCanvasAgg(canvas)
        out = io.BytesIO()
        # Dates and versions would make equal figures differ.
        unstamped = {"Date": None} if form == "svg" else {"Software": None}
        canvas.savefig(out, format=form, dpi=160, metadata=unstamped, transparent=inline)
        return out.getvalue()


def _bars(figure: StackedBars) -> Canvas:
    canvas = Canvas(figsize=(8.0, 1.6 + 0.42 * len(figure.bars)), layout="constrained")
    axes = canvas.add_subplot()
    labels = [f"{short_label(label)}  (n={sum(counts)})" for label, counts in figure.bars]
    places = range(len(labels))
    starts = [0.0] * len(labels)
    for kind, name in enumerate(figure.kinds):
        shares = [counts[kind] / sum(counts) for _, counts in figure.bars]
        colour = COLOURS[kind % len(COLOURS)]
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
    canvas.suptitle(short_label(figure.title, 100), fontsize=10)
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
