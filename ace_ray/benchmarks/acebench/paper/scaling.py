"""Figure 7 of the paper: accuracy against model size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.acebench.paper.cells import aggregate, standard
from ace_ray.benchmarks.acebench.scoring.aggregates import PAPER_COLUMNS
from ace_ray.benchmarks.conditions import comparable_sets
from ace_ray.benchmarks.reporting import Curves, Estimate, ReportedRun

_PANELS = {"normal": "Normal", **{k: PAPER_COLUMNS[k] for k in ("special", "agent", "overall")}}
# 7B, 1.5b, 135M, 8x7B; not the 5B of 1.5B, nor the A3B of 30B-A3B.
_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([BbMm])(?![A-Za-z0-9])"
)


@dataclass(frozen=True, slots=True)
class Size:
    """Billions of parameters, and where the number is from."""

    billions: float
    source: str


def size_of(run: ReportedRun) -> Size | None:
    """The manifest's number of parameters, else the size in the model's name, else None.

    A mixture named 8x7B counts 56: its experts share layers, so it is smaller than that.
    """
    if run.parameters is not None:
        return Size(run.parameters / 1e9, "the manifest's number of parameters")
    match = _SIZE.search(run.model)
    if match is None:
        return None
    experts, number, unit = match.groups()
    billions = int(experts or 1) * float(number) * (1.0 if unit in "bB" else 1e-3)
    return Size(billions, "the model's name") if billions else None


def family_of(run: ReportedRun) -> str:
    """The model's name without its size: models of one family make one curve."""
    return re.sub(r"([-_ ])[-_ ]+", r"\1", _SIZE.sub("", run.model, count=1)).strip("-_ ")


def figure7(runs: Sequence[ReportedRun], rules: str) -> tuple[Curves | None, list[str]]:
    """Curves per family over the sizes, or None; and where the sizes come from.

    Runs that do not compare never share a curve, nor do complete and incomplete ones. The
    languages are those that a run holds.
    """
    shown = standard(runs)
    sizes = [size_of(run) for run in shown]
    origins: dict[str, list[str]] = {}
    for run, size in zip(shown, sizes, strict=True):
        origin = f"from {size.source}" if size else "unknown, not drawn"
        known = f"{run.label} {size.billions:g}B" if size else run.label
        origins.setdefault(origin, []).append(known)
    notes = [f"Figure 7: sizes {origin}: {', '.join(who)}" for origin, who in origins.items()]
    if len({size.billions for size in sizes if size}) < 2:
        notes.append("Figure 7 is not drawn: it needs runs of models of at least two known sizes")
        return None, notes
    sets = comparable_sets(shown)
    several = len(set(sets)) > 1
    panels: dict[str, dict[str, list[tuple[float, Estimate]]]] = {}
    for run, size, number in zip(shown, sizes, sets, strict=True):
        if size is None:
            continue
        mark = "*" if run.incomplete else ""
        series = f"{family_of(run)}{mark}{f' [{number}]' if several else ''}"
        for column, panel in _PANELS.items():
            found = aggregate(run, run.summary["combined"], column, rules)
            if found is not None:
                curves = panels.setdefault(panel, {})
                curves.setdefault(series, []).append((size.billions, found))
    missing = [panel for panel in _PANELS.values() if panel not in panels]
    if missing:
        notes.append(f"Figure 7 has no panel for {', '.join(missing)}: N/A in every run")
    if not panels:
        return None, notes
    for curves in panels.values():
        for points in curves.values():
            points.sort(key=lambda point: point[0])
    ordered = {panel: panels[panel] for panel in _PANELS.values() if panel in panels}
    title = f"Accuracy against model size ({rules} rules)"
    return Curves(name="figure7", title=title, panels=ordered), notes
