"""Read and write ``ledger.json``: state and cost of each run of a sweep."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ace_ray.config.schema import validate_tree
from ace_ray.early_stopping.looks import is_decided
from ace_ray.errors import UserError
from ace_ray.pipeline.monitoring.timing import STATES
from ace_ray.pipeline.summary import cost_of
from ace_ray.storage.object_store import Store, UnreachableStore
from ace_ray.storage.stored import SUCCESS, Summary, as_json, read_summary
from ace_ray.sweep.runs import SweepEntry
from ace_ray.util.safe_loading import json_object

LEDGER = "ledger.json"

State = Literal["complete", "decided", "incomplete", "failed", "refused", "pending"]
# Name of a run's folder in the sweep's folder, or "". Ledgers are not trusted, so it is checked.
RunId = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


@dataclass
class CostRecord:
    """The line of one run in ``ledger.json``.

    ``refused``: the checkpoint cannot be evaluated, for example because it is incomplete.
    ``failed``: the evaluation failed. ``incomplete``: the same command continues the evaluation.
    ``decided``: the evaluation stopped early, since its comparison was decided."""

    label: str
    step: int | None
    source: str
    run_id: RunId
    state: State = "pending"
    note: str = ""
    rows_left: Count = 0
    """Rows that are not scored, unless the run is complete or decided."""
    undecided: dict[str, str] = field(default_factory=dict)
    """Undecided headline of the run's comparison -> the rows that it needs, in words."""
    engine: str = ""
    """Way in which the engine loaded the weights: fresh, swapped or restarted."""
    device: str = "cpu"
    devices: Amount = 0.0
    parameters: Annotated[int, Field(ge=1)] | None = None
    seconds: dict[str, Amount] = field(default_factory=dict)
    """Device seconds by state (`ace_ray.pipeline.monitoring.timing`)."""
    pace: dict[str, Amount] = field(default_factory=dict)
    """Pace of the run's last session (`ace_ray.pipeline.monitoring.timing`)."""
    entries: Count = 0
    tokens: dict[str, Count | None] = field(default_factory=dict)
    cost: Amount | None = None
    per_1000: dict[str, Amount | None] = field(default_factory=dict)
    """``device_s`` and ``cost`` per 1,000 scored rows."""


class _Ledger(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    schema_version: Literal[1]
    runs: list[CostRecord]
    steps: list[int] = Field(default_factory=list)


def cost_record(run: SweepEntry, store: Store, price_per_hour: float | None) -> CostRecord:
    """Build the ledger line of ``run``. Its numbers come from the run's summary, if it has one."""
    line = CostRecord(run.label, run.step, run.source, run.run_id, parameters=run.parameters)
    if run.plan is None:
        line.state = "refused" if run.refused else "pending"
        line.note = run.refused or run.awaited
        return line
    summary, line.rows_left = _summary(store.child(run.run_id)), len(run.plan.rows)
    if summary is None:
        return line
    # The summary of a run that will grow declares fewer rows.
    is_whole = summary.complete and summary.declared in (None, line.rows_left)
    line.state = "complete" if is_whole else "incomplete"
    if summary.early is not None and summary.early.stopped:
        line.state = "decided"
    settled = summary.scored + summary.not_judged
    line.rows_left = line.rows_left - settled if line.state == "incomplete" else 0
    if summary.early is not None and summary.early.against is not None:
        headlines = summary.early.headlines.items()
        line.undecided = {name: h.missing_evidence for name, h in headlines if h.outcome is None}
    line.note = summary.why
    timing = summary.timing
    line.engine = timing.loads[-1].how if timing.loads else ""
    if line.engine == "restarted" and timing.engine_deaths:
        line.note = line.note or timing.engine_deaths[-1]
    line.device, line.devices = timing.device, timing.devices
    line.pace = timing.pace or {}
    line.seconds = {state: (timing.device_s or {}).get(state, 0.0) for state in STATES}
    # Summaries of earlier versions lack `entries`.
    line.entries, line.tokens = summary.entries or summary.scored, summary.tokens.model_dump()
    total = sum(line.seconds.values())
    facts = timing.model_dump() | {"price_per_hour": price_per_hour}
    if (cost := cost_of(facts)) is not None:
        line.cost = round(cost, 4)
    if line.entries:
        by = 1000 / line.entries
        cost = None if line.cost is None else round(by * line.cost, 4)
        line.per_1000 = {"device_s": round(by * total, 2), "cost": cost}
    return line


def _summary(store: Store) -> Summary | None:
    """Return the run's summary; None if it is missing or damaged. The run writes it again."""
    try:
        summary = read_summary(store)
    except UnreachableStore:
        raise
    except UserError:
        return None
    needed = {"complete", "why", "scored", "tokens", "timing"}
    return summary if summary and needed <= summary.model_fields_set else None


def write_ledger(store: Store, lines: Sequence[CostRecord], steps: Collection[int] = ()) -> None:
    """Write the ledger. ``steps`` are all checkpoint steps found so far: a resumed sweep needs them
    to evaluate each n-th step (option ``every``)."""
    tree = {"schema_version": 1, "runs": [asdict(line) for line in lines], "steps": sorted(steps)}
    store.put(LEDGER, as_json(tree))


def read_ledger(store: Store) -> tuple[list[CostRecord], set[int]]:
    """Read the lines and steps that earlier executions wrote. A missing or damaged ledger counts as
    empty, since it is built again from the runs."""
    content = store.get(LEDGER) or b""
    try:
        ledger = validate_tree(_Ledger, json_object(content, LEDGER), where=LEDGER)
    except UserError:
        return [], set()
    return ledger.runs, set(ledger.steps)


def ledger_lines(store: Store) -> list[CostRecord]:
    """Read the ledger of a sweep. Raises `UserError` if it is missing or damaged."""
    location = f"{store.root}/{LEDGER}"
    content = store.get(LEDGER)
    if content is None:
        raise UserError(
            "the sweep has no ledger yet",
            where=location,
            fix="wait until a run of the sweep has ended",
        )
    lines = validate_tree(_Ledger, json_object(content, location), where=location).runs
    ids = [line.run_id for line in lines if line.run_id]
    if twice := next((name for name in ids if ids.count(name) > 1), None):
        raise UserError(f"names run {twice!r} twice", where=location, fix="name an intact sweep")
    return lines


def merge_earlier(
    before: Sequence[CostRecord], lines: Sequence[CostRecord], store: Store
) -> list[CostRecord]:
    """Return ``lines``, and the lines of ``before`` (an earlier ledger) for finished runs that are
    not in ``lines``: the checkpoint was deleted or damaged, or this call selects other checkpoints.
    For a damaged checkpoint, the earlier line replaces the new line."""
    run_ids = {line.run_id for line in lines} | {""}
    # A changed checkpoint has a new run, which replaces its earlier run.
    planned = {(line.step, line.source) for line in lines if line.run_id}
    earlier = [
        line
        for line in before
        if line.state in ("complete", "decided")
        and line.run_id not in run_ids
        and (line.step, line.source) not in planned
        and ((run := store.child(line.run_id)).get(SUCCESS) is not None or is_decided(run))
    ]
    keys = {(line.step, line.source) for line in earlier}
    return [n for n in lines if n.state != "refused" or (n.step, n.source) not in keys] + earlier
