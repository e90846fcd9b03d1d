"""Render sections as an HTML page in one file, and draw its figures as SVG.

Values from models and manifests are untrusted text, so templates escape every value and replace
invisible characters by their names. A security policy in the page forbids requests and foreign
scripts. Only style, script and figures of this package are inserted without escaping.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ace_ray.benchmarks.results import Bars, Curves, Estimate, Table
from ace_ray.reports.excerpts import excerpt, mark_hidden

# Maximum characters of a value in a template. The filter `whole` exempts what `excerpt` has cut.
LONGEST = 4_000


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page: ``template`` renders ``view``, and ``anchor`` is its id. A section
    whose view is empty or None is left out."""

    anchor: str
    title: str
    template: str
    view: Any


def render(title: str, facts: Sequence[str], sections: Sequence[Section]) -> bytes:
    """Render a page as HTML in UTF-8. ``facts`` are short lines under the title."""
    style, script = Markup(_asset("report.css")), Markup(_asset("report.js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    content = {"title": title, "facts": facts, "sections": sections, "style": style}
    template = environment().get_template("report.html.j2")
    # `mark_hidden` has replaced lone surrogates, so the text can be encoded.
    return template.render(content, script=script, policy=policy).encode()


@cache
def _asset(name: str) -> str:
    return files("ace_ray.reports.html").joinpath(name).read_text(encoding="utf-8")


def environment(package: str = "ace_ray.reports", folder: str = "html") -> Environment:
    """Return the Jinja environment for the templates in ``folder`` of ``package``. These templates
    may import the templates of reports."""
    folders = dict.fromkeys([(package, folder), ("ace_ray.reports", "html")])
    loader = ChoiceLoader([PackageLoader(*pair) for pair in folders])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_finalize
    )
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.tests["estimate"] = lambda value: isinstance(value, Estimate)
    filters: dict[str, Callable[..., Any]] = {
        "percent": lambda share: f"{100 * share:.1f}",
        "thousands": "{:,}".format,
        "kinds": _kinds,
        "excerpt": lambda text: excerpt(text, LONGEST),
        "whole": escape,
        "figure": lambda figure: Markup(figure_svg(figure)),
    }
    environment.filters |= filters
    return environment


def _finalize(value: Any) -> Any:
    """Cut a value and replace invisible characters by their names. Jinja escapes the result."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if len(value) <= LONGEST:
        return mark_hidden(value)
    return f"{mark_hidden(value[:LONGEST])}…"


def _kinds(table: Table) -> list[str]:
    """Return the CSS class of each column: ``words`` or ``numbers``."""
    words = {
        column
        for line in table.lines
        for column, value in enumerate(line)
        if isinstance(value, str) and value and not value.lstrip("+-< ")[:1].isdigit()
    }
    return ["words" if column in words else "numbers" for column in range(len(table.header))]


# Okabe and Ito's palette, which is safe for colour-blind readers.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
# Dash patterns of the first eight series, of the next eight series, and of all others.
_DASHES = ("none", "6 3", "2 3")
_MOST_TICKS = 6
_AXES = {"step": "training step", "cost": "cost of an entry", "tokens": "tokens of an answer"}
_LINE, _BAR = 18, 26  # heights of a line of text, and of a bar with its margin
_WIDTH, _HEIGHT = 420, 250  # of a panel, with its title and axis labels
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 24, 38  # margins of a panel, for title and labels


@dataclass(frozen=True)
class _Scale:
    """Maps values from ``low`` to ``high`` to positions from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = map(math.log if self.log else float, (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def _curves_svg(figure: Curves) -> str:
    names = list(dict.fromkeys(name for series in figure.panels.values() for name in series))
    columns = min(len(figure.panels), 2)
    rows = -(-len(figure.panels) // columns)
    below = _LINE + rows * _HEIGHT
    xs = sorted({x for s in figure.panels.values() for points in s.values() for x, _ in points})
    parts: list[str] = []
    for number, (title, series) in enumerate(figure.panels.items()):
        left, top = number % columns * _WIDTH, _LINE + number // columns * _HEIGHT
        across, ticks = _axis(figure, xs, left)
        up = _Scale(-3, 103, top + _HEIGHT - _BOTTOM, top + _TOP)
        parts.append(_text(left + _WIDTH / 2, top + 16, _shorten(title)))
        by = _AXES.get(figure.axis, figure.axis)
        parts += _frame(across, up, ticks, _round_ticks(100), f"accuracy (%) by {by}")
        for name, points in series.items():
            parts += _curve(points, name, names.index(name), across, up)
            if figure.axis in ("cost", "tokens"):
                ((x, share),) = points
                side, anchor = (8, "start") if across(x) < left + _WIDTH / 2 else (-8, "end")
                y = up(100 * share.value) + 4
                parts.append(_text(across(x) + side, y, _shorten(name, 24), anchor=anchor))
    return _svg(figure.title, parts, names, columns, below)


@dataclass(frozen=True, slots=True)
class Lines:
    """A figure with lines: names mapped to (x, y) points, from 0. ``across`` is the unit of x."""

    name: str
    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    across: str


def _lines_svg(figure: Lines) -> str:
    every = [point for points in figure.lines.values() for point in points]
    width, below = 2 * _WIDTH, _LINE + _HEIGHT
    last, peak = (max(*values, 1e-6) for values in zip(*every, strict=True))
    across = _Scale(0.0, last, _LEFT, width - _RIGHT)
    up = _Scale(0.0, peak, below - _BOTTOM, _LINE + _TOP)
    parts = _frame(across, up, _round_ticks(last), _round_ticks(peak), figure.across)
    for number, points in enumerate(figure.lines.values()):
        parts.append(_polyline([(across(x), up(y)) for x, y in points], number))
    return _svg(figure.title, parts, list(figure.lines), 2, below)


def _bars_svg(figure: Bars) -> str:
    """Each bar shows the shares of the kinds. Kinds without a colour are drawn together."""
    colours = len(_COLOURS)
    together = len(figure.kinds) > colours
    names = [*figure.kinds[: colours - 1], "other kinds"] if together else list(figure.kinds)
    width, start = 2 * _WIDTH, 4 * _LEFT
    parts: list[str] = []
    longest = max(1, *map(sum, figure.bars.values()))
    for number, (label, counts) in enumerate(figure.bars.items()):
        top, total = _LINE + 8 + number * _BAR, max(1, sum(counts))
        drawn = [*counts[: colours - 1], sum(counts[colours - 1 :])] if together else counts
        across = _Scale(0.0, longest if figure.by_count else total, start, width - _LEFT)
        parts.append(_text(start - 6, top + 13, _shorten(label, 28), anchor="end"))
        parts.append(_text(across(sum(counts)) + 6, top + 13, f"{sum(counts):,}", anchor="start"))
        offset = 0
        for colour, kind, count in zip(_COLOURS, names, drawn, strict=False):
            x, share = across(offset), f"{label}, {kind}: {count:,} ({100 * count / total:.1f} %)"
            parts.append(
                f'<rect x="{x:.1f}" y="{top}" width="{across(offset + count) - x:.1f}" '
                f'height="{_BAR - 8}" fill="{colour}"><title>{html.escape(_shorten(share, 120))}'
                "</title></rect>"
            )
            offset += count
    return _svg(figure.title, parts, names, 2, _LINE + 8 + len(figure.bars) * _BAR)


Figure = Curves | Bars | Lines


def figure_svg(figure: Figure) -> str:
    """Return ``figure`` as one ``<svg>`` element in the colour of the surrounding text."""
    if isinstance(figure, Curves):
        return _curves_svg(figure)
    return _bars_svg(figure) if isinstance(figure, Bars) else _lines_svg(figure)


def _svg(title: str, parts: Sequence[str], names: Sequence[str], columns: int, below: float) -> str:
    """Add the title, and the legend of ``names`` at ``below``. ``columns``: panels across."""
    width = columns * _WIDTH
    parts = [_text(width / 2, 14, _shorten(title, 100), size=12), *parts]
    for number, name in enumerate(names):
        x = 10 + number % columns * width / columns
        y = below + 12 + number // columns * _LINE
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<rect x="{x:.1f}" y="{y - 9}" width="14" height="9" fill="{colour}"/>')
        parts.append(_text(x + 20, y, _shorten(name, 60), anchor="start"))
    height = below + _LINE * -(-len(names) // columns) + 8
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" fill="currentColor" '
        f'aria-label="{html.escape(_shorten(title, 300))}">{"".join(parts)}</svg>'
    )


def _round_ticks(high: float) -> list[tuple[float, str]]:
    """Return round values from 0 to ``high`` with their labels."""
    power = 10.0 ** math.floor(math.log10(high / _MOST_TICKS))
    step = next(n * power for n in (1, 2, 5, 10) if n * power * _MOST_TICKS >= high)
    return [(step * n, f"{step * n:,.6g}") for n in range(int(high / step) + 1)]


_Ticks = Sequence[tuple[float, str]]


def _axis(figure: Curves, xs: Sequence[float], left: float) -> tuple[_Scale, _Ticks]:
    """Return the scale of x in a panel at ``left``, and its ticks with their labels."""
    start, end = left + _LEFT, left + _WIDTH - _RIGHT
    first, last = xs[0], xs[-1]
    if figure.axis in ("cost", "tokens"):
        return _Scale(0.0, 1.1 * last, start, end), _round_ticks(last)
    if figure.axis == "parameters":
        # Ticks are at the model sizes, not at powers of ten. Each needs a tenth of the width.
        min_ratio = (1.96 * last / first) ** 0.1
        sizes: list[float] = []
        for size in xs:
            if not sizes or size / sizes[-1] >= min_ratio:
                sizes.append(size)
        ticks = [(b, f"{b:.3g}B" if b >= 1 else f"{1e3 * b:.3g}M") for b in sizes]
        return _Scale(first / 1.4, last * 1.4, start, end, log=True), ticks
    # Count from the end, so that the last checkpoint always has a label.
    labelled = xs[::-1][:: -(-len(xs) // _MOST_TICKS)][::-1]
    margin = (last - first) / 20 or 1.0
    scale = _Scale(first - margin, last + margin, start, end)
    return scale, [(x, f"{x:,.0f}") for x in labelled]


def _frame(across: _Scale, up: _Scale, x_ticks: _Ticks, y_ticks: _Ticks, label: str) -> list[str]:
    parts = []
    for level, text in y_ticks:
        y = up(level)
        parts.append(_line(across.start, y, across.end, y, opacity=0.2))
        parts.append(_text(across.start - 5, y + 4, text, anchor="end"))
    low = up.start
    parts.append(_line(across.start, low, across.end, low))
    parts.append(_line(across.start, low, across.start, up.end))
    for value, text in x_ticks:
        x = across(value)
        parts.append(_line(x, low, x, low + 4))
        parts.append(_text(x, low + 16, text))
    parts.append(_text((across.start + across.end) / 2, low + 31, label))
    return parts


def _curve(
    points: Sequence[tuple[float, Estimate]], name: str, number: int, across: _Scale, up: _Scale
) -> list[str]:
    """Draw points with their intervals, joined by lines. Partial estimates have hollow points."""
    colour = _COLOURS[number % len(_COLOURS)]
    parts = [_polyline([(across(x), up(100 * share.value)) for x, share in points], number)]
    for x, share in points:
        at, y = across(x), up(100 * share.value)
        low, high = share.interval
        tooltip = f"{name}, {x:g}: {100 * share.value:.1f}"
        fill = "none" if share.partial else colour
        parts.append(_line(at, up(100 * low), at, up(100 * high), colour=colour))
        parts.append(
            f'<circle cx="{at:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{colour}">'
            f"<title>{html.escape(_shorten(tooltip, 80))}</title></circle>"
        )
    return parts


def _polyline(points: Sequence[tuple[float, float]], number: int) -> str:
    colour = _COLOURS[number % len(_COLOURS)]
    dash = _DASHES[min(number // len(_COLOURS), len(_DASHES) - 1)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-dasharray="{dash}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">'
        f"{html.escape(text)}</text>"
    )


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str = "currentColor", opacity: float = 1.0
) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-opacity="{opacity:g}"/>'
    )


def _shorten(text: str, longest: int = 44) -> str:
    """Return ``text`` on one line, shortened in the middle."""
    text = mark_hidden(" ".join(text.split()))
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text
