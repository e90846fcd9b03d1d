"""A line of a comparison in plain words, and its numbers as texts. Shares are in points of 100."""

from __future__ import annotations

from ace_ray.report.lines import Line, Question
from ace_ray.report.render import NOT_AVAILABLE
from ace_ray.report.significance import ALPHA
from ace_ray.stats import Interval


def sentence(line: Line) -> str:
    """``A is better than B on Special: +4.1 points, 95 % CI 1.2..7.0, Holm p 0.01``, or that no
    difference is shown, and which one would be."""
    asked, found = line.asked, line.found
    facts = (
        f"{signed(found.value)} points, 95 % CI {interval_text(found.interval)}, "
        f"Holm p {p_text(line.holm)}"
    )
    if line.shown:
        word = "better" if found.value > 0 else "worse"
        text = f"{asked.other} is {word} than {asked.base} on {place(asked)}: {facts}"
    else:
        text = (
            f"no difference shown between {asked.other} and {asked.base} on {place(asked)}: "
            f"{facts}; {_power(line)}"
        )
    if line.under_noise and line.noise_floor is not None:
        text += f"; identical runs differ by up to {points(line.noise_floor)} points"
    return text


def _power(line: Line) -> str:
    if line.detectable is None:
        return f"this n ({line.found.n}) would show none of any size"
    return f"this n would show one of at least {points(line.detectable)} points"


def place(asked: Question) -> str:
    """The group, its language, and the measure where it is not accuracy."""
    where = f"{asked.group.name} ({asked.group.language})" if asked.group.language else ""
    where = where or asked.group.name
    return where if asked.metric == "accuracy" else f"{where}, process accuracy"


def points(share: float) -> str:
    text = f"{100 * share:.1f}"
    return "0.0" if text == "-0.0" else text


def signed(share: float) -> str:
    """`points` with a plus where it is one."""
    text = points(share)
    return f"+{text}" if float(text) > 0 else text


def interval_text(interval: Interval | None) -> str:
    if interval is None:
        return NOT_AVAILABLE
    return "..".join(points(end) for end in interval)


def p_text(p: float) -> str:
    """Two digits, more where these would put ``p`` on the other side of `ALPHA`."""
    if p < 0.0001:
        return "< 0.0001"
    short = f"{p:.2g}"
    return short if (float(short) < ALPHA) == (p < ALPHA) else f"{p:.6g}"
