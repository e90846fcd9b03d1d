"""Actors of the graph: engine workers drive episodes, checkers judge them, a writer stores them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import ray

from ace_ray.benchmarks.protocol import Benchmark, Player, Stage
from ace_ray.config import RunConfig
from ace_ray.errors import EngineDead, RowError, UserError
from ace_ray.models.sources import ModelRef, materialize
from ace_ray.records import Completion, Entry, Episode, Sampling
from ace_ray.run.board import MAX_STARTS, NAMES, Who, fetch_entries
from ace_ray.run.gate import OPEN, Gate
from ace_ray.run.judging import judged, log_traceback
from ace_ray.run.lifeline import Lifeline, die, end_children, whoami
from ace_ray.run.parts import PART_BYTES, write_parts
from ace_ray.run.roles import Parts, Players, Served
from ace_ray.run.rows import (
    EPISODES,
    ROWS,
    clean,
    entry_at,
    episode_columns,
    verdict_columns,
)
from ace_ray.sandbox.actor import SandboxPool
from ace_ray.sandbox.protocol import Scenario
from ace_ray.store import Store

DEADLINE_GRACE_S = 300.0
"""For an episode that has reached its deadline to read its sandbox's state."""

START_AGAIN_S = 5.0
"""Pause before an engine that could not start is started again."""

ALIVE_S = 30.0
"""Seconds within which a working engine answers between two steps."""

CHECK_S = 300.0
"""Seconds that the checks of one block, or of one suspect, may take."""

WRITE_S = 300.0
"""Seconds that one attempt to store a part may take."""

FLUSH_S = 30.0
"""Rows that wait for others to make a part of a good size wait so long."""


@dataclass(frozen=True)
class Job:
    """What every actor of one run needs. Small: entries travel once, through the board."""

    run_id: str
    config: RunConfig
    model: ModelRef
    engine: dict[str, Any]
    benchmarks: Mapping[str, Benchmark]
    board: Any
    """Actor handle of the run's `Board`, which also knows the entries."""
    parts: Parts
    served: Mapping[tuple[str, str], Served]
    sandboxes: tuple[Any, ...]
    """Handles of `SandboxActor`s; empty when no row is interactive."""


class Scenarios:
    """Opens the scenario of an entry by its index, in a sandbox actor."""

    def __init__(self, board: Any, benchmarks: Mapping[str, Benchmark]) -> None:
        self._board, self._benchmarks = board, benchmarks
        self._entries: pa.Table | None = None

    def __call__(self, index: int) -> Scenario:
        if self._entries is None:
            self._entries = fetch_entries(self._board)
        entry = entry_at(self._entries, index)
        return self._benchmarks[entry.benchmark].scenario(entry)


def start_engine(job: Job) -> Any:
    """The engine of this worker, loaded."""
    if job.config.backend == "fake":
        from ace_ray.models.fake import FakeEngine

        return FakeEngine(job.engine)
    from ace_ray.models.vllm_engine import VLLMEngine

    return VLLMEngine(
        materialize(job.model),
        job.engine,
        template_kwargs=job.config.model.chat_template_kwargs,
        reasoning_parser=job.config.model.reasoning_parser,
        tool_parser=job.config.model.tool_parser,
    )


def report(job: Job, what: str, error: Exception, *, store: bool = False) -> None:
    """Put the cause on the board: Ray hands a driver the text of a long traceback only."""
    line = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    ray.get(job.board.fail.remote(f"{what}: {clean(line)[:2000]}", store=store))


def start(board: Any, who: Who) -> bool:
    """Tell the board that this process begins. Returns whether another start is worth while should
    this one fail. Raises `RuntimeError` when there were too many."""
    hopeful: bool = ray.get(board.starting.remote(who))
    if hopeful is None:
        raise RuntimeError(f"the {NAMES[who.kind]} died {MAX_STARTS} times as it started")
    return hopeful


class EngineWorker:
    """Hosts one engine in-process and drives many episodes on it at once.

    One call handles one block; Ray Data keeps many calls in flight, so rows of different blocks
    share the engine's batches.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._board = job, job.board
        self._who = whoami("engine")
        began = time.perf_counter()
        hopeful = False
        try:
            hopeful = start(self._board, self._who)
            self._entries = fetch_entries(job.board)
            self._engine = Watched(start_engine(job), ask_after_s=job.config.stall_s / 4)
            self._players = Players(job.parts, job.served, self._engine, seed=os.getpid())
            self._sandboxes = SandboxPool(job.sandboxes)
        except Exception as error:
            if hopeful and not isinstance(error, UserError):
                # Memory of an engine that has just died may not be free yet. A raised exception
                # would end the run; a dead process is started anew.
                log_traceback()
                time.sleep(START_AGAIN_S)
                end_children()
                os._exit(1)
            report(job, "an engine worker could not start", error)
            raise
        self._held: dict[str, asyncio.Task[Any]] = {}
        self._gate = Gate()
        self._stopping = False
        self._ticked_at = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        load_s = time.perf_counter() - began
        facts = {
            "worker": self._who.name,
            "load_s": round(load_s, 2),
            "max_model_len": self._engine.max_model_len,
            "engine_version": self._engine.version,
        }
        ray.get(self._board.ready.remote(self._who, facts))
        Lifeline(
            self._board,
            self._who,
            stall_s=job.config.stall_s,
            busy_since=self._busy_since,
            held=lambda: list(self._held),
            on_drain=self._drain,
        )

    async def __call__(self, block: pa.Table) -> pa.Table:
        self._loop = asyncio.get_running_loop()
        planned = block.to_pylist()
        if self._stopping:
            return EPISODES.empty_table()
        suspects = await self._board.suspects.remote("engine", [row["row_id"] for row in planned])
        groups: dict[int, list[dict[str, Any]]] = {}
        done = []
        for row in planned:
            suspect = suspects.get(row["row_id"])
            if suspect is not None and suspect.condemned:
                done.append(self._quarantined(row, suspect.deaths))
            else:
                groups.setdefault(suspect.group if suspect else OPEN, []).append(row)
        earlier = {row_id: suspect.deaths for row_id, suspect in suspects.items()}
        parts = await asyncio.gather(
            *(self._together(rows, group, earlier) for group, rows in groups.items())
        )
        done += [record for part in parts for record in part]
        return pa.Table.from_pylist(done, schema=EPISODES)

    async def _together(
        self, rows: list[dict[str, Any]], group: int, earlier: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        """The records of rows that may be in the engine together; none for those given up."""
        async with self._gate.entered(group):
            if self._stopping:
                return []
            ids = [row["row_id"] for row in rows]
            await self._board.enter.remote(self._who, ids)
            for row in rows:
                attempt = row["attempt"] + earlier.get(row["row_id"], 0)
                self._held[row["row_id"]] = asyncio.ensure_future(self._row(row, attempt))
            tasks = [self._held[row_id] for row_id in ids]
            await asyncio.wait(tasks)
            self._board.leave.remote(self._who, ids)
        return [task.result() for task in tasks if not task.cancelled()]

    async def _row(self, row: dict[str, Any], attempt: int) -> dict[str, Any]:
        entry = entry_at(self._entries, row["entry"])
        clock = time.perf_counter()
        record = self._blank(row, attempt)
        benchmark = self._job.benchmarks[entry.benchmark]
        try:
            episode = await self._episode(benchmark, entry, row)
            record |= episode_columns(episode)
        except EngineDead as error:
            # Only a dead process makes Ray retry the rows elsewhere; an exception would fail the
            # whole job.
            die(self._board, self._who, str(error), list(self._held))
        except RowError as error:
            record |= {"status": error.status, **_named(error)}
        except TimeoutError:
            limit = self._job.config.episode_timeout_s
            record |= {
                "status": "infra_error",
                "error_class": "EpisodeTimeout",
                "error": f"no end within episode_timeout_s = {limit:g}",
            }
        except Exception as error:  # noqa: BLE001 - one row's failure never ends the run
            record |= {"status": "infra_error", **_named(error)}
            log_traceback()
        finally:
            self._held.pop(row["row_id"], None)
        record["duration_s"] = time.perf_counter() - clock
        return record

    def _blank(self, row: Mapping[str, Any], attempt: int) -> dict[str, Any]:
        return {
            **row,
            **episode_columns(Episode()),
            "status": "scored",
            "error_class": None,
            "error": None,
            "attempts": attempt,
            "started_at": datetime.now(UTC),
            "worker": self._who.name,
            "duration_s": 0.0,
        }

    def _quarantined(self, row: dict[str, Any], deaths: int) -> dict[str, Any]:
        return self._blank(row, row["attempt"] + deaths - 1) | {
            "status": "quarantined",
            "error_class": "EngineKilled",
            "error": f"{deaths} engines died while they worked on this row, the last on it alone",
        }

    async def _episode(self, benchmark: Benchmark, entry: Entry, row: Mapping[str, Any]) -> Episode:
        sampling = self._job.config.sampling.sampling().for_sample(row["sample"])
        limit = self._job.config.episode_timeout_s
        stage = Stage(
            candidate=Player(self._engine, sampling),
            roles=self._players.of(entry.benchmark, row["sample"]),
            open_sandbox=lambda: self._sandboxes.open(row["entry"]),
            deadline=asyncio.get_running_loop().time() + limit,
            works=self._engine.works,
        )
        # An interactive episode ends by itself at the deadline and keeps what it has reached.
        grace = DEADLINE_GRACE_S if benchmark.interactive(entry) else 0.0
        return await asyncio.wait_for(benchmark.run_episode(entry, stage), limit + grace)

    def _busy_since(self) -> float | None:
        """When there was last a sign of work on the rows held; None: there are none.

        The engine's, and that of this process's own loop, in which a row may hang too."""
        if not self._held or self._loop is None:
            self._ticked_at = time.monotonic()
            return None
        self._loop.call_soon_threadsafe(self._tick)
        owed = self._engine.busy_since()
        return self._ticked_at if owed is None else min(owed, self._ticked_at)

    def _tick(self) -> None:
        self._ticked_at = time.monotonic()

    def _drain(self, seconds: float) -> None:
        """Begin no row any more; give up after ``seconds`` what is in flight: it is owed again."""
        self._stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._give_up)

    def _give_up(self) -> None:
        for task in self._held.values():
            task.cancel()


class Watched:
    """The candidate's engine, and since when it owes a sign of life.

    Answers are such signs. Where none comes for a while, since all are long, the engine is asked
    whether it still works.
    """

    def __init__(self, engine: Any, ask_after_s: float) -> None:
        self._engine, self._ask_after_s = engine, ask_after_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking: asyncio.Task[None] | None = None
        self._owed = 0
        self._heard_at = 0.0
        self.max_model_len: int = engine.max_model_len
        self.version: str = engine.version

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        self._loop = asyncio.get_running_loop()
        if not self._owed:
            self._heard_at = time.monotonic()
        self._owed += 1
        try:
            answer: Completion = await self._engine.chat(messages, sampling, tools)
            return answer
        finally:
            self._owed -= 1
            self._heard_at = time.monotonic()

    async def works(self) -> bool:
        """Whether the engine gives a sign of life now."""
        with suppress(Exception):
            await asyncio.wait_for(self._engine.alive(), ALIVE_S)
            return True
        return False

    def busy_since(self) -> float | None:
        """When the engine was last heard of (`time.monotonic`), while it owes answers; else None.

        Called from another thread, since the loop of the engine may be what hangs."""
        if not self._owed or self._loop is None:
            return None
        if time.monotonic() - self._heard_at > self._ask_after_s and self._asking is None:
            self._loop.call_soon_threadsafe(self._ask)
        return self._heard_at

    def _ask(self) -> None:
        async def ask() -> None:
            with suppress(Exception):  # the calls themselves meet what is wrong
                await self._engine.alive()
                self._heard_at = time.monotonic()
            self._asking = None

        if self._asking is None:
            self._asking = asyncio.ensure_future(ask())


def _named(error: Exception) -> dict[str, str]:
    return {"error_class": type(error).__name__, "error": clean(str(error))[:2000]}


class Checker:
    """Adds the verdicts of all rule sets. Stateless: any checker can take any row."""

    def __init__(self, job: Job) -> None:
        self._job, self._board = job, job.board
        self._who = whoami("checker")
        start(self._board, self._who)
        self._entries = fetch_entries(job.board)
        self._since: float | None = None
        ray.get(self._board.ready.remote(self._who, {}))
        Lifeline(self._board, self._who, stall_s=CHECK_S, busy_since=lambda: self._since)

    def __call__(self, block: pa.Table) -> pa.Table:
        try:
            return self._checked(block)
        except Exception as error:
            report(self._job, "a checker failed", error)
            raise

    def _checked(self, block: pa.Table) -> pa.Table:
        rows = block.to_pylist()
        ids = [row["row_id"] for row in rows]
        suspects = ray.get(self._board.suspects.remote("checker", ids)) if ids else {}
        groups: dict[int, list[dict[str, Any]]] = {}
        checked = []
        for row in rows:
            suspect = suspects.get(row["row_id"])
            if suspect is not None and suspect.condemned:
                checked.append(self._quarantined(row, suspect.deaths))
            else:
                groups.setdefault(suspect.group if suspect else OPEN, []).append(row)
        for group in groups.values():
            checked += self._together(group)
        self._board.rows.remote(
            [
                (
                    row["benchmark"],
                    row["language"],
                    row["category"],
                    row["status"],
                    row["official_valid"],
                    row["strict_valid"],
                    row["prompt_tokens"],
                    row["completion_tokens"],
                )
                for row in checked
            ]
        )
        return pa.Table.from_pylist(checked, schema=ROWS)

    def _together(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ids = [row["row_id"] for row in rows]
        # Waited for: what kills this process must be on the board before.
        ray.get(self._board.enter.remote(self._who, ids))
        self._since = time.monotonic()
        checked = [self._check(row) for row in rows]
        self._since = None
        self._board.leave.remote(self._who, ids)
        return checked

    def _check(self, row: dict[str, Any]) -> dict[str, Any]:
        entry = entry_at(self._entries, row["entry"])
        return self._keyed(judged(row, entry, self._job.benchmarks[entry.benchmark]), entry)

    def _quarantined(self, row: dict[str, Any], deaths: int) -> dict[str, Any]:
        row |= {
            "status": "quarantined",
            "error_class": "CheckerKilled",
            "error": f"{deaths} checkers died while they judged this row, the last on it alone",
        }
        return self._keyed({**row, **verdict_columns({})}, entry_at(self._entries, row["entry"]))

    def _keyed(self, row: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
        return {
            **{name: value for name, value in row.items() if name not in ("entry", "attempt")},
            "run_id": self._job.run_id,
            "seed": self._job.config.sampling.seed + row["sample"],
            "benchmark": entry.benchmark,
            "category": entry.category,
            "language": entry.language,
            "id": entry.id,
            "group": entry.group,
        }


class Writer:
    """Stores rows as parts, many blocks to a part. An actor, not a task: its process is up before
    the first row is, instead of starting when the last one waits for it.

    A call returns when the rows of its block are stored, and not before: Ray keeps the block until
    then and repeats the call should this process die, so rows that wait here for others cannot be
    lost. They wait until there are enough of them, for `FLUSH_S`, or until no more will come.
    """

    def __init__(
        self, job: Job, store: Store, session: str, *, rows: int, planned: int, calls: int
    ) -> None:
        self._job, self._store, self._session = job, store, session
        self._rows, self._calls = rows, calls
        self._board, self._who = job.board, whoami("writer")
        start(self._board, self._who)
        self._left = planned - ray.get(job.board.read.remote()).stored
        self._waiting: list[pa.Table] = []
        self._stored: asyncio.Future[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._writing: list[float] = []
        ray.get(self._board.ready.remote(self._who, {}))
        Lifeline(
            self._board,
            self._who,
            stall_s=job.config.store_patience_s + WRITE_S,
            busy_since=lambda: min(self._writing, default=None),
        )

    async def __call__(self, table: pa.Table) -> pa.Table:
        if self._stored is None:
            self._stored = asyncio.get_running_loop().create_future()
            self._timer = asyncio.ensure_future(self._flush_in_time())
        stored = self._stored
        self._waiting.append(table)
        self._left -= table.num_rows
        rows = sum(waiting.num_rows for waiting in self._waiting)
        size = sum(waiting.nbytes for waiting in self._waiting)
        last = self._left <= 0 or len(self._waiting) >= self._calls
        if last or rows >= self._rows or size >= PART_BYTES // 2:
            await self._flush()
        await asyncio.shield(stored)
        return pa.table({"rows": [table.num_rows]})

    async def _flush_in_time(self) -> None:
        until = time.monotonic() + FLUSH_S
        while time.monotonic() < until:
            await asyncio.sleep(1.0)
            # A run that stops has few seconds left, and rows that were given up never come.
            with suppress(ray.exceptions.RayError):
                if await self._job.board.draining.remote():
                    break
        await self._flush()

    async def _flush(self) -> None:
        waiting, stored, timer = self._waiting, self._stored, self._timer
        if stored is None:
            return
        self._waiting, self._stored, self._timer = [], None, None
        if timer is not None and timer is not asyncio.current_task():
            timer.cancel()
        table = pa.concat_tables(waiting)
        began = time.monotonic()
        self._writing.append(began)
        try:
            if table.num_rows:
                await asyncio.to_thread(self._write, table)
        except Exception as error:  # noqa: BLE001 - raised in every call that waits for it
            report(self._job, "results could not be stored", error, store=True)
            stored.set_exception(error)
            return
        finally:
            self._writing.remove(began)
        self._job.board.stored.remote(table.num_rows)
        stored.set_result(None)

    def _write(self, table: pa.Table) -> None:
        """Store the rows, trying again while the store refuses: the run has proved at its start
        that it may write."""
        until = time.monotonic() + self._job.config.store_patience_s
        wait = 1.0
        while True:
            try:
                write_parts(self._store, self._session, table)
                break
            except UserError as error:
                if time.monotonic() + wait > until:
                    raise
                self._job.board.notice.remote(f"results cannot be stored yet: {clean(str(error))}")
                time.sleep(wait)
                wait = min(2 * wait, 15.0)
        self._job.board.notice.remote("")
