"""Actors of the graph: engine workers drive episodes, checkers judge them, a writer stores them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import ray

from ace_ray.benchmarks.protocol import Benchmark, Player, Stage
from ace_ray.config import RunConfig
from ace_ray.errors import EngineDead, RowError, UserError
from ace_ray.models.sources import ModelRef, materialize
from ace_ray.records import Entry, Episode
from ace_ray.run.board import fetch_entries
from ace_ray.run.parts import write_part
from ace_ray.run.roles import Parts, Players, Served
from ace_ray.run.rows import (
    EPISODES,
    ROWS,
    clean,
    entry_at,
    episode_columns,
    episode_of,
    verdict_columns,
)
from ace_ray.sandbox.actor import SandboxPool
from ace_ray.sandbox.protocol import Scenario
from ace_ray.store import Store

DEADLINE_GRACE_S = 300.0
"""For an episode that has reached its deadline to read its sandbox's state."""


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


def report(job: Job, what: str, error: Exception) -> None:
    """Put the cause on the board: Ray hands a driver the text of a long traceback only."""
    line = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    ray.get(job.board.fail.remote(f"{what}: {clean(line)[:2000]}"))


class EngineWorker:
    """Hosts one engine in-process and drives many episodes on it at once.

    One call handles one block; Ray Data keeps many calls in flight, so rows of different blocks
    share the engine's batches.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        start = time.perf_counter()
        try:
            self._entries = fetch_entries(job.board)
            self._earlier: dict[str, int] = ray.get(job.board.killed.remote())
            self._held: set[str] = set()
            self._engine = start_engine(job)
            self._players = Players(job.parts, job.served, self._engine, seed=os.getpid())
            self._sandboxes = SandboxPool(job.sandboxes)
        except Exception as error:
            report(job, "an engine worker could not start", error)
            raise
        load_s = time.perf_counter() - start
        job.board.ready.remote(
            {
                "worker": self._name,
                "load_s": round(load_s, 2),
                "max_model_len": self._engine.max_model_len,
                "engine_version": self._engine.version,
            }
        )

    async def __call__(self, block: pa.Table) -> pa.Table:
        planned = block.to_pylist()
        done = await asyncio.gather(*(self._row(row) for row in planned))
        return pa.Table.from_pylist(done, schema=EPISODES)

    async def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        entry = entry_at(self._entries, row["entry"])
        started, clock = datetime.now(UTC), time.perf_counter()
        record = {
            **row,
            **episode_columns(Episode()),
            "status": "scored",
            "error_class": None,
            "error": None,
            "attempts": 1 + self._earlier.get(row["row_id"], 0),
            "started_at": started,
            "worker": self._name,
        }
        benchmark = self._job.benchmarks[entry.benchmark]
        self._held.add(row["row_id"])
        try:
            episode = await self._episode(benchmark, entry, row)
            record |= episode_columns(episode)
        except EngineDead as error:
            # Only a dead process makes Ray retry the rows elsewhere; an exception would fail the
            # whole job. os._exit, since exit_actor counts as intended and is not retried.
            ray.get(self._job.board.died.remote(self._name, str(error), sorted(self._held)))
            os._exit(1)
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
            _log_traceback()
        self._held.discard(row["row_id"])
        record["duration_s"] = time.perf_counter() - clock
        return record

    async def _episode(self, benchmark: Benchmark, entry: Entry, row: Mapping[str, Any]) -> Episode:
        sampling = self._job.config.sampling.sampling().for_sample(row["sample"])
        limit = self._job.config.episode_timeout_s
        stage = Stage(
            candidate=Player(self._engine, sampling),
            roles=self._players.of(entry.benchmark, row["sample"]),
            open_sandbox=lambda: self._sandboxes.open(row["entry"]),
            deadline=asyncio.get_running_loop().time() + limit,
        )
        # An interactive episode ends by itself at the deadline and keeps what it has reached.
        grace = DEADLINE_GRACE_S if benchmark.interactive(entry) else 0.0
        return await asyncio.wait_for(benchmark.run_episode(entry, stage), limit + grace)


def _log_traceback() -> None:
    # Escaped: a lone surrogate in a message would make print raise, and Ray's error transport end
    # the process.
    text = traceback.format_exc().encode("ascii", "backslashreplace").decode()
    print(text, flush=True)


def _named(error: Exception) -> dict[str, str]:
    return {"error_class": type(error).__name__, "error": clean(str(error))[:2000]}


class Checker:
    """Adds the verdicts of all rule sets. Stateless: any checker can take any row."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._entries = fetch_entries(job.board)

    def __call__(self, block: pa.Table) -> pa.Table:
        try:
            return self._checked(block)
        except Exception as error:
            report(self._job, "a checker failed", error)
            raise

    def _checked(self, block: pa.Table) -> pa.Table:
        checked = [self._check(row) for row in block.to_pylist()]
        self._job.board.rows.remote(
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

    def _check(self, row: dict[str, Any]) -> dict[str, Any]:
        entry = entry_at(self._entries, row.pop("entry"))
        verdicts: Mapping[str, Any] = {}
        if row["status"] == "scored":
            try:
                verdicts = self._job.benchmarks[entry.benchmark].check(entry, episode_of(row))
            except Exception as error:  # noqa: BLE001 - a checker's defect is not a wrong answer
                row |= {"status": "infra_error", **_named(error)}
                _log_traceback()
        return {
            **row,
            **verdict_columns(verdicts),
            "run_id": self._job.run_id,
            "seed": self._job.config.sampling.seed + row["sample"],
            "benchmark": entry.benchmark,
            "category": entry.category,
            "language": entry.language,
            "id": entry.id,
            "group": entry.group,
        }


class Writer:
    """Stores batches of rows as parts. An actor, not a task: its process is up before the first
    row is, instead of starting when the last one waits for it."""

    def __init__(self, job: Job, store: Store, session: str) -> None:
        self._job, self._store, self._session = job, store, session

    def __call__(self, table: pa.Table) -> pa.Table:
        try:
            name = write_part(self._store, self._session, table)
        except Exception as error:
            report(self._job, "results could not be stored", error)
            raise
        self._job.board.stored.remote(table.num_rows)
        return pa.table({"part": [name], "rows": [table.num_rows]})
