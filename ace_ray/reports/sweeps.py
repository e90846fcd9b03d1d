"""Read sweeps for a report, and format the ledger as a table.

The ledger (``ledger.json``, docs/sweeps.md) has a line with state, device time and cost per model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from ace_ray.benchmarks.results import Table, Value
from ace_ray.config.schema import validate_tree
from ace_ray.errors import UserError
from ace_ray.pipeline.summary import costs
from ace_ray.reports.early import EarlyDecision, early_decisions
from ace_ray.reports.runs import ScoredRun
from ace_ray.reports.table import number
from ace_ray.storage.object_store import Store
from ace_ray.storage.stored import MANIFEST, StoredRecord
from ace_ray.sweep.config import SWEEP
from ace_ray.sweep.ledger import CostRecord, ledger_lines
from ace_ray.util.safe_loading import json_object
from ace_ray.util.sanitizing import one_line

# Parts of device time, with their column titles.
PARTS = dict(load="Load", warm_up="Warm-up", generation="Generation", tool="Tools", idle="Idle")
_WHY = {"pending": "not evaluated yet", "incomplete": "rows are pending; run sweep again"}


class SweepManifest(StoredRecord):
    """Content of ``sweep.json``. Unknown keys are allowed: a newer version may write more."""

    schema_version: Literal[1]
    sweep_id: str
    created_at: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OmittedModel:
    """A model of a sweep that is not in the report, with the reason."""

    label: str
    source: str
    state: str
    why: str

    def __str__(self) -> str:
        return f"{self.label}: {self.state}: {self.why} ({self.source})"


@dataclass(frozen=True)
class Sweep:
    """A sweep. ``runs`` are the complete runs, with the labels of the ledger."""

    uri: str
    manifest: SweepManifest
    lines: Sequence[CostRecord]
    runs: Sequence[ScoredRun]
    left_out: Sequence[OmittedModel]
    early: Sequence[EarlyDecision] = ()  # on runs that have begun

    @property
    def reference(self) -> str | None:
        """Label of the run with which all others are compared, or None."""
        return one_line(str(self.manifest.config.get("reference") or "")) or None


def load_sweep(store: Store) -> Sweep | None:
    """Read the sweep in ``store``. Returns None if ``store`` is not a sweep.

    Complete runs that cannot be read are listed with the reason in ``left_out``, like failed runs.
    Raises `UserError` when a file of the sweep itself is missing or damaged."""
    if (sweep_parts := read_sweep(store)) is None:
        return None
    manifest, lines = sweep_parts
    runs: list[ScoredRun] = []
    left_out: list[OmittedModel] = []
    early: list[EarlyDecision] = []
    # With the run id or source if two lines share a label.
    shared = Counter(line.label for line in lines)
    labels = [
        f"{line.label} ({line.run_id or line.source})" if shared[line.label] > 1 else line.label
        for line in lines
    ]
    by_id = {line.run_id: label for line, label in zip(lines, labels, strict=True) if line.run_id}
    for line, label in zip(lines, labels, strict=True):
        why = line.note or _WHY.get(line.state, "the ledger gives no reason")
        if line.state in ("complete", "decided", "incomplete") and line.run_id:
            try:
                run = ScoredRun(store.child(line.run_id))
                run.label = one_line(label)
                run.across = ("sampling",)  # only the config's models can differ in it
                early += early_decisions([run], by_id)
                if line.state == "complete":
                    runs.append(_add_ledger_facts(run, line))
                    continue
            except UserError as error:
                why = str(error) if line.state == "complete" else why
        left_out.append(OmittedModel(label, line.source, line.state, why))
    return Sweep(store.root, manifest, lines, runs, left_out, early)


def _add_ledger_facts(run: ScoredRun, line: CostRecord) -> ScoredRun:
    """Return ``run`` with the facts that the ledger of its sweep has about it."""
    run.step = line.step
    # The price may have changed after the run.
    share = run.totals["solved"] / max(1, run.totals["scored"])
    run.totals["cost"] = costs(line.cost, run.totals["entries"], share)
    path = PurePosixPath(line.source)
    run.training = "" if line.step is None else one_line(path.parent.name or str(path))
    # The manifest of a run may lack the size of its model.
    run.manifest.model.parameters = run.manifest.model.parameters or line.parameters
    return run


def read_sweep(store: Store) -> tuple[SweepManifest, list[CostRecord]] | None:
    """Read the manifest and the ledger of the sweep in ``store``; None if it is not a sweep."""
    content = store.get(SWEEP)
    if content is None:
        return None
    location = f"{store.root}/{SWEEP}"
    manifest = validate_tree(SweepManifest, json_object(content, location), where=location)
    return manifest, ledger_lines(store)


def run_folders(store: Store) -> list[str] | None:
    """Return the folders of a sweep's runs that have started; None if ``store`` is not a sweep.
    Raises `UserError` when the ledger is damaged."""
    if store.get(SWEEP) is None:
        return None
    run_ids = [line.run_id for line in ledger_lines(store) if line.run_id]
    return [name for name in run_ids if store.get(f"{name}/{MANIFEST}") is not None]


def seconds_of(line: CostRecord) -> dict[str, float]:
    """Return the device seconds of each part in `PARTS`; {} if they are unknown."""
    return {part: line.seconds.get(part, 0.0) for part in PARTS} if line.seconds else {}


def ledger_table(sweep: Sweep) -> Table:
    """Return a table with a line per model, in the ledger's order, and a line of sums."""
    header = ["Model", "Step", "State", "Engine", "Devices"]
    header += [f"{title} (s)" for title in PARTS.values()]
    header += ["Total (s)", "Entries", "Prompt tokens", "Completion tokens", "Cost"]
    header += ["Per 1,000 entries (s)", "Per 1,000 entries (cost)"]
    notes = [
        "device seconds: time of each reserved device, counted once",
        "cost: device time times the price per hour in the sweep's config; N/A without a price",
    ]
    lines = [*(_line(line) for line in sweep.lines), _sums(sweep)]
    return Table("ledger", "Ledger: device seconds, tokens and cost", header, lines, notes)


def _line(line: CostRecord) -> list[Value]:
    seconds = seconds_of(line)
    return [
        *(line.label, line.step, line.state, line.engine or None),
        f"{line.devices:g} {line.device}" if line.devices else None,
        *(number(seconds.get(part), ".1f") for part in PARTS),
        number(sum(seconds.values()) if seconds else None, ".1f"),
        line.entries if seconds else None,
        *(line.tokens.get(kind) for kind in ("prompt", "completion")),
        number(line.cost, ".4f"),
        number(line.per_1000.get("device_s"), ".1f"),
        number(line.per_1000.get("cost"), ".4f"),
    ]


def _sums(sweep: Sweep) -> list[Value]:
    seconds = [spent for line in sweep.lines if (spent := seconds_of(line))]
    part_sums = [sum(spent[part] for spent in seconds) for part in PARTS]
    entries = sum(line.entries for line in sweep.lines)
    priced = all(line.cost is not None for line in sweep.lines if line.seconds)
    cost = sum(line.cost or 0.0 for line in sweep.lines) if seconds and priced else None
    totals = {"device_s": sum(part_sums), "cost": cost}
    record = CostRecord("All", None, "", "", seconds=dict(zip(PARTS, part_sums, strict=True)))
    record.entries, record.cost = entries, cost
    for kind in ("prompt", "completion"):
        counts = [line.tokens.get(kind) for line in sweep.lines if line.tokens]
        record.tokens[kind] = None if None in counts else sum(filter(None, counts))
    if entries:
        record.per_1000 = {k: n if n is None else 1000 * n / entries for k, n in totals.items()}
    return ["All", "", "", "", "", *_line(record)[5:]]
