"""The run's notice board: a small actor that all processes report to and the driver reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import ray

from ace_ray.benchmarks.protocol import Benchmark
from ace_ray.run.health.isolation import KINDS, Kind, Suspect, Suspects
from ace_ray.run.monitoring.metrics import Metrics

MAX_STARTS = 3
"""Starts of one actor in a row that may fail before the run does."""

FRUITLESS = 10
"""Starts of one engine worker or checker in a row, however they end, after which no row of the run
has got further: then it is not the rows."""

NAMES = {"engine": "engine worker", "checker": "checker", "writer": "writer"}


@dataclass(frozen=True, slots=True)
class Who:
    """A process of the run. ``actor`` stays the same when Ray restarts it."""

    kind: Kind
    actor: str
    host: str
    node: str
    pid: int
    began: float
    """When the process was created, as its machine has it: a pid may come back."""

    @property
    def name(self) -> str:
        return f"{self.host}:{self.pid}"


@dataclass(frozen=True, slots=True)
class Start:
    """What a process learns as it begins."""

    hopeful: bool
    """Whether another start is worth while should this one fail, since engines of this run have
    started before."""
    run: int
    """Whose weights to load."""
    replaces: bool = False
    """Whether it takes the place of another one, whose rows come again."""
    fruitless: int = 0
    """Processes that have ended in this place one after another, while no row got further."""


@dataclass
class Share:
    """What one run has of a graph; wall-clock times."""

    done: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stored: int = 0
    ready_at: float | None = None
    """When an engine first held its weights."""
    first_row_at: float | None = None
    last_row_at: float | None = None
    last_stored_at: float | None = None
    loads: list[dict[str, Any]] = field(default_factory=list)
    """How its weights came into engines (`ace_ray.run.actors.candidate`)."""
    spent: dict[str, dict[str, float]] = field(default_factory=dict)
    """Worker -> state -> seconds (`ace_ray.run.monitoring.clock`)."""
    broken: str = ""
    """Why its weights cannot be evaluated."""


class Tally:
    """Running counts of a graph; plain Python, so that tests need no Ray."""

    def __init__(self) -> None:
        self.runs: dict[int, Share] = {}
        self.statuses: Counter[str] = Counter()
        self.groups: dict[tuple[str, str, str], list[int]] = {}
        """(benchmark, language, category) -> [scored, official valid, strict valid]"""
        self.workers: list[dict[str, Any]] = []
        self.failure = ""
        self.store_failed = False
        self.hopeless = False
        """Whether engines start again and again and no row gets further."""
        self.notice = ""
        """What the run is waiting for, if anything."""
        self.deaths: list[str] = []
        """Of engines, one line each."""
        self.other_deaths: Counter[str] = Counter()
        self.suspects: dict[Kind, dict[str, Suspect]] = {kind: {} for kind in KINDS}
        self.silent: dict[Who, float] = {}
        """Process that works -> seconds since it was last heard of."""
        self.starting: dict[Who, float] = {}
        """Process that is not ready -> seconds since it began."""

    def of(self, run: int) -> Share:
        return self.runs.setdefault(run, Share())

    @property
    def done(self) -> int:
        return sum(share.done for share in self.runs.values())

    @property
    def stored(self) -> int:
        return sum(share.stored for share in self.runs.values())

    @property
    def tokens(self) -> int:
        """Prompt and completion."""
        return sum(s.prompt_tokens + s.completion_tokens for s in self.runs.values())

    @property
    def first_ready_at(self) -> float | None:
        return min((s.ready_at for s in self.runs.values() if s.ready_at), default=None)

    @property
    def last_row_at(self) -> float | None:
        return max((s.last_row_at for s in self.runs.values() if s.last_row_at), default=None)

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        now = time.time()
        for run, benchmark, language, category, status, official, strict, *tokens in rows:
            share = self.of(run)
            share.first_row_at = share.first_row_at or now
            share.last_row_at = now
            share.done += 1
            share.prompt_tokens += tokens[0]
            share.completion_tokens += tokens[1]
            self.statuses[status] += 1
            if status == "scored":
                group = self.groups.setdefault((benchmark, language, category), [0, 0, 0])
                group[0] += 1
                group[1] += bool(official)
                group[2] += bool(strict)


@dataclass
class _Process:
    who: Who
    ready: bool = False
    starts: int = 1
    heard_at: float = field(default_factory=time.monotonic)


class Board:
    """Actor around a `Tally`; what it knows dies with the session, never a row."""

    def __init__(
        self,
        shared: list[Any],
        suspects: Mapping[Kind, Mapping[str, Suspect]] | None = None,
        *,
        proven: bool = False,
        metrics: Callable[[], Metrics] | None = None,
    ) -> None:
        self._tally = Tally()
        self._metrics = metrics() if metrics else None
        self._proven = proven
        self._shared = shared
        self._books = {kind: Suspects((suspects or {}).get(kind)) for kind in KINDS}
        self._processes: dict[str, _Process] = {}
        self._drain_at: float | None = None
        self._barren = 0
        """Deaths of the writer since rows were last stored."""
        self._fruitless: Counter[str] = Counter()
        """Engine worker or checker -> its starts since a row last got further."""
        self._last: dict[Kind, str] = {}
        """Why the last process of each kind ended."""
        self._underway: dict[str, str] = {}
        """Row that has ended and reached no checker -> the engine worker it is from."""
        self._killed: dict[Who, tuple[str, bool]] = {}
        """Process that the driver kills -> why, and whether the cause lies outside."""
        self._run: int | None = None
        self._runs: dict[str, int] = {}
        """Engine worker -> the run whose weights it has or wants."""
        self._unswappable: dict[int | None, str] = {}
        """By run; None: of all."""

    def shared(self) -> list[Any]:
        """ObjectRefs: of the run's entry table (`rows.ENTRIES`), and of its benchmarks.

        Workers ask for them here, since refs among an actor's constructor arguments, or arguments
        so large that Ray makes them refs, would tie the actor's restarts to them.
        """
        return self._shared

    def rows(self, rows: list[tuple[Any, ...]]) -> None:
        """What a checker has judged."""
        if rows:
            self._fruitless.clear()
        self._tally.add(rows)
        if self._metrics:
            self._metrics.rows(rows)

    def stored(self, run: int, rows: int) -> None:
        self._barren = 0
        self._fruitless.clear()
        share = self._tally.of(run)
        share.stored += rows
        share.last_stored_at = time.time()
        if self._metrics:
            self._metrics.stored(run, rows)

    def loading(self, who: Who, run: int) -> None:
        """An engine is about to take the weights of ``run``, or to end since only a new one can."""
        self._run = self._runs[who.actor] = run

    def loaded(self, run: int, facts: dict[str, Any]) -> None:
        """An engine holds them."""
        share = self._tally.of(run)
        share.ready_at = share.ready_at or time.time()
        share.loads.append(facts)

    def broken(self, run: int, why: str) -> None:
        """The weights of ``run`` cannot be evaluated; its rows stay owed."""
        share = self._tally.of(run)
        share.broken = share.broken or why

    def unswappable(self, why: str | None = None, *, run: int | None = None) -> str:
        """Why weights are not swapped in this graph any more, or into an engine for ``run``; ""
        while they are."""
        if why:
            self._unswappable.setdefault(run, why)
        return self._unswappable.get(None) or self._unswappable.get(run, "")

    def spent(self, run: int, worker: str, seconds: dict[str, float]) -> None:
        """What an engine worker's time on ``run`` went into so far."""
        self._tally.of(run).spent[worker] = seconds

    def fail(self, line: str, *, store: bool = False) -> None:
        self._tally.failure = self._tally.failure or line
        self._tally.store_failed = self._tally.store_failed or store

    def notice(self, line: str) -> None:
        self._tally.notice = line

    def predecessor(self, who: Who) -> Who | None:
        """Whose place ``who`` takes, if that one worked and did not say that it ends."""
        last = self._processes.get(who.actor)
        return last.who if last is not None and last.ready else None

    def starting(
        self, who: Who, first: int = 0, gone: tuple[str, bool] = ("its process was killed", True)
    ) -> Start | None:
        """A process begins, in place of the same actor's last one.

        Args:
            first: the run whose weights an engine loads if no other one has or wants any.
            gone: of a predecessor that said nothing: why it is gone, and whether the cause lies
                outside of it.

        Returns None when there have been too many starts already."""
        last = self._processes.get(who.actor)
        process = self._processes[who.actor] = _Process(who)
        if last is not None:
            process.starts = last.starts + 1
            if last.ready:
                process.starts = 1
                self._died(last.who, *self._killed.pop(last.who, gone), None)
        if who.kind == "writer" and self._barren >= MAX_STARTS:
            self.fail(f"the writer died {MAX_STARTS} times and stored nothing", store=True)
            return None
        if process.starts > MAX_STARTS:
            self.fail(f"the {NAMES[who.kind]} on {who.host} died {MAX_STARTS} times as it started")
            return None
        fruitless = self._fruitless[who.actor]
        if who.kind != "writer":
            if fruitless >= FRUITLESS:
                self._tally.hopeless = True
                self.fail(
                    f"{fruitless} {who.kind}s started one after another and no row got further; "
                    f"the last one ended: {self._last.get(who.kind, 'none says why')}"
                )
                return None
            self._fruitless[who.actor] += 1
        return Start(
            hopeful=(self._proven or bool(self._tally.workers)) and process.starts < MAX_STARTS,
            run=self._runs.get(who.actor, first if self._run is None else self._run),
            replaces=last is not None,
            fruitless=fruitless,
        )

    def ready(self, who: Who, facts: dict[str, Any]) -> None:
        self._processes[who.actor].ready = True
        self.beat(who)
        if who.kind == "engine":
            self._tally.workers.append(facts)

    def suspects(self, kind: Kind, ids: list[str]) -> dict[str, Suspect]:
        """Those among ``ids``, of rows that have come to a process of ``kind`` and of what they
        share."""
        if kind == "checker":
            for row_id in ids:
                self._underway.pop(row_id, None)
        return self._books[kind].among(ids)

    def enter(self, who: Who, ids: list[str]) -> None:
        self._books[who.kind].enter(who.actor, ids)

    def leave(self, who: Who, ids: list[str]) -> None:
        self._books[who.kind].leave(who.actor, ids)
        if who.kind == "engine":
            self._underway.update(dict.fromkeys(ids, who.actor))

    def prepared(self, who: Who, shared: str) -> None:
        """What several rows share (`suspects.shared_id`) is done; it passes on to no checker."""
        self._books[who.kind].leave(who.actor, [shared])

    def underway(self, who: Who) -> int:
        """Rows that have ended at ``who`` and have not come to a checker: they would be lost with
        the process."""
        return sum(actor == who.actor for actor in self._underway.values())

    def dying(self, who: Who, why: str, held: list[str] | None, outside: bool = False) -> None:
        """A process says that it is about to end itself, and what it was working on. ``outside``:
        the cause lies outside of it."""
        process = self._processes[who.actor]
        # One death is one, however many threads tell of it, and whenever that arrives.
        if process.ready and process.who == who:
            process.ready, process.starts = False, 0
            self._died(who, why, outside, held)

    def killing(self, who: Who, why: str, outside: bool) -> None:
        """The driver is about to kill ``who``."""
        self._killed[who] = why, outside

    def _died(self, who: Who, why: str, outside: bool, held: list[str] | None) -> None:
        if self._books[who.kind].died(who.actor, held, outside=outside):
            self._fruitless.clear()
        self._last[who.kind] = f"{who.name}: {why}"
        if self._metrics:
            self._metrics.died(who.kind)
        if who.kind == "engine":
            self._tally.deaths.append(f"{who.name}: {why}")
            self._underway = {row: a for row, a in self._underway.items() if a != who.actor}
        else:
            self._barren += who.kind == "writer"
            self._tally.other_deaths[who.kind] += 1

    def beat(self, who: Who) -> float | None:
        """The process lives. Returns the seconds left to end its work in; None: no hurry."""
        process = self._processes.get(who.actor)
        if process is not None and process.who == who:
            process.heard_at = time.monotonic()
        return None if self._drain_at is None else max(0.0, self._drain_at - time.monotonic())

    def drain(self, seconds: float) -> None:
        """Begin no further row, and give up those that have not ended in ``seconds``."""
        self._drain_at = time.monotonic() + seconds

    def read(self) -> Tally:
        now = time.monotonic()
        self._tally.suspects = {kind: book.known for kind, book in self._books.items()}
        self._tally.silent = {
            process.who: now - process.heard_at
            for process in self._processes.values()
            if process.ready
        }
        self._tally.starting = {
            process.who: now - process.heard_at
            for process in self._processes.values()
            if not process.ready
        }
        if self._metrics:
            self._metrics.show(self._tally, in_flight=self._books["engine"].held)
        return self._tally


def start_board(
    entries: pa.Table,
    benchmarks: Mapping[str, Benchmark],
    suspects: Mapping[Kind, Mapping[str, Suspect]] | None = None,
    *,
    proven: bool = False,
    metrics: Callable[[], Metrics] | None = None,
    name: str | None = None,
) -> Any:
    """The board's actor handle. Entries and benchmarks go to the object store: one copy per node.
    ``proven``: engines of this run have started before, so one that does not may still.
    ``metrics`` is called in the actor. ``name`` is what `named_board` finds it by."""
    # No logical CPU: it must never compete with the pools for a small cluster.
    actor = ray.remote(Board).options(num_cpus=0, name=name)
    shared = [ray.put(entries), ray.put(dict(benchmarks))]
    return actor.remote(shared, suspects, proven=proven, metrics=metrics)


def named_board(name: str) -> Any:
    """The board's handle, for actors that restart: among the arguments of their constructors it
    would be a ref, too (see `Board.shared`)."""
    return ray.get_actor(name)


def fetch_entries(board: Any) -> pa.Table:
    """The entry table, shared by all processes of this node."""
    ref, _ = ray.get(board.shared.remote())
    return ray.get(ref)


def fetch_benchmarks(board: Any) -> dict[str, Benchmark]:
    """The run's benchmarks by name."""
    _, ref = ray.get(board.shared.remote())
    found: dict[str, Benchmark] = ray.get(ref)
    return found
