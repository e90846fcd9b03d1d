"""The open folder of one run: its stored and pending rows, its manifest and its summary."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ace_ray.early_stopping.looks import EarlyStopper
from ace_ray.errors import UserError
from ace_ray.pipeline.health.heartbeat import Kind, give_back_memory
from ace_ray.pipeline.health.isolation import IsolatedRow, set_aside, shared_id
from ace_ray.pipeline.planning.formats import choice_facts
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import REPORTS, Plan, PlannedRows
from ace_ray.pipeline.planning.prompts import check_chat
from ace_ray.pipeline.summary import FILES, RESULTS, finish, reopen
from ace_ray.storage.lease import LEASE, Lease
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.parts import FOLDER, Ledger, is_part_name, part_names, read_ledger
from ace_ray.storage.rows import SHARED, rows_schema
from ace_ray.storage.stored import (
    MANIFEST,
    SUCCESS,
    SUMMARY,
    Manifest,
    append_session,
    as_json,
    differences,
    read_manifest,
    read_timing,
    session_record,
    versions_line,
)
from ace_ray.util import log
from ace_ray.util.safe_loading import json_tree


@dataclass
class RunFolder:
    """A run whose lease this driver has. Make it with `open_folder`."""

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
    began_it: bool
    """Whether the folder contained no run when this session began."""
    ledger: Ledger = field(init=False)
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

    def read(self, warn: Callable[[str], None] = lambda line: None) -> None:
        """Read which rows are stored. ``warn`` receives a line for each ignored part."""
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
        """Try to decide the comparison with the reference, and note this in the manifest. If the
        store does not answer, print a warning once; the next call tries again. Raises
        `LeaseLost`."""
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
        return self.plan.rows.where(~self._values_of(done_mask, self.plan.rows, absent=False))

    def _values_of(self, column: np.ndarray, rows: PlannedRows, absent: Any) -> np.ndarray:
        """Return the values of a ledger's column for ``rows``; ``absent`` for rows not stored."""
        # `find` returns -1 for a row that is not stored, which is the index of ``absent``.
        values: np.ndarray = np.append(column, absent)[self.ledger.find(rows.ids)]
        return values

    def set_aside_rows(self) -> PlannedRows:
        """Return the pending rows that ran alone when engines or checkers died. They are evaluated
        once more after all other rows."""
        rows = self.plan.rows
        return rows.where(self._values_of(self.ledger.set_aside, rows, b"") != b"")

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

    def shared_row_ids(self) -> list[str]:
        """Return the ids of `set_aside` rows that share a preparation during which engines died."""
        ids = self.ledger.ids[self.ledger.set_aside == SHARED.encode()]
        return [row_id.decode() for row_id in ids.tolist()]

    def attempts(self, rows: PlannedRows) -> np.ndarray:
        """Return for each of ``rows`` the number of its next attempt."""
        return self._values_of(self.ledger.attempts, rows, 0).astype(np.int32) + 1

    def declare(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest of a new run, or add this session to a stored manifest, and remove
        `_SUCCESS`. ``facts`` (`machine_facts` and others) describe the session."""
        session = session_record(facts)
        if not self.declared:
            self.lease.renew()
            _remove_run(self.store)
            tree = make_manifest(self.plan, {**self.facts, **facts, "sessions": [session]})
            self.store.put(MANIFEST, as_json(tree))
            self.declared = True
        elif not self._in_manifest:
            manifest = read_manifest(self.store)
            tree = {**manifest.tree, "sessions": append_session(manifest, session)}
            self.lease.renew()
            self.store.put(MANIFEST, as_json(tree))
            if mixed := versions_line(read_manifest(self.store).mixed_versions):
                log.warning(f"{mixed}; --fresh evaluates all rows again")
        self._in_manifest = True
        reopen(self.store)

    def conclude(self, timing: Mapping[str, Any]) -> None:
        """Write the summary of the stored rows, and set `result`."""
        self.lease.renew()
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
        if self.began_it and self.declared and not part_names(self.store):
            self.lease.renew()
            _remove_run(self.store)


@contextmanager
def open_folder(plan: Plan, *, fresh: bool, began: float) -> Iterator[RunFolder]:
    """Open the run of ``plan``, and keep its lease until the context ends. This writes only the
    lease and, with early stopping, a note in the manifest that the comparison was computed.

    Raises `UserError` if the model or the output does not fit the plan, or the lease is taken."""
    open_output(plan, fresh=fresh)
    facts, chat_line, skipped = check_chat(plan)
    facts["format"] = choice_facts(plan.choice)
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
        if skipped and len(run.pending(again=False)):
            log.warning(chat_line)
        if plan.drawn is not None:
            run.looks = EarlyStopper(plan, store)
            run.looks.check_reference(must_exist=False)
            if run.declared:
                run.looks.check_rules()
            run.compare(at_once=True)
        yield run


def output_store(plan: Plan) -> Store:
    """Return the store of the run's folder."""
    return open_store(plan.config.output, **plan.config.store.model_dump()).child(plan.run_id)


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
    for folder in (FOLDER, RESULTS, FILES, *(f"{FILES}{name}" for name in plan.benchmarks)):
        store.check_unlinked(folder.rstrip("/"))
    if parent.get(MANIFEST) is not None:
        raise UserError(
            "the output folder is itself a run",
            where=plan.config.output,
            fix="name the folder above it; each run gets a folder of its own",
        )
    if store.get(MANIFEST) is None:
        for item in store.list():
            if item.path != LEASE and not item.path.startswith(REPORTS):
                raise refusal(f"files that do not belong to a run ({item.path})")
        return store, None
    try:
        manifest = read_manifest(store)
    except UserError as error:  # --fresh does not remove such a folder either
        raise refusal(f"a {MANIFEST} that is not a run's") from error
    if fresh:
        return store, None
    mine = json_tree(json.dumps(plan.identity))
    if paths := differences(manifest.tree["identity"], mine):
        more = ", or replace the run with --fresh"
        raise refusal(f"a different run (the runs differ in {', '.join(paths)})", more)
    return store, manifest


def _remove_run(store: Store) -> None:
    """Remove the run in ``store``, if there is one, for example for ``--fresh``.

    Remove only files that a run with this manifest writes, and warn about other files. Raises
    `UserError`, and removes nothing, if the manifest is damaged or a folder is a link."""
    if store.get(MANIFEST) is None:
        return
    benchmarks = read_manifest(store).identity.benchmarks
    for folder in (FOLDER, FILES, RESULTS):
        store.check_unlinked(folder.rstrip("/"))
    listed = [item.path for item in store.list()]
    ours = [path for path in listed if _is_run_file(path, benchmarks)]
    run_paths = {*ours, MANIFEST, SUMMARY, SUCCESS, LEASE}
    extras = [path for path in listed if path not in run_paths and not path.startswith(REPORTS)]
    for path in (SUCCESS, *ours, SUMMARY, MANIFEST):
        store.delete(path)
    if extras:
        more = f" and {len(extras) - 1} more" if len(extras) > 1 else ""
        log.warning(
            f"{store.root}: does not belong to the run and stays unchanged: {extras[0]}{more}"
        )


def _is_run_file(path: str, benchmarks: Collection[str]) -> bool:
    """Return whether a run of ``benchmarks`` may write the file ``path`` in one of its folders."""
    if path.startswith(FOLDER):
        return is_part_name(path)
    if path.startswith(RESULTS):
        return "/" not in path.removeprefix(RESULTS) and path.endswith(".json")
    folder, *inner = path.removeprefix(FILES).split("/")
    plain = inner and not {"", ".", ".."} & {*inner}
    return path.startswith(FILES) and bool(plain) and folder in benchmarks
