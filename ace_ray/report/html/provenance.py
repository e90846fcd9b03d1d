"""All that moves a score, run by run, as ``run.json`` has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.conditions import flattened
from ace_ray.report.content import Content
from ace_ray.report.html.page import Section
from ace_ray.report.runs import Run
from ace_ray.report.text import Shown, shown

_MOVES_SCORES = ("identity", "model", "entries", "chat_template_sha256", "engine_args", "versions")
_LINES = 400
_CHARACTERS = 300
"""Of one value: a fake engine's script, for one, is as long as the answers of a run."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Dotted keys of the manifest with their JSON values, ``left_out`` more than are shown."""

    title: str
    lines: Sequence[tuple[Shown, Shown]]
    left_out: int


@dataclass(frozen=True, slots=True)
class RunProvenance:
    label: str
    uri: str
    facts: Sequence[Facts]


def provenance(content: Content) -> Section:
    view = [_provenance(run) for run in content.runs]
    if content.sweep is not None:
        sweep = content.sweep
        facts = [_facts("Manifest of the sweep", sweep.manifest.model_dump(mode="json").items())]
        view.insert(0, RunProvenance(f"Sweep {sweep.manifest.sweep_id}", sweep.uri, facts))
    return Section("provenance", "Provenance", "provenance.html.j2", view)


def _provenance(run: Run) -> RunProvenance:
    manifest = run.manifest.model_dump(mode="json")
    moving = [(key, manifest[key]) for key in _MOVES_SCORES if key in manifest]
    others = [(key, value) for key, value in manifest.items() if key not in _MOVES_SCORES]
    return RunProvenance(
        run.label,
        run.uri,
        [_facts("What moves a score", moving), _facts("Configuration and machine", others)],
    )


def _facts(title: str, items: Iterable[tuple[str, Any]]) -> Facts:
    flat = flattened(dict(items))
    lines = [
        (shown(key, _CHARACTERS), shown(value, _CHARACTERS))
        for key, value in list(flat.items())[:_LINES]
    ]
    return Facts(title, lines, max(0, len(flat) - _LINES))
