"""Sweeps read back for a report: the manifest, the ledger, and the runs that are complete.

Files, beside one run folder per model (docs/results.md)::

    sweep.json     {"schema_version": 1, "sweep_id", "created_at", "config", ...}
    ledger.json    {"schema_version": 1, "runs": [LINE, ...]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ace_ray.benchmarks.results import Table, Value
from ace_ray.bounded import json_object
from ace_ray.config import validated
from ace_ray.errors import UserError
from ace_ray.reports.early import EarlyRun, early_run
from ace_ray.reports.runs import Run, read_run
from ace_ray.run.storage.stored import MANIFEST, read_summary
from ace_ray.store import Store
from ace_ray.sweeps.config import SWEEP
from ace_ray.sweeps.ledger import LEDGER, State

PARTS = {
    "load": "Load",
    "warm_up": "Warm-up",
    "generation": "Generation",
    "tool": "Tools",
    "idle": "Idle",
}
"""What a device's seconds go to, and its column."""
_WHY = {"pending": "not evaluated yet", "incomplete": "rows are pending, sweep again"}
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_EMPTY_IS_NONE = BeforeValidator(lambda value: None if value in ("", {}) else value)
"""What a run never came to is left empty."""


class _Stored(BaseModel):
    """Other keys are no mistake: a newer version may write more."""

    model_config = ConfigDict(extra="allow")


class SweepManifest(_Stored):
    schema_version: Literal[1]
    sweep_id: str
    created_at: str
    config: dict[str, Any]


class Seconds(_Stored):
    """Device seconds: wall seconds times devices."""

    load: _Amount
    warm_up: _Amount
    generation: _Amount
    tool: _Amount
    idle: _Amount


class Tokens(_Stored):
    """Token counts; None if an endpoint gave none."""

    prompt: int | None = Field(ge=0)
    completion: int | None = Field(ge=0)


class Per1000(_Stored):
    device_s: _Amount | None
    cost: _Amount | None


class LedgerLine(_Stored):
    """What one model of a sweep became, and what it took; a refused one took nothing."""

    # The name of a folder right below the sweep's, whoever wrote the ledger; "" for none.
    run_id: str = Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    label: str
    step: int | None = None
    source: str
    state: State
    note: str = ""
    engine: Annotated[Literal["fresh", "swapped", "restarted"] | None, _EMPTY_IS_NONE] = None
    devices: _Amount = 0.0
    device: str = ""
    parameters: int | None = Field(None, ge=1)
    seconds: Annotated[Seconds | None, _EMPTY_IS_NONE] = None
    entries: int = Field(0, ge=0)
    tokens: Annotated[Tokens | None, _EMPTY_IS_NONE] = None
    cost: _Amount | None = None
    per_1000: Annotated[Per1000 | None, _EMPTY_IS_NONE] = None


class _Ledger(_Stored):
    schema_version: Literal[1]
    runs: list[LedgerLine]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A model of a sweep that is not reported on, and why."""

    label: str
    source: str
    state: str
    why: str

    def __str__(self) -> str:
        return f"{self.label}: {self.state}: {self.why} ({self.source})"


@dataclass(frozen=True)
class Sweep:
    """``runs`` are the complete ones, labelled as in the ledger; ``line_of`` by label."""

    uri: str
    manifest: SweepManifest
    lines: Sequence[LedgerLine]
    runs: Sequence[Run]
    left_out: Sequence[LeftOut]
    line_of: dict[str, LedgerLine] = field(default_factory=dict)
    early: Sequence[EarlyRun] = ()
    """What was compared, those that are complete and those that were stopped."""


def load_sweep(store: Store) -> Sweep | None:
    """The sweep in ``store``, None when there is none.

    A complete run that cannot be read is left out with the reason, like those that failed.

    Raises `UserError`: a file of the sweep itself is missing or damaged.
    """
    read = read_sweep(store)
    if read is None:
        return None
    manifest, lines = read
    runs: list[Run] = []
    left_out: list[LeftOut] = []
    line_of: dict[str, LedgerLine] = {}
    early: list[EarlyRun] = []
    labels = _labels(lines)
    known = {line.run_id: label for line, label in zip(lines, labels, strict=True) if line.run_id}
    for line, label in zip(lines, labels, strict=True):
        why = line.note or _WHY.get(line.state, "the ledger does not say why")
        if line.state in ("complete", "decided") and line.run_id:
            early += _compared(label, store.child(line.run_id), known)
        if line.state == "complete" and line.run_id:
            try:
                run = read_run(store.child(line.run_id))
            except UserError as error:
                why = str(error)
            else:
                run.label = label
                run.step = line.step
                run.training = "" if line.step is None else _training(line.source)
                # The manifest of a run may not know how large its model is.
                run.manifest.model.parameters = run.manifest.model.parameters or line.parameters
                runs.append(run)
                line_of[label] = line
                continue
        left_out.append(LeftOut(label, line.source, line.state, why))
    return Sweep(store.root, manifest, lines, runs, left_out, line_of, early)


def _compared(label: str, store: Store, labels: Mapping[str, str]) -> list[EarlyRun]:
    try:
        found = early_run(label, store, read_summary(store), labels)
    except UserError:
        return []  # the run is left out, with why
    return [found] if found is not None else []


def read_sweep(store: Store) -> tuple[SweepManifest, list[LedgerLine]] | None:
    """The manifest and the ledger's lines of the sweep in ``store``, as `load_sweep`."""
    content = store.get(SWEEP)
    if content is None:
        return None
    where = f"{store.root}/{SWEEP}"
    manifest = validated(SweepManifest, json_object(content, where), where=where)
    return manifest, _lines(store)


def run_folders(store: Store) -> list[str] | None:
    """The folders of a sweep's models that have begun, complete or not; None: ``store`` holds no
    sweep. Raises `UserError`: its ledger is damaged."""
    if store.get(SWEEP) is None:
        return None
    begun = [line.run_id for line in _lines(store) if line.run_id]
    return [name for name in begun if store.get(f"{name}/{MANIFEST}") is not None]


def _training(source: str) -> str:
    """A training run is known by the folder or prefix that its checkpoints lie in."""
    path = PurePosixPath(source)
    return path.parent.name or str(path)


def _lines(store: Store) -> list[LedgerLine]:
    where = f"{store.root}/{LEDGER}"
    content = store.get(LEDGER)
    if content is None:
        raise UserError(
            "the sweep has no ledger yet", where=where, fix="report when a run of it has ended"
        )
    lines = validated(_Ledger, json_object(content, where), where=where).runs
    ids = [line.run_id for line in lines if line.run_id]
    if twice := next((name for name in ids if ids.count(name) > 1), None):
        raise UserError(f"names run {twice!r} twice", where=where, fix="name an intact sweep")
    return lines


def _labels(lines: Sequence[LedgerLine]) -> list[str]:
    """The ledger's labels, with the run id or source where two share one."""
    labels = [line.label for line in lines]
    return [
        f"{line.label} ({line.run_id or line.source})"
        if labels.count(line.label) > 1
        else line.label
        for line in lines
    ]


def seconds_of(line: LedgerLine) -> dict[str, float]:
    """Part -> device seconds; empty for a run that took none."""
    return line.seconds.model_dump(include=set(PARTS)) if line.seconds else {}


def ledger_table(sweep: Sweep) -> Table:
    """A line per model, in the ledger's order, and one with the sums."""
    header = ["Model", "Step", "State", "Engine", "Devices"]
    header += [f"{title} (s)" for title in PARTS.values()]
    header += ["Total (s)", "Entries", "Prompt tokens", "Completion tokens", "Cost"]
    header += ["Per 1,000 entries (s)", "Per 1,000 entries (cost)"]
    return Table(
        name="ledger",
        title="Ledger: device seconds, tokens and cost",
        header=header,
        lines=[*(_line(line) for line in sweep.lines), _sums(sweep)],
        notes=[
            "device seconds: each counts once per device that was held",
            "cost: by the price per hour in the sweep's config; N/A without one",
        ],
    )


def _line(line: LedgerLine) -> list[Value]:
    seconds = seconds_of(line)
    return [
        line.label,
        line.step,
        line.state,
        line.engine,
        f"{line.devices:g} {line.device}" if line.devices else None,
        *(_amount(seconds.get(part)) for part in PARTS),
        _amount(sum(seconds.values()) if seconds else None),
        line.entries if seconds else None,
        line.tokens.prompt if line.tokens else None,
        line.tokens.completion if line.tokens else None,
        _amount(line.cost, 4),
        _amount(line.per_1000.device_s if line.per_1000 else None),
        _amount(line.per_1000.cost if line.per_1000 else None, 4),
    ]


def _sums(sweep: Sweep) -> list[Value]:
    seconds = [spent for line in sweep.lines if (spent := seconds_of(line))]
    whole = {part: sum(spent[part] for spent in seconds) for part in PARTS}
    entries = sum(line.entries for line in sweep.lines)
    priced = all(line.cost is not None for line in sweep.lines if line.seconds)
    cost = sum(line.cost or 0.0 for line in sweep.lines) if seconds and priced else None
    total = sum(whole.values())
    tokens = [line.tokens for line in sweep.lines if line.tokens]
    return [
        *("All", "", "", "", ""),
        *(_amount(value) for value in whole.values()),
        _amount(total),
        entries,
        _sum(counts.prompt for counts in tokens),
        _sum(counts.completion for counts in tokens),
        _amount(cost, 4),
        _amount(1000 * total / entries if entries else None),
        _amount(1000 * cost / entries if entries and cost is not None else None, 4),
    ]


def _amount(value: float | None, digits: int = 1) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _sum(counts: Iterable[int | None]) -> int | None:
    """None where one is not known."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))
