"""The run's notice board: a small actor that all processes report to and the driver reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import ray

from ace_ray.benchmarks.protocol import Benchmark
from ace_ray.run.metrics import Metrics
from ace_ray.run.suspects import Suspect, Suspects

MAX_STARTS = 3
"""Starts of one actor in a row that may fail before the run does."""

HOPELESS = 5
"""Rows in a row that kill engines: then it is the engines."""

Kind = Literal["engine", "checker", "writer"]
KINDS: tuple[Kind, ...] = ("engine", "checker", "writer")
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
    """How its weights came into engines (`ace_ray.run.candidate`)."""
    spent: dict[str, dict[str, float]] = field(default_factory=dict)
    """Worker -> state -> seconds (`ace_ray.run.clock`)."""
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
        """Whether no further row should be tried."""
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
        self._run: int | None = None
        self._unswappable: dict[int | None, str] = {}
        """By run; None: of all."""

    def shared(self) -> list[Any]:
        """ObjectRefs: of the run's entry table (`rows.ENTRIES`), and of its benchmarks.

        Workers ask for them here, since refs among an actor's constructor arguments, or arguments
        so large that Ray makes them refs, would tie the actor's restarts to them.
        """
        return self._shared

    def rows(self, rows: list[tuple[Any, ...]]) -> None:
        self._tally.add(rows)
        if self._metrics:
            self._metrics.rows(rows)

    def stored(self, run: int, rows: int) -> None:
        self._barren = 0
        share = self._tally.of(run)
        share.stored += rows
        share.last_stored_at = time.time()
        if self._metrics:
            self._metrics.stored(run, rows)

    def next_run(self, first: int) -> int:
        """Whose weights a starting engine should load: those that others hold or are about to,
        else those of ``first``."""
        return first if self._run is None else self._run

    def loading(self, run: int) -> None:
        """An engine is about to take the weights of ``run``."""
        self._run = run

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

    def starting(self, who: Who) -> bool | None:
        """A process begins, in place of the same actor's last one.

        Returns whether another start is worth while should this one fail, since engines of this run
        have started before; None when there have been too many starts already."""
        last = self._processes.get(who.actor)
        process = self._processes[who.actor] = _Process(who)
        if last is not None:
            process.starts = last.starts + 1
            if last.ready:
                process.starts = 1
                self._died(last.who, "its process was killed", None)
        if who.kind == "writer" and self._barren >= MAX_STARTS:
            self.fail(f"the writer died {MAX_STARTS} times and stored nothing", store=True)
            return None
        if process.starts > MAX_STARTS:
            self.fail(f"the {NAMES[who.kind]} on {who.host} died {MAX_STARTS} times as it started")
            return None
        return (self._proven or bool(self._tally.workers)) and process.starts < MAX_STARTS

    def ready(self, who: Who, facts: dict[str, Any]) -> None:
        self._processes[who.actor].ready = True
        self.beat(who)
        if who.kind == "engine":
            self._tally.workers.append(facts)

    def suspects(self, kind: Kind, ids: list[str]) -> dict[str, Suspect]:
        return self._books[kind].among(ids)

    def enter(self, who: Who, ids: list[str]) -> None:
        self._books[who.kind].enter(who.actor, ids)

    def leave(self, who: Who, ids: list[str]) -> None:
        self._books[who.kind].leave(who.actor, ids)

    def dying(self, who: Who, why: str, held: list[str] | None) -> None:
        """A process says that it is about to end itself, and what it was working on."""
        process = self._processes[who.actor]
        # One death is one, however many threads tell of it, and whenever that arrives.
        if process.ready and process.who == who:
            process.ready, process.starts = False, 0
            self._died(who, why, held)

    def _died(self, who: Who, why: str, held: list[str] | None) -> None:
        book = self._books[who.kind]
        book.died(who.actor, held)
        if self._metrics:
            self._metrics.died(who.kind)
        if who.kind == "engine":
            self._tally.deaths.append(f"{who.name}: {why}")
            if book.condemned_in_a_row >= HOPELESS:
                self._tally.hopeless = True
                self.fail(f"engines die on every row, the last {HOPELESS} they had alone: {why}")
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
