"""The open folder of one run: its stored and pending rows, its manifest and its summary."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

import ace_ray
from ace_ray.early_stopping.looks import EarlyStopper
from ace_ray.errors import UserError
from ace_ray.pipeline.health.heartbeat import Kind, give_back_memory
from ace_ray.pipeline.health.isolation import IsolatedRow, set_aside, shared_id
from ace_ray.pipeline.planning.formats import choice_facts
from ace_ray.pipeline.planning.manifest import grown_manifest, make_manifest
from ace_ray.pipeline.planning.plan import Plan, PlannedRows, run_id_of
from ace_ray.pipeline.planning.prompts import check_chat
from ace_ray.pipeline.summary import finish, reopen
from ace_ray.storage.durations import Durations, read_durations
from ace_ray.storage.lease import LEASE, Lease
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.parts import FOLDER, Ledger, part_names, read_ledger
from ace_ray.storage.rows import SHARED, rows_schema
from ace_ray.storage.run_files import LOGS, REPORTS, check_unlinked, remove_run
from ace_ray.storage.session_log import store_log
from ace_ray.storage.stored import (
    MANIFEST,
    Manifest,
    append_session,
    as_json,
    differences,
    read_manifest,
    read_timing,
    versions_line,
)
from ace_ray.util import log
from ace_ray.util.safe_loading import json_tree

# Keys of an identity that change when a run grows. Row ids cover what these keys say about a row.
_ROW_KEYS = ("benchmarks", "roles", "replay_reasoning", "episode_timeout_s", "sampling", "rows")


@dataclass
class RunFolder:
    """A run's folder, which only this driver may change (`Lease`). Made by `open_folder`."""

    plan: Plan
    store: Store
    lease: Lease
    facts: Mapping[str, Any]
    """Facts for the manifest that are not in the plan."""
    declared: bool
    """Whether the folder contains the manifest of this run, and no rows of other runs."""
    began: float
    """Start of the command (`time.monotonic`)."""
    planned: float
    """End of planning (`time.monotonic`)."""
    is_new: bool
    """Whether the folder contained no run when this session began."""
    ledger: Ledger = field(init=False)
    durations: Durations = field(init=False)
    broken: str = ""
    """Why the weights of the run cannot be evaluated; "" if they can."""
    out_of_time: bool = False
    """Whether the run has used up its time."""
    _warned: bool = False
    _in_manifest: bool = False
    """Whether the manifest lists this session."""
    looks: EarlyStopper | None = None
    """Comparison with the reference during the run; None if the run does not stop early."""
    result: tuple[int, dict[str, Any]] | None = None
    """Exit code and summary of a concluded run."""
    grown: Mapping[str, Any] | None = None
    """New content of the manifest if the stored run grows; else None."""

    def read(self, warn: Callable[[str], None] = lambda line: None) -> None:
        """Read which rows are stored. ``warn`` receives a line for each ignored Parquet file."""
        every = (rules for b in self.plan.benchmarks.values() for rules in b.rule_sets)
        schema = rows_schema(tuple(dict.fromkeys(every)))
        if self.declared:
            self.ledger = read_ledger(self.store, warn, schema)
        else:
            self.ledger = Ledger(self.store, schema=schema)
        give_back_memory()

    def check_declared(self) -> None:
        """Raise `UserError` if the folder contains rows that the run does not declare."""
        extra_ids = np.setdiff1d(self.ledger.ids, self.plan.rows.ids)
        if len(extra_ids):
            raise UserError(
                f"the folder contains {len(extra_ids)} rows that the run does not declare, such as "
                f"{extra_ids[0].decode()}",
                where=self.store.root,
                fix=f"remove foreign files from {FOLDER}, or start with --fresh",
            )

    def announce(self) -> int:
        """Log how many rows the run declares, evaluates and reuses. Return how many to evaluate."""
        plan, pending = self.plan, 0 if self.stops else len(self.pending(again=False))
        counts = Counter(plan.entries[index].benchmark for index in plan.rows.entry.tolist())
        listed = ", ".join(f"{name} {counts[name]}" for name in plan.benchmarks)
        line = f"{plan.run_id}: {len(plan.rows)} rows declared, {pending} to evaluate, "
        line += f"{int(self.ledger.settled.sum())} stored rows reused ({listed})"
        log.info(line, event="begin", run_id=plan.run_id, declared=len(plan.rows), pending=pending)
        if self.grown is not None:
            log.info(f"the stored run grows: {self.grown['grown'][-1]['what']}")
        if plan.conflict_line:
            log.info(plan.conflict_line)
        if plan.config.samples > 1 and not plan.config.sampling.temperature:
            log.warning("samples at temperature 0 are nearly equal; set sampling.temperature")
        return pending

    @property
    def is_open(self) -> bool:
        """Return whether rows of the run may still be evaluated in this session."""
        has_ended = self.broken or self.out_of_time or self.result is not None
        return not has_ended and not self.stops

    @property
    def stops(self) -> bool:
        """Return whether the run must stop because early stopping has decided its comparison."""
        return self.looks is not None and self.looks.should_stop

    def compare(self, *, at_once: bool = False) -> None:
        """Try to decide the comparison with the reference run, and note this in the manifest. If
        the store does not answer, print a warning once; the next call tries again. Raises
        `LeaseLost` if another command has taken over the run."""
        if self.looks is None or not self.declared:
            return
        try:
            if self.looks.look(at_once=at_once):
                self.lease.renew()
                self.looks.record_look()
        except UserError as error:
            if not self._warned:
                log.warning(f"the comparison cannot be computed now: {error}")
            self._warned = True

    def pending(self, *, again: bool) -> PlannedRows:
        """Return the rows without a verdict. ``again``: only rows for which a retry may help."""
        done_mask = self.ledger.settled | (again & ~self.ledger.retryable)
        return self.plan.rows.select(~self._values_of(done_mask, self.plan.rows, absent=False))

    def _values_of(self, column: np.ndarray, rows: PlannedRows, absent: Any) -> np.ndarray:
        """Return the values of a ledger's column for ``rows``; ``absent`` for rows not stored."""
        # `find` returns -1 for a row that is not stored, which is the index of ``absent``.
        values: np.ndarray = np.append(column, absent)[self.ledger.find(rows.ids)]
        return values

    def set_aside_rows(self) -> PlannedRows:
        """Return the pending rows that ran alone when processes died; they are evaluated last."""
        rows = self.plan.rows
        return rows.select(self._values_of(self.ledger.set_aside, rows, b"") != b"")

    def isolated(self, run: int) -> dict[Kind, dict[str, IsolatedRow]]:
        """Map each kind of process that died to the states of its `set_aside` rows, by id of the
        row or of its failed preparation. ``run`` is the index of this run in its job."""
        isolated: dict[Kind, dict[str, IsolatedRow]] = {}
        rows = self.set_aside_rows()
        indices = self.ledger.find(rows.ids).tolist()
        table = pa.table(rows.columns()).to_pylist()
        for row, index in zip(table, indices, strict=True):
            killed = self.ledger.set_aside[index].decode()
            if killed == SHARED:
                kind, name = "engine", shared_id({**row, "run": run})
            else:
                kind, name = killed, row["row_id"].decode()
            state = set_aside(int(self.ledger.attempts[index]))
            isolated.setdefault(cast(Kind, kind), {})[name] = state
        return isolated

    def attempts(self, rows: PlannedRows) -> np.ndarray:
        """Return for each of ``rows`` the number of its next attempt."""
        return self._values_of(self.ledger.attempts, rows, 0).astype(np.int32) + 1

    def declare(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest of a new run, or add this session to the stored manifest, and remove
        `_SUCCESS`. ``facts`` describe the session, such as its machine (`machine_facts`)."""
        versions = {"ace_ray": ace_ray.__version__, **facts.get("versions", {})}
        session = {"began_at": facts.get("created_at", ""), "versions": versions}
        self.lease.renew()
        if not self.declared:
            remove_run(self.store)
            tree = make_manifest(self.plan, {**self.facts, **facts, "sessions": [session]})
            self.store.put(MANIFEST, as_json(tree))
            self.declared = self._in_manifest = True
        reopen(self.store)  # before a crash could leave it with a manifest of more rows
        if not self._in_manifest:
            manifest = read_manifest(self.store)
            tree = {**(self.grown or manifest.tree), "sessions": append_session(manifest, session)}
            self.store.put(MANIFEST, as_json(tree))
            if mixed := versions_line(read_manifest(self.store).mixed_versions):
                log.warning(f"{mixed}; --fresh evaluates all rows again")
        self._in_manifest = True

    def conclude(self, timing: Mapping[str, Any]) -> None:
        """Write the summary of the stored rows, and set `result`."""
        self.lease.renew()
        if self.grown is not None and not self._in_manifest:  # stopped before the first pass
            reopen(self.store)
            self.store.put(MANIFEST, as_json(self.grown))
        self._note_parsers(timing)
        self.compare(at_once=True)
        remaining_rows = len(self.plan.rows) - int(self.ledger.settled.sum())
        stopped = self.stops and remaining_rows > 0
        reason = f"stopped early: its comparison is decided without {remaining_rows} rows"
        more: dict[str, Any] = {"uri": self.plan.uri}
        if self.looks is not None and self.plan.config.early and self.plan.config.early.reference:
            more["early"] = self.looks.summary(stopped=stopped)
        timing = timing or read_timing(self.store)
        if timing and (price := self.plan.config.price_per_hour) is not None:
            timing = {**timing, "price_per_hour": price}
        self.result = finish(
            self.store,
            read_manifest(self.store),
            self.plan.benchmarks,
            self.ledger,
            timing,
            why=reason if stopped else "",
            **more,
        )

    def _note_parsers(self, timing: Mapping[str, Any]) -> None:
        """Note in the session's record which parsers have parsed the session's answers."""
        readings = [facts["reading"] for facts in timing.get("engines", ()) if facts.get("reading")]
        manifest = read_manifest(self.store)
        if readings and manifest.sessions:
            sessions = [s.model_dump(exclude_defaults=True) for s in manifest.sessions]
            sessions[-1]["reading"] = readings[-1]
            self.store.put(MANIFEST, as_json({**manifest.tree, "sessions": sessions}))

    def abandon(self) -> None:
        """Remove a run that this session began and that has stored no rows."""
        if self.is_new and self.declared and not part_names(self.store):
            self.lease.renew()
            remove_run(self.store)
            self._in_manifest = False


@contextmanager
def open_folder(plan: Plan, *, fresh: bool, began: float, label: str = "") -> Iterator[RunFolder]:
    """Open the run of ``plan``, and keep its lease until the context ends. This writes only the
    lease and, with early stopping, a note in the manifest that the comparison was computed.
    ``label``: name of the run in its sweep, for the manifest.

    Raises `UserError` if the model's template refuses the prompts, if the folder has another run,
    or if another command evaluates the run."""
    open_output(plan, fresh=fresh)
    facts, chat_line, skipped = check_chat(plan)
    facts |= {"format": choice_facts(plan.choice), **({"label": label} if label else {})}
    if plan.hazards:
        facts["hazards"] = list(plan.hazards)
    for note in (plan.model.base_note, facts.get("divided_calls")):
        if note:
            log.warning(note)
    for benchmark in plan.benchmarks.values():
        benchmark.service()  # raises `UserError` if the service cannot be made
    with Lease.acquire(output_store(plan)) as lease:
        # Read the folder again under the lease, since it may have changed before.
        store, manifest = open_output(plan, fresh=fresh)
        declared = manifest is not None
        now_s = time.monotonic()
        run = RunFolder(plan, store, lease, facts, declared, began, now_s, not declared)
        run.read(log.warning)
        run.check_declared()
        if manifest is not None and manifest.declared < len(plan.rows):
            run.grown = grown_manifest(manifest, plan)
        if len(run.pending(again=False)):
            source, options = plan.config.durations_from, plan.config.store.model_dump()
            run.durations = read_durations(plan.entries, run.ledger, source, **options)
            if skipped:
                log.warning(chat_line)
        if plan.drawn is not None:
            run.looks = EarlyStopper(plan, store)
            run.looks.check_reference(must_exist=False)
            if run.declared:
                run.looks.check_rules()
            run.compare(at_once=True)
        with store_log(store, began, lambda: run._in_manifest):
            yield run


def output_store(plan: Plan) -> Store:
    """Return the store of the run's folder."""
    return open_store(plan.config.output, **plan.config.store.model_dump()).child(plan.run_id)


def assign_run_id(plan: Plan) -> Plan:
    """Return ``plan`` with the id of the stored run that it continues or lets grow, or with an id
    under which a new run can grow. Raises `UserError` if the store is not available."""
    parent = open_store(plan.config.output, **plan.config.store.model_dump())
    if plan.config.run_id or parent.child(plan.run_id).get(MANIFEST) is not None:
        return plan
    identity = plan.identity
    # Each benchmark may have been the first one of the run, with or without interactive episodes.
    ids = [
        run_id_of(name, plan.model.name, _fixed(identity, [name]), *more)
        for name, described in identity["benchmarks"].items()
        for more in ((described.get("episodes"), identity["roles"][name] or None), (None, None))
    ]
    taken = [run_id for run_id in ids if parent.child(run_id).get(MANIFEST) is not None]
    reasons = {run_id: conflict(parent.child(run_id), plan) for run_id in taken}
    new_id = plan.run_id if ids[0] in reasons else ids[0]
    run_id = next((run_id for run_id in reasons if not reasons[run_id]), new_id)
    lines = [f"{new_id} is a new run beside {name}: {reason}" for name, reason in reasons.items()]
    return replace(plan, run_id=run_id, conflict_line="; ".join(lines) if run_id == new_id else "")


def conflict(store: Store, plan: Plan) -> str:
    """Return why the run in ``store`` is not the run of ``plan`` and cannot grow into it, or ""."""
    manifest, mine = read_manifest(store), json_tree(json.dumps(plan.identity))
    if (theirs := manifest.tree["identity"]) == mine:
        return ""
    reason = f"the runs differ in {', '.join(differences(theirs, mine))}"
    reason += f" ({manifest.declared} and {len(plan.rows)} rows)"
    early = manifest.tree.get("early")
    # The decision of an early comparison is valid only for the order that was drawn before it.
    if plan.drawn is not None or (isinstance(early, Mapping) and early.get("looked")):
        return f"{reason}; a run with early stopping cannot grow"
    shared = theirs["benchmarks"].keys() & mine["benchmarks"].keys()
    if _fixed(theirs, shared) != _fixed(mine, shared) or len(plan.rows) <= manifest.declared:
        return reason
    # Stored rows that the plan has, too, were generated as the plan says.
    ledger = read_ledger(store, lambda line: None, rows_schema(manifest.all_rule_sets))
    extra_rows = len(np.setdiff1d(ledger.ids, plan.rows.ids))
    return (extra_rows and f"{reason}; {extra_rows} stored rows are not among its rows") or ""


def _fixed(identity: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the settings in ``identity`` that all rows of the benchmarks ``names`` share."""
    fixed = {key: value for key, value in identity.items() if key not in _ROW_KEYS}
    for name in names:
        described = identity["benchmarks"][name].items()
        settings = {k: v for k, v in described if k not in ("data_sha256", "episodes")}
        fixed[f"benchmarks.{name}"] = settings
    return {**fixed, "sampling": identity["sampling"][0]}


def open_output(plan: Plan, *, fresh: bool = False) -> tuple[Store, Manifest | None]:
    """Check that the run's store is writable. Return the store, and the manifest in it or None.

    If ``fresh``, the store may have any run, since the caller replaces that run; the manifest is
    None. Raises `UserError` if the store cannot be written, or has a different run."""

    def refusal(content: str, more: str = "") -> UserError:
        fix = f"choose another run_id or --output{more}"
        return UserError(f"the folder contains {content}", where=plan.uri, fix=fix)

    parent = open_store(plan.config.output, **plan.config.store.model_dump())
    store = parent.child(plan.run_id)
    store.check_writable()
    # Refuse links before engines start, since files outside the folder must not change.
    check_unlinked(store, plan.benchmarks)
    if parent.get(MANIFEST) is not None:
        raise UserError(
            "the output folder is itself a run",
            where=plan.config.output,
            fix="name the folder above it; each run gets a folder of its own",
        )
    if store.get(MANIFEST) is None:
        for item in store.list():
            if item.path != LEASE and not item.path.startswith((REPORTS, LOGS)):
                raise refusal(f"files that do not belong to a run ({item.path})")
        return store, None
    try:
        manifest = read_manifest(store)
    except UserError as error:  # --fresh does not remove such a folder either
        raise refusal(f"a {MANIFEST} that is not a run's") from error
    if fresh:
        return store, None
    if reason := conflict(store, plan):
        raise refusal(f"a different run ({reason})", ", or replace the run with --fresh")
    return store, manifest
