"""Table 6 of the paper: the same model with longer and shorter prompts (its appendix D.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ace_ray.benchmarks.acebench.paper.cells import aggregate, named
from ace_ray.benchmarks.acebench.prompts import VARIANTS
from ace_ray.benchmarks.conditions import marked
from ace_ray.benchmarks.results import ReportedRun, Table, Value
from ace_ray.records import canonical_json

_OF_THE_VARIANT = ("variant", "prompts", "prompts_sha256")
"""Conditions that a variant changes. The shorter texts are ace_ray's own, also where the standard
ones are official, so the prompts' source changes with it."""


def table6(runs: Sequence[ReportedRun], rules: str) -> Table:
    """English normal accuracy by prompt variant, from runs that differ in nothing else."""
    lines: list[list[Value]] = []
    notes: list[str] = []
    missing: dict[str, list[str]] = {}
    # A run that names none of the variants has no place here.
    for found in filter(None, _series(runs)):
        members = list(found.values())
        if lacks := ", ".join(variant for variant in VARIANTS if variant not in found):
            missing.setdefault(lacks, []).append(members[0].label)
        if len(members) == 1:
            continue
        incomplete = any(run.incomplete for run in members)
        cells = [_normal(found.get(variant), rules) for variant in VARIANTS]
        lines.append([members[0].model + ("*" if incomplete else ""), *cells])
        taken = ", ".join(
            f"{variant} from {run.label} ({named(run, 'prompts')} prompts)"
            for variant, run in found.items()
        )
        notes.append(f"{members[0].model}: {taken}")
        notes += [line for line in marked(members)[1] if line.startswith("*")]
    return Table(
        name="table6",
        title="Table 6: accuracy by prompt variant, English Normal data (%)",
        header=["Model", *(variant.capitalize() for variant in VARIANTS)],
        lines=lines,
        notes=[
            *notes,
            *(
                f"missing: runs of the variants {variants} that differ in nothing else, model and "
                f"engine arguments included, from {', '.join(labels)}"
                for variants, labels in missing.items()
            ),
        ],
    )


def _series(runs: Sequence[ReportedRun]) -> list[dict[str, ReportedRun]]:
    """Runs by variant that are otherwise alike; a second run of a variant opens a series."""
    alike: dict[str, list[dict[str, ReportedRun]]] = {}
    for run in runs:
        series = alike.setdefault(_key(run), [])
        variant = named(run, "variant")
        room: dict[str, ReportedRun] | None = next((s for s in series if variant not in s), None)
        if room is None:
            room = {}
            series.append(room)
        room[variant] = run
    return [
        {variant: found[variant] for variant in VARIANTS if variant in found}
        for series in alike.values()
        for found in series
    ]


def _key(run: ReportedRun) -> str:
    rest: Mapping[str, str] = {k: v for k, v in run.conditions.items() if k not in _OF_THE_VARIANT}
    return canonical_json([run.candidate, rest])


def _normal(run: ReportedRun | None, rules: str) -> Value:
    if run is None:
        return None
    return aggregate(run, run.summary["languages"].get("en"), "normal", rules)
