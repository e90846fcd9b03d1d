"""Figure 7 of the paper: accuracy against model size."""

from __future__ import annotations

from collections.abc import Sequence

from ace_ray.benchmarks.acebench.paper.cells import aggregate, standard
from ace_ray.benchmarks.acebench.scoring.aggregates import PAPER_COLUMNS
from ace_ray.benchmarks.conditions import comparable_sets
from ace_ray.benchmarks.results import Curves, Estimate, ReportedRun
from ace_ray.benchmarks.sizes import family_of, size_of

_PANELS = {"normal": "Normal", **{k: PAPER_COLUMNS[k] for k in ("special", "agent", "overall")}}


def figure7(runs: Sequence[ReportedRun], rules: str) -> tuple[Curves | None, list[str]]:
    """Curves per family over the sizes, or None; and where the sizes come from.

    Runs that do not compare never share a curve, nor do complete and incomplete ones. The
    languages are those that a run holds.
    """
    shown = standard(runs)
    sizes = [size_of(run) for run in shown]
    origins: dict[str, list[str]] = {}
    for run, size in zip(shown, sizes, strict=True):
        none = "unknown, not drawn" if run.step is None else "of checkpoints, not drawn"
        origin = f"from {size.source}" if size else none
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
