"""The sections on how the runs came about: all that moves a score, and what a sweep took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ace_ray.benchmarks.conditions import flattened
from ace_ray.reports.content import Content
from ace_ray.reports.early import decisions_table
from ace_ray.reports.html.page import Section
from ace_ray.reports.runs import Run
from ace_ray.reports.sweeps import PARTS, ledger_table, seconds_of
from ace_ray.reports.text import shown
from ace_ray.sweeps.ledger import CostRecord

_MOVES_SCORES = ("identity", "model", "entries", "chat_template_sha256", "engine_args", "versions")
_LINES = 400
_CHARACTERS = 300
"""Of one value: a fake engine's script, for one, is as long as the answers of a run."""


def provenance(content: Content) -> Section:
    """What ``run.json`` says, run by run."""
    view = [_provenance(run) for run in content.runs]
    if content.sweep is not None:
        sweep = content.sweep
        facts = [_facts("Manifest of the sweep", sweep.manifest.model_dump(mode="json").items())]
        label = f"Sweep {sweep.manifest.sweep_id}"
        view.insert(0, {"label": label, "uri": sweep.uri, "facts": facts})
    return Section("provenance", "Provenance", "provenance.html.j2", view)


def _provenance(run: Run) -> dict[str, Any]:
    manifest = run.manifest.model_dump(mode="json")
    moving = [(key, manifest[key]) for key in _MOVES_SCORES if key in manifest]
    others = [(key, value) for key, value in manifest.items() if key not in _MOVES_SCORES]
    facts = [_facts("What moves a score", moving), _facts("Configuration and machine", others)]
    return {"label": run.label, "uri": run.uri, "facts": facts}


def _facts(title: str, items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Dotted keys of the manifest with their JSON values, ``left_out`` more than are shown."""
    flat = flattened(dict(items))
    lines = [
        (shown(key, _CHARACTERS), shown(value, _CHARACTERS))
        for key, value in list(flat.items())[:_LINES]
    ]
    return {"title": title, "lines": lines, "left_out": max(0, len(flat) - _LINES)}


def early(content: Content) -> Section | None:
    """What was decided before all rows were in; None where nothing was compared."""
    if not content.early:
        return None
    return Section("early", "Early decisions", "early.html.j2", decisions_table(content.early))


def ledger(content: Content) -> Section | None:
    """What a sweep took; None for single runs, whose device time is not added up."""
    if content.sweep is None:
        return None
    lines = content.sweep.lines
    longest = max((sum(seconds_of(line).values()) for line in lines), default=0.0)
    view = {
        "bars": [_bar(line, longest) for line in lines if seconds_of(line)] if longest else [],
        "parts": PARTS,
        "table": ledger_table(content.sweep),
        "notes": [(line.label, line.note) for line in lines if line.note],
    }
    return Section("ledger", "Ledger", "ledger.html.j2", view)


def _bar(line: CostRecord, longest: float) -> dict[str, Any]:
    """The seconds of a run by part, as shares of the longest run's: (part, from, share)."""
    start, parts = 0.0, []
    for part, seconds in seconds_of(line).items():
        parts.append((part, start / longest, seconds / longest))
        start += seconds
    return {"label": line.label, "total_s": start, "parts": parts}
