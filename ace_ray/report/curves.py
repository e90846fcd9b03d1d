"""Curves of a comparison: scores against training steps, and against model sizes with a law."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ace_ray.benchmarks.reporting import BandPoint, Curves, Estimate
from ace_ray.benchmarks.sizes import family_of, size_of
from ace_ray.report.contenders import Contender, reported_as
from ace_ray.report.fits import Law, law_of
from ace_ray.report.lines import Side
from ace_ray.report.scores import score_of, shown_groups

Place = tuple[str, float]
"""(series, x) of a run."""
Panels = dict[str, dict[str, list[tuple[float, Estimate]]]]


@dataclass(frozen=True)
class Drawn:
    """A figure, the laws in it by (group, series), and what keeps others from being drawn."""

    figure: Curves | None = None
    laws: Mapping[tuple[str, str], Law] = field(default_factory=dict)
    notes: Sequence[str] = ()


def step_curves(side: Side, contenders: Sequence[Contender], rules: str) -> Drawn:
    """Accuracy against training step; no figure unless two steps of one training are there."""
    places = {c.label: (c.series, float(c.step)) for c in contenders if c.step is not None}
    if not _two_in_a_series(places.values()):
        return Drawn()
    title = f"{side.benchmark}: accuracy against training step ({rules} rules)"
    panels = _panels(side, places.get, rules)
    return Drawn(Curves(f"steps-{side.benchmark}-{rules}", title, panels, axis="step"))


def size_curves(side: Side, contenders: Sequence[Contender], rules: str) -> Drawn:
    """Accuracy against parameters, by family, with a law through three sizes or more."""
    places: dict[str, Place] = {}
    for contender, reported in zip(
        contenders, reported_as(contenders, side.benchmark), strict=True
    ):
        if (size := size_of(reported)) is not None:
            places[contender.label] = (family_of(reported), size.billions)
    if not _two_in_a_series(places.values()):
        return Drawn()
    panels = _panels(side, places.get, rules)
    laws: dict[tuple[str, str], Law] = {}
    bands: dict[str, dict[str, list[BandPoint]]] = {}
    notes = []
    for group, curves in panels.items():
        for series, points in curves.items():
            law = law_of(points)
            if isinstance(law, str):
                notes.append(f"no law of {series} on {group} ({rules} rules): {law}")
            else:
                laws[group, series] = law
                bands.setdefault(group, {})[series] = law.band()
    title = f"{side.benchmark}: accuracy against model size ({rules} rules)"
    name = f"sizes-{side.benchmark}-{rules}"
    return Drawn(Curves(name, title, panels, bands=bands), laws, notes)


def _two_in_a_series(places: Iterable[Place]) -> bool:
    found: dict[str, set[float]] = {}
    for series, x in places:
        found.setdefault(series, set()).add(x)
    return any(len(xs) > 1 for xs in found.values())


def _panels(side: Side, place: Callable[[str], Place | None], rules: str) -> Panels:
    """Group -> series -> points by x, of the runs that ``place`` knows by label."""
    panels: Panels = {}
    for group in shown_groups(side):
        for number, label in enumerate(side.labels):
            where, found = place(label), score_of(side, number, group, rules)
            if where is not None and found is not None:
                series, x = where
                panels.setdefault(group.name, {}).setdefault(series, []).append((x, found))
    for curves in panels.values():
        for points in curves.values():
            points.sort(key=lambda point: point[0])
    return panels
