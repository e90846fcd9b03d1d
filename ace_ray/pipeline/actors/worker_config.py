"""Define the job that all actors of a graph receive, and report their starts and failures."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ace_ray.config.schema import RunConfig
from ace_ray.errors import EngineNotStarted, UserError
from ace_ray.models.families import FormatChoice
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.actors.coordinator import StartReply, fetch_shared
from ace_ray.pipeline.actors.verdicts import log_traceback
from ace_ray.pipeline.health.crash_cause import KILLED, NODE_GONE, death_of
from ace_ray.pipeline.health.heartbeat import LONGEST_WHY, NAMES, Death, ProcessInfo, end_children
from ace_ray.pipeline.roles import RoleBindings
from ace_ray.sandbox.protocol import Scenario
from ace_ray.storage.object_store import Store
from ace_ray.util import log
from ace_ray.util.sanitizing import one_line, replace_surrogates

# Timeout for a task on another node that finds out why a process of that node is gone.
ASK_S = 30.0

# Pause before an engine that failed to start is started again.
START_AGAIN_S = 5.0


@dataclass(frozen=True)
class RunTarget:
    """A run of a graph, which may evaluate several runs one after another."""

    run_id: str
    model: ModelRef
    store: Store
    session: str
    """Id in the names of the Parquet files of this pass (`ace_ray.storage.parts.new_session`)."""


@dataclass(frozen=True)
class WorkerConfig:
    """Configuration of all actors of one graph. Actors fetch entries and benchmarks from the
    coordinator. The job's actor handles are from `ray.get_actor`. Ray passes such a handle as a
    value, so that restarts of actors do not depend on the driver's node."""

    runs: tuple[RunTarget, ...]
    """Runs that differ only in their weights. Several runs form a lane of a sweep."""
    config: RunConfig
    engine: dict[str, Any]
    coordinator: Any
    """Actor handle of the `Coordinator`."""
    bindings: RoleBindings
    served: Mapping[tuple[str, str], tuple[Any, ...]]
    """Handles of the `RoleEngine`s by (benchmark, role)."""
    sandboxes: tuple[Any, ...]
    """Handles of the `SandboxActor`s; empty if no row is interactive."""
    services: Mapping[str, Any]
    """Handles of the `ServiceActor`s by benchmark."""
    choice: FormatChoice
    """Chat template and parsers of the candidate."""
    replay: Mapping[str, str]
    """Benchmark -> which earlier reasoning the candidate sees again (`formats.replay_policy`)."""
    rows_end_at: float | None
    """Time by the driver's clock at which rows must have ended (`ace_ray.pipeline.end_time`)."""
    pending: tuple[int, ...]
    """Indexes of the runs with pending rows, in order. They share the time until ``rows_end_at``.
    The first engine loads the weights of the first one."""
    examine: bool
    """Whether checkpoints are examined before they are loaded (`ace_ray.models.checkpoints`)."""

    def rows_end_here(self, answer: StartReply) -> float | None:
        """Return `rows_end_at` by the clock of this machine. ``answer``: just now of `register`."""
        end = self.rows_end_at
        return None if end is None else time.monotonic() + end - answer.clock


def scenario_of(coordinator: Any, index: int) -> Scenario:
    """Return the scenario of the entry at ``index`` of the entry table. Sandbox actors call this
    function. ``coordinator`` is a handle from `ray.get_actor`, as in `WorkerConfig`."""
    entries, benchmarks = fetch_shared(coordinator)
    entry = entries[index]
    return benchmarks[entry.benchmark].scenario(entry)


def report(coordinator: Any, subject: str, error: Exception, *, store: bool = False) -> None:
    """Report a failure and its cause to the coordinator. Ray would report only a traceback's text.
    ``subject`` is the beginning of the message. ``store``: whether rows could not be stored."""
    is_known = isinstance(error, UserError | EngineNotStarted)
    line = str(error) if is_known else f"{type(error).__name__}: {error}"
    line = f"{subject}: {replace_surrogates(line)[:2000]}"
    ray.get(coordinator.note_failure.remote(line, store=store))


def register(coordinator: Any, process: ProcessInfo) -> StartReply:
    """Register this process with the coordinator, and report why its predecessor ended. Raises
    `RuntimeError` after too many starts."""
    before: ProcessInfo | None = ray.get(coordinator.process.remote(process.actor))
    gone = remote_death(before, process.node)
    answer: StartReply | None = ray.get(coordinator.register_start.remote(process, gone))
    if answer is None:
        raise RuntimeError(f"the {NAMES[process.kind]} is not restarted")
    return answer


@contextmanager
def guard_start(coordinator: Any, process: ProcessInfo, name: str) -> Iterator[StartReply]:
    """Call `register`, and yield its answer. If the engine fails to start in this context, end the
    process if another start may help, or report the failure of ``name`` to the coordinator."""
    answer: StartReply | None = None
    try:
        answer = register(coordinator, process)
        yield answer
    except Exception as error:
        if answer and answer.retryable and not isinstance(error, UserError):
            # Memory of an engine that has just died may not be free yet. An exception would end
            # the run.
            log_traceback()
            worker = f"{NAMES[process.kind]} {process.name}"
            why = one_line(str(error), LONGEST_WHY)
            log.error(f"{worker} failed to start; restarting in {START_AGAIN_S:g} s: {why}")
            time.sleep(START_AGAIN_S)
            end_children()
            os._exit(1)
        report(coordinator, f"{name} failed to start", error)
        raise


def remote_death(before: ProcessInfo | None, node: str) -> Death:
    """Return why the process ``before`` died, as `death_of` finds out on the node where it ran.
    ``node``: the node of this process. ``before`` is None for a process that was not ready."""
    if before is None:
        return KILLED
    if before.node == node:
        return death_of(before)
    if before.node not in {alive["NodeID"] for alive in ray.nodes() if alive["Alive"]}:
        return NODE_GONE
    strategy = NodeAffinitySchedulingStrategy(before.node, soft=False)
    task = ray.remote(death_of).options(num_cpus=0, scheduling_strategy=strategy)
    try:
        death: Death = ray.get(task.remote(before), timeout=ASK_S)
    except Exception:  # noqa: BLE001 - a node that does not answer may be shutting down
        return KILLED
    return death
