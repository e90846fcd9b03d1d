"""Make passes over the pending rows of runs that differ only in their weights.

A pass starts new processes and evaluates rows in one graph. The next pass retries failed rows."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from ace_ray.cluster import connection, resources
from ace_ray.cluster.environment import machine_facts
from ace_ray.cluster.resources import Resources
from ace_ray.config.schema import ENDPOINT
from ace_ray.errors import RunFailed, UserError, first_line
from ace_ray.models.endpoint import EndpointDown
from ace_ray.models.endpoint_engine import ask_endpoint
from ace_ray.pipeline.entries import entry_table
from ace_ray.pipeline.health.heartbeat import Kind
from ace_ray.pipeline.health.isolation import IsolatedRow
from ace_ray.pipeline.health.monitor import HealthMonitor
from ace_ray.pipeline.monitoring.metrics import Metrics
from ace_ray.pipeline.monitoring.tally import Tally
from ace_ray.pipeline.monitoring.timing import timing
from ace_ray.pipeline.monitoring.utilization import Utilization
from ace_ray.pipeline.planning.cluster_fit import ClusterFit, fit_cluster
from ace_ray.pipeline.planning.plan import PlannedRows
from ace_ray.pipeline.run_folder import RunFolder
from ace_ray.storage.parts import new_session, part_names
from ace_ray.storage.rows import SHARED
from ace_ray.storage.stored import read_timing
from ace_ray.util import log
from ace_ray.util.signals import Interrupts

# Index of a run -> its pending rows.
Pending = dict[int, PlannedRows]


def preload() -> None:
    """Import the modules of a pass before a thread connects to Ray (`connection.connect_early`)."""
    connection.set_environment()
    if find_spec("ray") is not None:  # `connection.connect` reports a missing Ray
        from ace_ray.pipeline import graph  # noqa: F401


@dataclass(eq=False)
class Session:
    """Evaluates the runs of one call of `evaluate`, or of one lane of a sweep."""

    runs: Sequence[RunFolder]
    """Runs that differ only in their weights."""
    interrupts: Interrupts
    examine: bool = False
    """Whether checkpoints are examined before they are loaded."""
    rows_end_at: float | None = None
    """Time at which all rows must have ended; None for no limit (`end_time`)."""
    concluded: Callable[[RunFolder], None] = lambda run: None
    """Called with each run as soon as its summary is written."""
    _tallies: list[Tally] = field(default_factory=list)
    # Times at which the first pass had connected to Ray and had started its actors.
    _reached: dict[str, float] = field(default_factory=dict)
    _resources: Resources | None = None
    _utilization: Utilization = field(default_factory=Utilization)

    def __post_init__(self) -> None:
        self._plan = self.runs[0].plan
        self._config = self._plan.config
        # With --fresh the folder still contains the previous run, whose timing does not count.
        self._earlier = [read_timing(run.store) if run.declared else {} for run in self.runs]

    def run(self) -> None:
        """Make passes until no row is pending or no pass makes progress, and conclude every run.

        Raises:
            UserError: the runs cannot be started with this config; nothing was written.
            RunFailed: the cluster or the engines failed; stored rows stay."""
        try:
            self._run_passes()
        except UserError as error:
            if not self._tallies:
                raise
            # The first pass has started, so the config is not the cause.
            raise RunFailed(str(error), resumable=True) from error
        except RunFailed as error:
            if not error.resumable:
                for run in self.runs:
                    run.abandon()
            raise
        for index, run in enumerate(self.runs):
            if run.broken:
                run.abandon()
            elif run.result is None:
                run.read()
                self._conclude(index)

    def _conclude(self, index: int) -> None:
        run = self.runs[index]
        run.conclude(
            timing(
                self._tallies,
                index,
                began=run.began,
                planned=run.planned,
                reached=self._reached,
                resources=self._resources,
                earlier=self._earlier[index],
                use=self._utilization.take(index),
            )
        )
        self.concluded(run)

    def _pending(self, *, again: bool) -> tuple[Pending, Pending]:
        """Return the pending rows, and separately the rows that are set aside, because processes
        died while the row ran alone. ``again``: only pending rows for which a retry may help."""
        pending: Pending = {}
        waiting: Pending = {}
        for index, run in enumerate(self.runs):
            if run.is_open:
                rows, aside_rows = run.pending(again=again), run.set_aside_rows()
                rows = rows.select(~np.isin(rows.ids, aside_rows.ids))
                pending |= {index: rows} if len(rows) else {}
                waiting |= {index: aside_rows} if len(aside_rows) else {}
        return pending, waiting

    def _run_passes(self) -> None:
        """Make passes, each with new processes. A failed pass counts as an attempt only if it gave
        no row a final status. Rows that are set aside are evaluated in a separate, last pass."""
        (pending, waiting), attempts = self._pending(again=False), 0
        is_separate = not pending
        pending = pending or waiting
        while pending and not self.interrupts.is_interrupted:
            if is_separate:
                log.warning(f"{_count(pending)} rows whose worker crashed are retried")
            elif attempts:
                log.warning(f"{_count(pending)} rows failed; retrying, attempt {attempts + 1}")
            failure: RunFailed | None = None
            before = self._count_settled()
            try:
                self._run_pass(pending)
                for index, counts in self._tallies[-1].runs.items():
                    self.runs[index].out_of_time |= counts.out_of_time > 0
            except RunFailed as error:
                failure = error
            for run in self.runs:
                if run.result is None:
                    run.read(log.warning)
                    run.compare(at_once=True)
            bug = self._tallies[-1].bug(1) if self._tallies else None
            if bug is not None and not self._count_settled():
                log.error("traceback of the first row:", traceback=bug.traceback)
                raise RunFailed(bug.line)
            has_progress = self._count_settled() > before
            attempts += failure is None or not has_progress
            pending, waiting = self._pending(again=True)
            last = attempts >= self._config.max_attempts
            if not pending and not waiting:
                break  # a failure without pending rows does not matter
            stops = self.interrupts.is_interrupted
            if failure is not None and ((last and not stops) or not failure.again):
                raise failure
            if failure is not None:
                more = "" if stops else f"; continuing with {_count(pending or waiting)} rows"
                log.warning(f"{failure}{more}")
            if is_separate and last:
                break
            is_separate = last or not pending
            pending = waiting if is_separate else pending

    def _isolated(self) -> dict[Kind, dict[str, IsolatedRow]]:
        """Map each kind of process to the rows that earlier passes and commands have isolated."""
        isolated: dict[Kind, dict[str, IsolatedRow]] = {}
        for index, run in enumerate(self.runs):
            for kind, stored in run.isolated(index).items():
                isolated.setdefault(kind, {}).update(stored)
        for kind, later in (self._tallies[-1].isolated if self._tallies else {}).items():
            isolated.setdefault(kind, {}).update(later)
        # Rows that wait for a preparation are stored, and the stored rows count all deaths so far.
        engine_rows = isolated.get("engine", {})
        for ledger in (run.ledger for run in self.runs):
            for row_id in map(bytes.decode, ledger.ids[ledger.set_aside == SHARED.encode()]):
                if (isolated_row := engine_rows.get(row_id)) is not None:
                    engine_rows[row_id] = replace(isolated_row, stored=isolated_row.deaths)
        return isolated

    def _count_settled(self) -> int:
        return sum(int(run.ledger.settled.sum()) for run in self.runs)

    def _run_pass(self, pending: Pending) -> None:
        """Connect to Ray, start the actors, and evaluate ``pending`` in a graph. Raises `UserError`
        if the config is wrong, and `RunFailed` if the cluster or the engines fail."""
        self.interrupts.abort_at(self.rows_end_at)
        endpoint_facts = self._probe()
        connection.connect()
        self._reached.setdefault("ray", time.monotonic())
        import ray

        from ace_ray.pipeline.actors.coordinator import start_coordinator
        from ace_ray.pipeline.actors.service import start_services

        self.interrupts.install()
        has_rows = any(len(run.ledger.ids) for run in self.runs)
        had_success = has_rows or any(tally.workers for tally in self._tallies)
        plans, plan = [run.plan for run in self.runs], self._plan
        monitor: HealthMonitor | None = None
        try:
            fitted = fit_cluster(plans, list(pending.values()))
            self._resources = fitted.need
            facts = {**machine_facts(ray.cluster_resources()), "engine_args": fitted.engine}
            rows = [(p.run_id, p.model.name, len(pending.get(i, ()))) for i, p in enumerate(plans)]
            salt = os.urandom(3).hex()
            # Only the handles in this frame keep the actors alive: the job has handles by name.
            coordinator = start_coordinator(
                entry_table(plan.entries, plan.openings),
                plan.benchmarks,
                self._isolated(),
                had_success=had_success,
                metrics=partial(Metrics, rows),
                name=f"coordinator-{salt}",
            )
            services = start_services(f"coordinator-{salt}", plan.benchmarks)
            for index in pending:
                self.runs[index].declare({**facts, **endpoint_facts})
            monitor = HealthMonitor(
                coordinator,
                self._config,
                self.interrupts,
                lambda: next((run.lease.lost for run in self.runs if run.lease.lost), ""),
                rows=_count(pending),
                had_success=had_success,
                rows_end_at=self.rows_end_at,
                utilization=self._utilization,
            )
            with monitor:
                self._evaluate(pending, fitted, salt, services, monitor)
        except (RunFailed, UserError):
            raise
        except Exception as error:
            tally = monitor.refresh() if monitor else Tally()
            raise _explain(error, tally, had_success=had_success) from error
        finally:
            self.interrupts.cancel_abort()
            if monitor is not None:
                self._tallies.append(monitor.last_look())
                for index, counts in self._tallies[-1].runs.items():
                    self.runs[index].broken = counts.broken
            ray.shutdown()

    def _evaluate(
        self,
        pending: Pending,
        fitted: ClusterFit,
        salt: str,
        services: Iterable[str],
        monitor: HealthMonitor,
    ) -> None:
        """Start the other actors of a pass and run its graph. ``salt`` distinguishes the actors and
        the parts of this pass; ``services`` are the benchmarks with a service."""
        import ray

        from ace_ray.cluster import placement
        from ace_ray.cluster.ray_internals import lean_data
        from ace_ray.pipeline.actors.role_engine import role_engines
        from ace_ray.pipeline.actors.worker_config import RunTarget, WorkerConfig, scenario_of
        from ace_ray.pipeline.graph import Work, run_graph
        from ace_ray.sandbox.actor import start_actors

        config, need, name, plan = self._config, fitted.need, f"coordinator-{salt}", self._plan
        with (
            role_engines(fitted.bindings, name, config, on_gpu=fitted.on_gpu) as served,
            placement.reserve(
                need, config, lambda: self.interrupts.is_interrupted
            ) as worker_options,
        ):
            sandboxes = [f"{name}-sandbox-{i}" for i in range(need.sandboxes)]
            scenarios = partial(scenario_of, ray.get_actor(name))
            _started = start_actors(scenarios, sandboxes, cpus=resources.SANDBOX_CPUS)
            runs = [(run, new_session(part_names(run.store), salt)) for run in self.runs]
            job = WorkerConfig(
                runs=tuple(RunTarget(r.plan.run_id, r.plan.model, r.store, s) for r, s in runs),
                config=config,
                engine=fitted.engine,
                coordinator=ray.get_actor(name),
                bindings=fitted.bindings,
                served=served,
                sandboxes=tuple(map(ray.get_actor, sandboxes)),
                services={key: ray.get_actor(f"{name}-{key}") for key in services},
                choice=plan.choice,
                replay=plan.replay,
                rows_end_at=self.rows_end_at,
                pending=tuple(sorted(pending)),
                examine=self.examine and config.backend != ENDPOINT,
            )
            monitor.start_timer()
            self._utilization.begin(need.workers, pending)
            self._reached.setdefault("actors", time.monotonic())
            with lean_data() if connection.has_own_ray() else nullcontext():
                run_graph(
                    job,
                    [
                        Work(i, rows, self.runs[i].attempts(rows), self.runs[i].durations)
                        for i, rows in pending.items()
                    ],
                    need,
                    self._stored_callback(pending, monitor, job.coordinator),
                    lambda: self.interrupts.is_interrupted,
                    backlog=self._utilization.note,
                    worker_options=worker_options,
                    refit=fitted.refit,
                )
            self.interrupts.raise_pending()

    def _probe(self) -> dict[str, Any]:
        """Send one request to the candidate's endpoint before the first pass, with tools if the run
        offers tools. Return facts for the manifest; {} if no request was sent. Raises `UserError`
        if the endpoint refuses the request, and `RunFailed` if it does not answer."""
        if self._tallies or self._config.backend != ENDPOINT:
            return {}
        try:
            return {"endpoint": ask_endpoint(self._config, tools=self._plan.native, patient=True)}
        except EndpointDown as error:
            raise RunFailed(str(error), resumable=True) from error

    def _stored_callback(
        self, pending: Pending, monitor: HealthMonitor, coordinator: Any
    ) -> Callable[[int, int], None]:
        """Return the function to call with (index of a run, number of rows) when rows were stored.
        The function stops a run whose comparison is decided. It concludes a run when the run's last
        row is stored, except the last run, which is concluded after the pass."""
        remaining_rows = Counter({index: len(rows) for index, rows in pending.items()})
        last = max(pending)

        def on_stored(index: int, rows: int) -> None:
            remaining_rows[index] -= rows
            run = self.runs[index]
            line = f"{run.plan.run_id}: {rows} rows stored"
            log.debug(line, event="stored", run_id=run.plan.run_id, rows=rows)
            if not run.stops:
                run.compare()
                if run.stops:
                    coordinator.stop_run.remote(index)
                    log.info(f"{run.plan.run_id}: comparison decided; no further rows evaluated")
            if remaining_rows[index] or index == last or self.interrupts.is_interrupted:
                return
            run.read()
            if not len(run.pending(again=True)):
                self._tallies.append(monitor.refresh())
                try:
                    self._conclude(index)
                finally:
                    self._tallies.pop()

        return on_stored


_LOGS = "/tmp/ray/session_latest/logs, files worker-*.out and worker-*.err"


def _count(pending: Pending) -> int:
    return sum(map(len, pending.values()))


def _explain(error: Exception, tally: Tally, *, had_success: bool) -> RunFailed:
    """Return the error of a failed pass. Its message is one line with the cause that an actor has
    reported to the coordinator, or else with Ray's error. The error is not ``resumable`` if a cause
    was reported and no engine has ever started."""
    cause = tally.failure
    transient = had_success or bool(tally.workers) or not cause
    if not cause:
        cause = f"{type(error).__name__}: {first_line(error, '')}"
    return RunFailed(
        f"{' '.join(cause.split())} (details: {_LOGS})",
        resumable=transient,
        again=transient and not tally.store_failed and not tally.no_progress,
    )
