"""The run's coordinator: a small actor that all processes report to and the driver reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ace_ray.benchmarks.base import Benchmark
from ace_ray.pipeline.entries import Entries
from ace_ray.pipeline.health.isolation import OPEN, IsolatedRow, Isolation
from ace_ray.pipeline.health.processes import KINDS, NAMES, Kind, ProcessInfo
from ace_ray.pipeline.monitoring.counts import Bug, Tally
from ace_ray.pipeline.monitoring.metrics import Metrics

MAX_STARTS = 3
"""Starts of one actor in a row that may fail before the run does."""

MOST_BUGS = 100
"""Places at which exceptions of benchmarks' code are counted."""

MAX_STARTS_WITHOUT_PROGRESS = 10
"""Starts of one engine worker or checker in a row, however they end, after which no row of the run
has got further: then it is not the rows."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a process learns as it begins."""

    retryable: bool
    """Whether another start is worth while should this one fail, since engines of this run have
    started before."""
    run: int
    """Whose weights to load."""
    replaces: bool = False
    """Whether it takes the place of another one, whose rows come again."""
    starts_since_progress: int = 0
    """Processes that have ended in this place one after another, while no row got further."""
    isolated: bool = False
    """Whether rows of the run are isolated."""


@dataclass
class _ProcessState:
    process: ProcessInfo
    ready: bool = False
    starts: int = 1
    heard_at: float = field(default_factory=time.monotonic)
    phase: str = ""
    """Of an engine's start."""
    drain_at: float | None = None
    """When its node goes."""


class Coordinator:
    """Actor around a `Tally`. What it knows ends with the session; it holds no rows."""

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
        self._given_back: set[str] = set()
        """Rows that workers have not ended which leave their nodes."""
        self._stopped: set[int] = set()
        self._deaths_since_write = 0
        """Deaths of the writer since rows were last stored."""
        self._starts_since_progress: Counter[str] = Counter()
        """Engine worker or checker -> its starts since a row last got further."""
        self._last: dict[Kind, str] = {}
        """Why the last process of each kind ended."""
        self._underway: dict[str, str] = {}
        """Row that has ended and reached no checker -> the engine worker it is from."""
        self._killed: dict[ProcessInfo, tuple[str, bool]] = {}
        """Process that the driver kills -> why, and whether the cause lies outside."""
        self._run: int | None = None
        self._runs: dict[str, int] = {}
        """Engine worker -> the run whose weights it has or wants."""
        self._unswappable: dict[int | None, str] = {}
        """By run; None: of all."""

    def shared(self) -> list[Any]:
        """ObjectRefs: of the run's entry table (`run.entries`), and of its benchmarks.

        Workers ask for them here, since refs among an actor's constructor arguments, or arguments
        so large that Ray makes them refs, would tie the actor's restarts to them.
        """
        return self._shared

    def rows(
        self,
        rows: list[tuple[Any, ...]],
        process: ProcessInfo | None = None,
        ids: Sequence[str] = (),
    ) -> None:
        """Count what a checker has judged of a block. ``ids`` are rows that ``process`` works on no
        more."""
        if process is not None:
            self.leave(process, ids)
        if rows:
            self._starts_since_progress.clear()
        self._tally.add(rows)
        if self._metrics:
            self._metrics.rows(rows)

    def stored(self, run: int, rows: int) -> None:
        self._deaths_since_write = 0
        self._starts_since_progress.clear()
        self._tally.notice = ""
        counts = self._tally.of(run)
        counts.stored += rows
        counts.last_stored_at = time.time()
        if self._metrics:
            self._metrics.stored(run, rows)

    def loading(self, process: ProcessInfo, run: int) -> None:
        """An engine is about to take the weights of ``run``, or to end since only a new one can."""
        self._run = self._runs[process.actor] = run

    def loaded(self, run: int, facts: dict[str, Any]) -> None:
        """An engine holds them."""
        counts = self._tally.of(run)
        counts.ready_at = counts.ready_at or time.time()
        counts.loads.append(facts)

    def broken(self, run: int, why: str) -> None:
        """The weights of ``run`` cannot be evaluated; its rows stay pending."""
        counts = self._tally.of(run)
        counts.broken = counts.broken or why

    def unswappable(self, why: str | None = None, *, run: int | None = None) -> str:
        """Why weights are not swapped in this graph any more, or into an engine for ``run``; ""
        while they are."""
        if why:
            self._unswappable.setdefault(run, why)
        return self._unswappable.get(None) or self._unswappable.get(run, "")

    def spent(self, run: int, worker: str, seconds: dict[str, float]) -> None:
        """What an engine worker's time on ``run`` went into so far."""
        self._tally.of(run).spent[worker] = seconds

    def bug(self, benchmark: str, place: str, traceback: str) -> None:
        """A row ended in an exception of the benchmark's code."""
        known = self._tally.bugs
        if len(known) < MOST_BUGS or (benchmark, place) in known:
            known.setdefault((benchmark, place), Bug(benchmark, place, traceback)).rows += 1

    def fail(self, line: str, *, store: bool = False) -> None:
        self._tally.failure = self._tally.failure or line
        self._tally.store_failed = self._tally.store_failed or store

    def notice(self, line: str) -> None:
        self._tally.notice = line

    def predecessor(self, process: ProcessInfo) -> ProcessInfo | None:
        """Whose place ``process`` takes, if that one worked and did not say that it ends."""
        last = self._processes.get(process.actor)
        return last.process if last is not None and last.ready else None

    def starting(
        self,
        process: ProcessInfo,
        first: int = 0,
        gone: tuple[str, bool] = ("its process was killed", True),
    ) -> Start | None:
        """A process begins, in place of the same actor's last one.

        Args:
            first: the run whose weights an engine loads if no other one has or wants any.
            gone: of a predecessor that said nothing: why it is gone, and whether the cause lies
                outside of it.

        Returns None when there have been too many starts already."""
        if process.kind == "engine":
            self._tally.begun_at = self._tally.begun_at or time.time()
        last = self._processes.get(process.actor)
        state = self._processes[process.actor] = _ProcessState(process)
        if last is not None:
            state.starts = last.starts + 1
            if last.ready:
                state.starts = 1
                self._died(last.process, *self._killed.pop(last.process, gone), None)
        if process.kind == "writer" and self._deaths_since_write >= MAX_STARTS:
            self.fail(f"the writer died {MAX_STARTS} times and stored nothing", store=True)
            return None
        if state.starts > MAX_STARTS:
            self.fail(
                f"the {NAMES[process.kind]} on {process.host} died {MAX_STARTS} times as it started"
            )
            return None
        starts = self._starts_since_progress[process.actor]
        if process.kind != "writer":
            if starts >= MAX_STARTS_WITHOUT_PROGRESS:
                self._tally.no_progress = True
                self.fail(
                    f"{starts} {process.kind}s started one after another and no row got further; "
                    "the last one ended: "
                    f"{self._last.get(process.kind, 'none says why')}"
                )
                return None
            self._starts_since_progress[process.actor] += 1
        return Start(
            retryable=(self._had_success or bool(self._tally.workers))
            and state.starts < MAX_STARTS,
            run=self._runs.get(process.actor, first if self._run is None else self._run),
            replaces=last is not None,
            starts_since_progress=starts,
            isolated=bool(self._isolation[process.kind].rows),
        )

    def phase(self, process: ProcessInfo, phase: str) -> None:
        """The start of an engine has come so far (`ace_ray.models.start_phases`)."""
        if (state := self._processes.get(process.actor)) is not None:
            state.phase = phase

    def ready(self, process: ProcessInfo, facts: dict[str, Any]) -> None:
        if (state := self._processes.get(process.actor)) is not None:
            state.ready = True
        self.beat(process)
        if process.kind == "engine":
            self._tally.workers.append(facts)

    def isolated(self, kind: Kind, ids: list[str]) -> dict[str, IsolatedRow]:
        """Return the isolated ones of ``ids``, of rows that have come to a process of ``kind`` and
        of what they share."""
        if kind == "checker":
            for row_id in ids:
                self._underway.pop(row_id, None)
        return self._isolation[kind].among(ids)

    def checking(self, process: ProcessInfo, ids: list[str]) -> dict[str, IsolatedRow]:
        """`isolated`, of rows that have come to a checker; it works on the others from now on."""
        isolated = self.isolated(process.kind, ids)
        apart = {row for row, known in isolated.items() if known.end or known.group != OPEN}
        self.enter(process, [row_id for row_id in ids if row_id not in apart])
        return isolated

    def enter(self, process: ProcessInfo, ids: list[str], run: int | None = None) -> bool:
        """``process`` works on ``ids`` from now on, unless no further rows of ``run`` are wanted.
        Returns whether it may."""
        if run in self._stopped:
            return False
        self._isolation[process.kind].enter(process.actor, ids)
        return True

    def leave(
        self,
        process: ProcessInfo,
        ids: Sequence[str],
        spent: tuple[int, dict[str, float]] | None = None,
    ) -> None:
        """``process`` has ended its work on ``ids``. ``spent`` is the run, and what the time of an
        engine worker on it went into so far."""
        self._isolation[process.kind].leave(process.actor, ids)
        if process.kind == "engine":
            self._underway.update(dict.fromkeys(ids, process.actor))
        if spent is not None:
            self.spent(spent[0], process.name, spent[1])

    def prepared(self, process: ProcessInfo, shared: str) -> None:
        """What several rows share (`isolation.shared_id`) is done; it passes on to no checker."""
        self._isolation[process.kind].leave(process.actor, [shared])

    def underway(self, process: ProcessInfo) -> int:
        """Rows that have ended at ``process`` and have not come to a checker: they would be lost
        with it."""
        return sum(actor == process.actor for actor in self._underway.values())

    def dying(
        self, process: ProcessInfo, why: str, rows_at_work: list[str] | None, outside: bool = False
    ) -> None:
        """A process says that it is about to end itself, and what it was working on. ``outside``:
        the cause lies outside of it."""
        state = self._processes.get(process.actor)
        # One death is one, however many threads tell of it, and whenever that arrives.
        if state is not None and state.ready and state.process == process:
            state.ready, state.starts = False, 0
            self._died(process, why, outside, rows_at_work)

    def killing(self, process: ProcessInfo, why: str, outside: bool) -> None:
        """The driver is about to kill ``process``."""
        self._killed[process] = why, outside

    def _died(
        self, process: ProcessInfo, why: str, outside: bool, rows_at_work: list[str] | None
    ) -> None:
        if self._isolation[process.kind].died(process.actor, rows_at_work, outside=outside):
            self._starts_since_progress.clear()
        self._last[process.kind] = f"{process.name}: {why}"
        if self._metrics:
            self._metrics.died(process.kind)
        if process.kind == "engine":
            self._tally.deaths.append(f"{process.name}: {why}")
            self._underway = {row: a for row, a in self._underway.items() if a != process.actor}
        else:
            self._deaths_since_write += process.kind == "writer"
            self._tally.other_deaths[process.kind] += 1

    def beat(self, process: ProcessInfo) -> float | None:
        """The process lives. Returns the seconds left to end its work in; None: no deadline."""
        state = self._processes.get(process.actor)
        if state is not None and state.process == process:
            state.heard_at = time.monotonic()
        ends = [self._drain_at, state.drain_at if state is not None else None]
        left = [end - time.monotonic() for end in ends if end is not None]
        return max(0.0, min(left)) if left else None

    def drain(self, seconds: float) -> None:
        """Begin no further row, and give up those that have not ended in ``seconds``."""
        self._drain_at = time.monotonic() + seconds

    def process(self, actor: str) -> ProcessInfo | None:
        """The last one of ``actor``."""
        state = self._processes.get(actor)
        return state.process if state is not None else None

    def leave_node(self, actor: str, seconds: float) -> None:
        """The node of an engine worker goes: it begins no further row, and gives back those that
        have not ended in ``seconds``."""
        if (state := self._processes.get(actor)) is not None:
            state.drain_at = time.monotonic() + seconds

    def left(self, actor: str) -> None:
        """An engine worker has ended all its rows, or given them back, and goes."""
        self._processes.pop(actor, None)

    def lost(self, actor: str, why: str, outside: bool, *, node: bool) -> None:
        """An engine worker is gone, and others get its rows; it is not started again. ``node``: it
        went with its node."""
        state = self._processes.pop(actor, None)
        if state is None or not state.ready:
            return
        if node:
            self._isolation["engine"].moved(actor)
        self._died(state.process, why, outside, None)

    def stop_run(self, run: int) -> None:
        """No further rows of ``run`` are wanted."""
        self._stopped.add(run)

    def give_back(self, ids: list[str]) -> None:
        """Rows that a worker has not ended and another one is to evaluate."""
        self._given_back.update(ids)

    def given_back(self, ids: list[str]) -> list[str]:
        """Those of ``ids`` that were given back, once."""
        back = [row_id for row_id in ids if row_id in self._given_back]
        self._given_back.difference_update(back)
        return back

    def read(self) -> Tally:
        now = time.monotonic()
        self._tally.isolated = {kind: isolation.rows for kind, isolation in self._isolation.items()}
        self._tally.silent = {
            state.process: now - state.heard_at for state in self._processes.values() if state.ready
        }
        self._tally.starting = {
            state.process: now - state.heard_at
            for state in self._processes.values()
            if not state.ready
        }
        self._tally.phases = Counter(
            state.phase for state in self._processes.values() if not state.ready and state.phase
        )
        if self._metrics:
            self._metrics.show(self._tally, in_flight=self._isolation["engine"].at_work)
        return self._tally


def start_coordinator(
    entries: pa.Table,
    benchmarks: Mapping[str, Benchmark],
    isolated: Mapping[Kind, Mapping[str, IsolatedRow]] | None = None,
    *,
    had_success: bool = False,
    metrics: Callable[[], Metrics] | None = None,
    name: str | None = None,
) -> Any:
    """Its actor handle. Entries and benchmarks go to the object store: one copy per node.
    ``had_success``: engines of this run have started before, so one that does not may still.
    ``metrics`` is called in the actor. ``name`` is what `named_coordinator` finds it by."""
    # No logical CPU: it must never compete with the pools for a small cluster. On the driver's
    # node, without which there is no run: others may go.
    node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = ray.remote(Coordinator).options(num_cpus=0, name=name, scheduling_strategy=node)
    shared = [ray.put(entries), ray.put(dict(benchmarks))]
    return actor.remote(shared, isolated, had_success=had_success, metrics=metrics)


def named_coordinator(name: str) -> Any:
    """Its handle, for actors that restart: among the arguments of their constructors it would be a
    ref, too (see `Coordinator.shared`)."""
    return ray.get_actor(name)


def fetch_shared(coordinator: Any) -> tuple[Entries, dict[str, Benchmark]]:
    """Return the entries, shared by all processes of this node, and the benchmarks by name."""
    table, benchmarks = ray.get(ray.get(coordinator.shared.remote()))
    return Entries(table), benchmarks
