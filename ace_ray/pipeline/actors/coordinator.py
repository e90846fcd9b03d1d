"""The coordinator: the actor to which all processes report, and whose counts the driver reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ace_ray.benchmarks.base import Benchmark
from ace_ray.pipeline.entries import Entries
from ace_ray.pipeline.health.crash_cause import KILLED
from ace_ray.pipeline.health.heartbeat import KINDS, NAMES, Death, EngineLoad, Kind, ProcessInfo
from ace_ray.pipeline.health.isolation import IsolatedRow, Isolation
from ace_ray.pipeline.monitoring.metrics import Metrics
from ace_ray.pipeline.monitoring.tally import Bug, EngineCounts, RowReport, Tally

# Number of consecutive failed starts of one actor after which the pass fails.
MAX_STARTS = 3

# The command ends after this many consecutive starts of one engine worker or checker if no row made
# progress meanwhile: then rows are not the cause.
MAX_STARTS_WITHOUT_PROGRESS = 10


@dataclass(frozen=True, slots=True)
class StartReply:
    """The coordinator's answer to a process that starts."""

    retryable: bool
    """Whether a failed start is retried: if engines of this run have started before."""
    run: int | None
    """Index of the run whose weights an engine loads first; None for the first pending run."""
    replaces: bool = False
    """Whether the process replaces an earlier one, whose rows Ray sends again."""
    starts_since_progress: int = 0
    """Number of earlier starts of this actor since a row last made progress."""
    clock: float = field(default_factory=time.monotonic, compare=False)
    """`time.monotonic` on the driver's machine."""


@dataclass
class _ProcessState:
    process: ProcessInfo
    ready: bool = False
    starts: int = 1
    heard_at: float = field(default_factory=time.monotonic)
    phase: str = ""
    """Current phase of the engine's start."""
    drain_at: float | None = None
    """Time at which the process must end its work, since its node leaves (`time.monotonic`)."""
    load: EngineLoad | None = None
    has_begun: bool = False
    """Whether rows have entered an engine with its current weights."""

    def activity(self, rows_in_flight: Collection[str] | None) -> str:
        """Return the attribute of `EngineCounts` that counts this engine."""
        if not self.ready:
            return "starting"
        return "at_work" if rows_in_flight else "idle" if self.has_begun else "unused"


class Coordinator:
    """Actor that keeps a `Tally` and the state of all processes, but no rows, for one pass over the
    pending rows. Processes report about their rows (`note_unless_stopped`), about themselves
    (`register_start`, `update_process`), and about the weights of their engines."""

    def __init__(
        self,
        shared: list[Any],
        isolated: Mapping[Kind, Mapping[str, IsolatedRow]] | None = None,
        *,
        had_success: bool = False,
        metrics: Callable[[], Metrics] | None = None,
    ) -> None:
        self._tally = Tally()
        self._metrics = metrics() if metrics else None
        self._had_success = had_success
        self._shared = shared
        self._isolation = {kind: Isolation((isolated or {}).get(kind)) for kind in KINDS}
        self._processes: dict[str, _ProcessState] = {}
        self._drain_at: float | None = None
        # Ids of rows that workers have given back without a result.
        self._given_back: set[str] = set()
        self._stopped: set[int] = set()
        # Number of deaths of the writer since the last stored row.
        self._deaths_since_write = 0
        # Actor -> number of its starts since a row last made progress.
        self._starts_since_progress: Counter[str] = Counter()
        # Kind of process -> why the last process of this kind ended.
        self._last: dict[Kind, str] = {}
        # Engine that crashed, as in `Tally.deaths` -> the last lines of its log.
        self._death_logs: dict[str, Sequence[str]] = {}
        # Row that has ended but has not reached a checker -> actor of its engine worker.
        self._underway: dict[str, str] = {}
        self._run: int | None = None
        # Actor of an engine worker -> run whose weights the engine has loaded or is loading.
        self._runs: dict[str, int] = {}
        # Run (None: all runs) -> why no engine swaps to the weights of this run.
        self._unswappable: dict[int | None, str] = {}

    def shared_refs(self) -> list[Any]:
        """Return the ObjectRefs of the entry table (`pipeline.entries`) and of the benchmarks.
        Constructors of actors do not get the refs: restarts of the actors would depend on them."""
        return self._shared

    def note_unless_stopped(self, process: ProcessInfo, report: RowReport) -> bool:
        """Note the ``report`` of ``process`` about its rows, and return True. If the report starts
        rows of a stopped run, note nothing and return False."""
        if report.entered is not None:
            if report.run in self._stopped:
                return False
            self._isolation[process.kind].enter(process.actor, report.entered)
            if (state := self._processes.get(process.actor)) is not None:
                state.has_begun = True
        self._isolation[process.kind].leave(process.actor, (*report.ended, *report.prepared))
        if process.kind == "engine":
            self._underway.update(dict.fromkeys(report.ended, process.actor))
        for row_id in report.late:
            self._underway.pop(row_id, None)
        self._given_back.update(report.given_back)
        if report.judged or report.stored:
            self._starts_since_progress.clear()
        if report.stored:
            self._deaths_since_write = 0
        self._tally.note(process.name, report)
        if self._metrics:
            self._metrics.note(report)
        return True

    def isolated(self, kind: Kind, ids: list[str]) -> dict[str, IsolatedRow]:
        """Return the states of those rows and preparations among ``ids`` that are isolated. If
        ``kind`` is "checker", also note that all ``ids`` have reached a checker."""
        if kind == "checker":
            for row_id in ids:
                self._underway.pop(row_id, None)
        return self._isolation[kind].states_of(ids)

    def count_unchecked(self, process: ProcessInfo) -> int:
        """Return the number of rows that ended at ``process`` and have not reached a checker."""
        return sum(actor == process.actor for actor in self._underway.values())

    def pop_returned(self, ids: list[str]) -> list[str]:
        """Return and forget the rows among ``ids`` that a worker has given back."""
        returned = [row_id for row_id in ids if row_id in self._given_back]
        self._given_back.difference_update(returned)
        return returned

    def count_bug(self, benchmark: str, origin: str, traceback: str) -> None:
        """Count a row that failed with an exception in the benchmark's code."""
        key = benchmark, origin
        self._tally.bugs.setdefault(key, Bug(*key, traceback)).rows += 1

    def note_failure(self, line: str, *, store: bool = False) -> None:
        self._tally.failure = self._tally.failure or line
        self._tally.store_failed = self._tally.store_failed or store

    def note_loading(self, process: ProcessInfo, run: int) -> None:
        """Note that the engine of ``process``, or its successor, loads the weights of ``run``."""
        self._run = self._runs[process.actor] = run
        if (state := self._processes.get(process.actor)) is not None:
            state.has_begun = False

    def note_loaded(
        self, run: int, facts: dict[str, Any] | None = None, *, broken: str = ""
    ) -> None:
        """Note that an engine has loaded the weights of ``run``, or why they cannot be evaluated
        (``broken``). The rows of such a run stay pending."""
        counts = self._tally.counts_of(run)
        counts.broken = counts.broken or broken
        if facts is not None:
            counts.ready_at = counts.ready_at or time.monotonic()
            counts.loads.append(facts)

    def swap_obstacle(self, why: str | None = None, *, run: int | None = None) -> str:
        """Return why engines cannot swap to the weights of ``run``, or "" if they can. If ``why``
        is given, first record it as the reason, unless there is one. ``run`` None: all runs."""
        if why:
            self._unswappable.setdefault(run, why)
        return self._unswappable.get(None) or self._unswappable.get(run, "")

    def process(self, actor: str) -> ProcessInfo | None:
        """Return the latest process of ``actor``, if it was ready and has not reported its end."""
        state = self._processes.get(actor)
        return state.process if state is not None and state.ready else None

    def register_start(self, process: ProcessInfo, gone: Death = KILLED) -> StartReply | None:
        """Register a process that starts. It replaces the previous process of the same actor, which
        ended for the reason ``gone`` if it sent no report. Return None after too many starts."""
        if process.kind == "engine":
            self._tally.begun_at = self._tally.begun_at or time.monotonic()
        last = self._processes.get(process.actor)
        state = self._processes[process.actor] = _ProcessState(process)
        if last is not None and last.ready:
            self._note_death(last.process, gone)
        elif last is not None:
            state.starts = last.starts + 1
        name, starts = NAMES[process.kind], self._starts_since_progress[process.actor]
        if process.kind == "writer" and self._deaths_since_write >= MAX_STARTS:
            self._tally.store_failed = True
            failure = f"the writer crashed {MAX_STARTS} times without storing a row"
        elif state.starts > MAX_STARTS:
            times = f"{MAX_STARTS} times and crashed each time"
            failure = f"the {name} on {process.host} was started {times}"
        elif process.kind != "writer" and starts >= MAX_STARTS_WITHOUT_PROGRESS:
            self._tally.no_progress = True
            failure = (
                f"{starts} {name}s started one after another, but no row made progress; the last "
                f"one ended: {self._last.get(process.kind, 'the cause is unknown')}"
            )
        else:
            self._starts_since_progress[process.actor] += 1
            has_started = self._had_success or bool(self._tally.workers)
            return StartReply(
                retryable=has_started and state.starts < MAX_STARTS,
                run=self._runs.get(process.actor, self._run),
                replaces=last is not None,
                starts_since_progress=starts,
            )
        self.note_failure(failure)
        return None

    def update_process(
        self,
        process: ProcessInfo,
        *,
        phase: str = "",
        facts: dict[str, Any] | None = None,
        load: EngineLoad | None = None,
        death: Death | None = None,
    ) -> float | None:
        """Note a heartbeat of ``process``, or one of the arguments. Return the seconds after which
        the process must end, or None. The driver reports the death of a process that it will kill.

        Args:
            phase: the phase of the engine's start (`ace_ray.models.start_phases`).
            facts: facts about the process, which is ready from now on.
            load: the load of the engine.
            death: why the process ends itself, or is killed."""
        state = self._processes.get(process.actor)
        if state is None or state.process != process:
            state = _ProcessState(process)  # the process was removed or replaced: keep nothing
        if death is not None:
            # Several threads of a process may report the same death.
            if state.ready:
                state.ready, state.starts = False, 0
                self._note_death(process, death)
        elif phase:
            state.phase = phase
        else:
            state.heard_at, state.load = time.monotonic(), load
            state.ready = state.ready or facts is not None
        if facts is not None and process.kind == "engine":
            self._tally.workers.append(facts)
        ends = [end for end in (self._drain_at, state.drain_at) if end is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def note_removal(self, actor: str, death: Death | None = None, *, node: bool = False) -> None:
        """Note that an engine worker is gone and is not restarted. Other workers get its rows.

        Args:
            death: why the worker died; None if its rows have ended or were given back.
            node: whether the worker's node is gone."""
        state = self._processes.pop(actor, None)
        if state is None or not state.ready or death is None:
            return
        if node:  # its rows are rarely the cause, so only rows that are isolated already stay so
            isolation = self._isolation["engine"]
            death = death._replace(rows=[*isolation.states_of(isolation.at_work.get(actor, ()))])
        self._note_death(state.process, death)

    def _note_death(self, process: ProcessInfo, death: Death) -> None:
        isolation = self._isolation[process.kind]
        if isolation.isolate(process.actor, death.rows, outside=death.outside):
            self._starts_since_progress.clear()
        self._last[process.kind] = f"{process.name}: {death.why}"
        if self._metrics:
            self._metrics.count_death(process.kind)
        if process.kind in ("engine", "role"):
            of_role = " (of a role)" * (process.kind == "role")
            self._tally.deaths.append(f"{process.name}{of_role}: {death.why}")
            self._death_logs[self._tally.deaths[-1]] = death.log
        if process.kind == "engine":
            self._underway = {row: a for row, a in self._underway.items() if a != process.actor}
        self._deaths_since_write += process.kind == "writer"

    def pop_death_log(self, line: str) -> Sequence[str]:
        """Return and forget the last lines of the log of an engine. ``line``: of `Tally.deaths`."""
        return self._death_logs.pop(line, ())

    def drain(self, seconds: float, actor: str | None = None) -> None:
        """Let no process start further rows, or only the engine worker ``actor``, whose node leaves
        the cluster. Rows in flight have ``seconds`` to end; then this worker gives them back."""
        end = time.monotonic() + seconds
        if actor is None:
            self._drain_at = end
        elif (state := self._processes.get(actor)) is not None:
            state.drain_at = end

    def stop_run(self, run: int) -> None:
        """Start no further rows of ``run``."""
        self._stopped.add(run)

    def read(self) -> Tally:
        tally, now_s = self._tally, time.monotonic()
        tally.isolated = {kind: isolation.rows for kind, isolation in self._isolation.items()}
        states = self._processes.values()
        tally.silent = {state.process: now_s - state.heard_at for state in states if state.ready}
        starting = [state for state in states if not state.ready]
        tally.starting = {state.process: now_s - state.heard_at for state in starting}
        tally.phases = Counter(state.phase for state in starting if state.phase)
        loads = [state.load for state in states if state.load]
        tally.load = EngineLoad(*map(sum, zip(*loads, strict=True)))
        rows = self._isolation["engine"].at_work
        tally.in_flight = sum(map(len, rows.values()))
        engines = [state for state in states if state.process.kind == "engine"]
        activities = Counter(state.activity(rows.get(state.process.actor)) for state in engines)
        tally.engines = EngineCounts(**activities)
        if self._metrics:
            self._metrics.show(tally, in_flight=tally.in_flight)
        return tally


def start_coordinator(
    entries: pa.Table,
    benchmarks: Mapping[str, Benchmark],
    isolated: Mapping[Kind, Mapping[str, IsolatedRow]] | None = None,
    *,
    had_success: bool = False,
    metrics: Callable[[], Metrics] | None = None,
    name: str | None = None,
) -> Any:
    """Start the coordinator and return its handle. Put entries and benchmarks into Ray's object
    store, which keeps one copy per node.

    Args:
        had_success: whether engines of this run have started before.
        metrics: makes the `Metrics` in the actor; None for no metrics.
        name: name of the actor. Actors that can restart find it by this name, because a restart
            must not depend on a handle (`Coordinator.shared_refs`)."""
    # The actor takes no logical CPU, which the pools need in a small cluster. It runs on the
    # driver's node, because other nodes may leave during the run, and have another clock.
    node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(Coordinator).options(num_cpus=0, name=name, scheduling_strategy=node)
    shared = [ray.put(entries), ray.put(dict(benchmarks))]
    return actor.remote(shared, isolated, had_success=had_success, metrics=metrics)


@cache
def fetch_shared(coordinator: Any) -> tuple[Entries, dict[str, Benchmark]]:
    """Return the entries and the benchmarks by name. All processes of a node share the entries."""
    table, benchmarks = ray.get(ray.get(coordinator.shared_refs.remote()))
    return Entries(table), benchmarks
