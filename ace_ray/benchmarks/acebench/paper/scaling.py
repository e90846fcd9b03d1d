"""Figure 7 of the paper: accuracy against model size."""

from __future__ import annotations

from collections.abc import Sequence

from ace_ray.benchmarks.acebench.paper.cells import aggregate, standard
from ace_ray.benchmarks.acebench.scoring.aggregates import PAPER_COLUMNS
from ace_ray.benchmarks.results import Curves, ReportedRun
from ace_ray.benchmarks.sizes import curves_by_size, size_of

_PANELS = {"normal": "Normal", **{k: PAPER_COLUMNS[k] for k in ("special", "agent", "overall")}}


def figure7(runs: Sequence[ReportedRun], rules: str) -> tuple[Curves | None, list[str]]:
    """Curves per family over the sizes, or None; and where the sizes come from.

    The languages are those that a run holds.
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
    title = f"Accuracy against model size ({rules} rules)"
    panels = {
        panel: lambda run, column=column: aggregate(run, run.summary["combined"], column, rules)
        for column, panel in _PANELS.items()
    }
    curves = curves_by_size(shown, panels, "figure7", title)
    missing = [panel for panel in panels if curves is None or panel not in curves.panels]
    if missing:
        notes.append(f"Figure 7 has no panel for {', '.join(missing)}: N/A in every run")
    return curves, notes
