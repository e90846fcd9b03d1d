"""The actor that hosts an engine and runs episodes on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
import ray

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.checked import check_episode
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.config.schema import ENDPOINT
from ace_ray.errors import EngineDead, EpisodeTimeout, RowError
from ace_ray.pipeline.actors.admission import AdmissionControl, Group, Partition
from ace_ray.pipeline.actors.cache_room import CacheContext, CacheRoom
from ace_ray.pipeline.actors.candidate import Broken, Candidate
from ace_ray.pipeline.actors.coordinator import Start, fetch_shared
from ace_ray.pipeline.actors.job import Job, fail_start, start
from ace_ray.pipeline.actors.judging import log_traceback, report_bug
from ace_ray.pipeline.actors.service import RunningService
from ace_ray.pipeline.end_time import Durations, share_end
from ace_ray.pipeline.health.causes import CrashFile, outside_cause
from ace_ray.pipeline.health.isolation import (
    OPEN,
    IsolatedRow,
    ended_columns,
    grouped,
    of_rows,
    shared_id,
)
from ace_ray.pipeline.health.processes import Heartbeat, die, this_process
from ace_ray.pipeline.monitoring.facts import engine_facts
from ace_ray.pipeline.monitoring.timing import Clock
from ace_ray.pipeline.planning.placement import placed
from ace_ray.pipeline.roles import RoleModels, candidate_identity
from ace_ray.sandbox.actor import SandboxPool
from ace_ray.storage.rows import EPISODES, episode_columns
from ace_ray.types import Entry, Episode, Sampling
from ace_ray.util import log
from ace_ray.util.sanitizing import well_formed

# Extra time after its deadline for an interactive episode to read the state of its sandbox.
DEADLINE_GRACE_S = 300.0

# Time after its first block for which a new process waits for the blocks of its predecessor.
ARRIVE_S = 5.0

_NOT_HEALTHY = "the engine did not answer a health check"

# Maximum delay of the report that a row has ended, so that one call reports many rows.
LEAVE_S = 0.5
# Request that an engine must answer before its first isolated row, if no row has ended in it yet.
CONTROL = [{"role": "user", "content": "Say yes."}]

_NO_EPISODE = episode_columns(Episode())

# Preparations of one block: `shared_id` -> task, which returns the context of the preparation.
Shared = dict[str, asyncio.Task[EpisodeContext]]


class EngineWorker:
    """Hosts one engine in its own process, and runs many episodes on the engine concurrently.

    One call handles one block of one run. Ray Data keeps many calls in flight, so rows of
    different blocks share the engine's batches. At most ``most`` rows are in flight. Rows are
    admitted in groups of at most ``most`` / 8. A row frees its place as soon as it ends."""

    def __init__(self, job: Job, most: int) -> None:
        self._job, self._coordinator = job, job.coordinator
        self._process = this_process("engine")
        began = time.perf_counter()
        begun: Start | None = None
        try:
            begun = start(self._coordinator, self._process, job.first)
            self._rows_end_at = job.rows_end_here(begun)
            self._crash_file = CrashFile(self._process)
            self._entries, self._benchmarks = fetch_shared(job.coordinator)
            self._sampling = job.config.sampling.sampling()
            self._identities = [
                candidate_identity(job.config, run.model, job.choice) for run in job.runs
            ]
            self._clock = Clock()
            self._clock.preparing("load")
            self._candidate = Candidate(job, self._process, self._clock, begun.run)
            self._engine = self._candidate.engine
            self._roles = RoleModels(job.bindings, job.served, self._engine)
            self._sandboxes = SandboxPool(job.sandboxes)
            self._services = {name: RunningService(a) for name, a in job.services.items()}
        except Exception as error:
            fail_start(self._coordinator, self._process, begun, "an engine worker", error)
            raise
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        # Rows that wait for a preparation.
        self._waiting: set[str] = set()
        # Preparations in flight.
        self._preparing: Shared = {}
        self._room = CacheRoom(self._engine.cache_tokens)
        self._admission = AdmissionControl(
            most,
            run=self._candidate.run,
            starts_since_progress=begun.starts_since_progress,
            arriving=begun.replaces,
            room=self._room,
        )
        self._asks_isolated = (
            begun.replaces or begun.isolated or job.config.worker_range is not None
        )
        self._group_size = max(1, most // 8)
        # Ended rows that are not yet reported to the coordinator.
        self._ended: list[str] = []
        self._durations = Durations()
        # Run -> time at which its rows must have ended (`time.monotonic`).
        self._run_ends: dict[int, float] = {}
        # Runs that were stopped early. Their rows are not evaluated and stay pending.
        self._decided: set[int] = set()
        self._stopping = False
        self._ticked_at = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        load_s = time.perf_counter() - began
        facts = {
            "worker": self._process.name,
            "load_s": round(load_s, 2),
            "start_s": self._candidate.start_s,
            "max_model_len": self._engine.max_model_len,
            "engine_version": self._engine.version,
            "engine": {"device": self._engine.device}
            if job.config.backend == ENDPOINT
            else {
                **engine_facts(self._engine.device),
                **placed(),
                **({"reading": reading} if (reading := self._engine.reading) else {}),
            },
        }
        self._clock.preparing(None)
        log.say(log.debug(f"engine worker {self._process.name} is ready", **facts))
        ray.get(self._coordinator.ready.remote(self._process, facts))
        Heartbeat(
            self._coordinator,
            self._process,
            stall_s=job.config.stall_s,
            busy_since=self._busy_since,
            rows_at_work=self._at_work,
            outside=self._outside,
            on_drain=self._drain,
            load=lambda: self._engine.load(len(self._tasks)),
        )

    async def __call__(self, block: pa.Table) -> pa.Table:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(ARRIVE_S, self._admission.arrived)
        planned = block.to_pylist()
        if self._stopping:
            await self._give_back(planned, [])
            return EPISODES.empty_table()
        isolation = of_rows(planned, await self._isolated(planned))
        isolated = {row_id: isolated_row for row_id, (isolated_row, _) in isolation.items()}
        ended, groups = grouped(planned, isolated)
        shared: Shared = {}
        parts = await asyncio.gather(
            *(
                self._together(
                    rows[start : start + self._group_size],
                    (rows[0]["run"], group),
                    isolated,
                    shared,
                )
                for group, rows in groups.items()
                for start in range(0, len(rows), self._group_size)
            )
        )
        done = [self._ended_row(row, *isolation[row["row_id"]]) for row, _ in ended]
        done += [record for part in parts for record in part]
        if self._stopping:
            await self._give_back(planned, done)
        return pa.Table.from_pylist(done, schema=EPISODES)

    async def _isolated(self, planned: list[dict[str, Any]]) -> dict[str, IsolatedRow]:
        """Return the states of isolated rows among ``planned``, and of isolated preparations.

        In an actor's first process no row is isolated yet, so this need not ask the coordinator."""
        shared = {shared_id(row) for row in planned if row["shares"] >= 0}
        if not self._asks_isolated and not shared:
            return {}
        ids = [row["row_id"] for row in planned]
        isolated: dict[str, IsolatedRow] = await self._coordinator.isolated.remote(
            "engine", [*ids, *shared]
        )
        return isolated

    async def _give_back(self, planned: list[dict[str, Any]], done: list[dict[str, Any]]) -> None:
        """Give back the ``planned`` rows that have not ended, so that another worker gets them.
        ``done`` has the records of the ended rows."""
        ended = {record["row_id"] for record in done}
        rest = [row["row_id"] for row in planned if row["row_id"] not in ended]
        if rest:
            await self._coordinator.give_back.remote(rest)

    async def _together(
        self,
        rows: list[dict[str, Any]],
        partition: Partition,
        isolated: Mapping[str, IsolatedRow],
        shared: Shared,
    ) -> list[dict[str, Any]]:
        """Evaluate rows of one partition, and return their records. Rows of a stopped run or a
        stopping worker have no record."""
        tried = max(s.deaths_alone if (s := isolated.get(row["row_id"])) else 0 for row in rows)
        run, isolation_group = partition
        if run in self._decided:
            return []
        entry = self._entries[rows[0]["entry"]]
        episodes = self._benchmarks[entry.benchmark].interactive(entry)
        admitted = self._admission.entered(partition, len(rows), tried=tried, episodes=episodes)
        async with admitted as group:
            # The run may have been stopped while the rows waited.
            if self._stopping or run in self._decided:
                return []
            try:
                await self._candidate.hold(run)
            except Broken:
                return []
            if isolation_group != OPEN:
                await self._show_that_it_works()
            if self._stopping:  # the check may have taken long
                return []
            starting = [row for row in rows if self._can_end(row)]
            started = {row["row_id"] for row in starting}
            late = [row["row_id"] for row in rows if row["row_id"] not in started]
            if not starting:
                self._coordinator.out_of_time.remote(run, late)
                return []
            # Rows with a preparation enter when the preparation is done.
            alone = [row["row_id"] for row in starting if row["shares"] < 0]
            if not await self._coordinator.enter.remote(self._process, alone, run):
                self._decided.add(run)
                return []
            tasks = []
            for row in starting:
                isolated_row = isolated.get(row["row_id"])
                attempt = row["attempt"] + (isolated_row.unstored if isolated_row else 0)
                task = asyncio.ensure_future(self._row(row, attempt, shared))
                task.add_done_callback(partial(self._row_ended, group, row["row_id"]))
                self._tasks[row["row_id"]] = task
                tasks.append(task)
            await asyncio.wait(tasks)
            self._leave((run, self._clock.read(), self._clock.output_tokens))
            if not self._stopping:
                paired = zip(starting, tasks, strict=True)
                late += [row["row_id"] for row, task in paired if task.cancelled()]
            if late:
                self._coordinator.out_of_time.remote(run, late)
        return [task.result() for task in tasks if not task.cancelled()]

    def _can_end(self, row: Mapping[str, Any]) -> bool:
        """Return whether ``row`` can probably end before its run must end."""
        if self._rows_end_at is None:
            return True
        end = self._run_end(row["run"], self._rows_end_at)
        return time.monotonic() + self._durations.expected(self._kind_of(row)) <= end

    def _run_end(self, run: int, end: float) -> float:
        """Return the time at which the rows of ``run`` must have ended. The first call for a
        run, after its weights were loaded, sets the time and calls `_end_run` if runs follow."""
        if run not in self._run_ends:
            later = sum(other > run for other in self._job.pending)
            now = time.monotonic()
            self._run_ends[run] = share_end(now, end, later, self._durations.longest)
            if later:
                self._end_run(run, max(0.0, self._run_ends[run] - now))
        return self._run_ends[run]

    def _end_run(self, run: int, seconds: float) -> None:
        """Cancel, ``seconds`` from now, the rows of ``run`` in flight. If no row has ended in this
        engine by then, wait as long again: the run's share of time may be shorter than a row."""

        def cancel() -> None:
            if self._candidate.run != run:
                return
            if self._admission.passed:
                self._give_up()  # all rows in flight are rows of this run
            else:
                self._end_run(run, max(1.0, seconds))

        asyncio.get_running_loop().call_later(seconds, cancel)

    def _kind_of(self, row: Mapping[str, Any]) -> str:
        entry = self._entries[row["entry"]]
        return f"{entry.benchmark}/{entry.category}"

    async def _show_that_it_works(self) -> None:
        """Make one request before an isolated row runs, unless a row has ended in this engine. If
        the engine fails on this request, the failure does not count against the isolated row."""
        self._crash_file.note_memory()
        if self._admission.passed:
            return
        request = self._engine.chat(CONTROL, Sampling(max_tokens=1))
        try:
            await asyncio.wait_for(request, self._job.config.stall_s)
        except EngineDead as error:
            self._die(f"the engine failed a health check: {error}")
        except TimeoutError:
            if not await self._engine.works():
                self._die(_NOT_HEALTHY)
        except Exception:  # noqa: BLE001 - a refusal is an answer
            log_traceback()

    def _die(self, why: str) -> NoReturn:
        die(self._coordinator, self._process, why, self._at_work(), self._outside())
        raise EngineDead(why)  # not reached: the process is gone

    def _at_work(self) -> list[str]:
        """Return the ids of rows and preparations in flight. Other threads may call this: copying a
        dict's keys is atomic."""
        ids = list(self._tasks)
        return [*list(self._preparing), *(row for row in ids if row not in self._waiting)]

    def _outside(self) -> str:
        return outside_cause(self._engine.processes(), self._crash_file.oom_kills)

    def _row_ended(self, group: Group, row_id: str, _: asyncio.Task[Any]) -> None:
        self._admission.row_ended(group)
        self._ended.append(row_id)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_later(LEAVE_S, self._leave)

    def _leave(self, spent: tuple[int, dict[str, float], int] | None = None) -> None:
        """Report rows that have ended, so that a later crash does not isolate them."""
        if self._ended or spent:
            self._coordinator.leave.remote(self._process, self._ended, spent)
            self._ended = []

    async def _row(self, row: dict[str, Any], attempt: int, shared: Shared) -> dict[str, Any]:
        entry = self._entries[row["entry"]]
        clock = time.perf_counter()
        record = self._blank(row, attempt)
        benchmark = self._benchmarks[entry.benchmark]
        cached = self._room.open() if benchmark.interactive(entry) else CacheContext()
        try:
            with self._clock.busy("row"):
                episode = await self._episode(benchmark, entry, row, shared, cached)
            record |= episode_columns(episode)
            if not self._job.config.token_ids:
                record["output_token_ids"] = None
        except EngineDead as error:
            # Ray retries the rows of a dead process; an exception would fail the job.
            self._die(str(error))
        except RowError as error:
            if isinstance(error, EpisodeTimeout) and not await self._engine.works():
                self._die(f"a row timed out, and {_NOT_HEALTHY}")
            record |= {"status": error.status, **_named(error)}
        except Exception as error:  # noqa: BLE001 - one row's failure never ends the run
            record |= {"status": "infra_error", **_named(error)}
            log_traceback()
            report_bug(self._coordinator, entry.benchmark)
        finally:
            self._room.close(cached)
            self._tasks.pop(row["row_id"], None)
            self._waiting.discard(row["row_id"])
        record["duration_s"] = time.perf_counter() - clock
        self._durations.add(self._kind_of(row), record["duration_s"])
        if record["status"] != "scored":
            what = f"row {row['row_id']}: {record['status']}, {record['error']}"
            log.say(log.debug(what, event="row", row_id=row["row_id"]))
        return record

    def _blank(self, row: Mapping[str, Any], attempt: int) -> dict[str, Any]:
        return {
            **row,
            **_NO_EPISODE,
            "status": "scored",
            "error_class": None,
            "error": None,
            "attempts": attempt,
            "started_at": datetime.now(UTC),
            "worker": self._process.name,
            "duration_s": 0.0,
        }

    def _ended_row(
        self, row: dict[str, Any], isolated_row: IsolatedRow, shared: bool
    ) -> dict[str, Any]:
        attempts = row["attempt"] + isolated_row.unstored - 1
        return self._blank(row, attempts) | ended_columns(isolated_row, "engine", shared=shared)

    async def _episode(
        self,
        benchmark: Benchmark,
        entry: Entry,
        row: Mapping[str, Any],
        shared: Shared,
        cached: CacheContext,
    ) -> Episode:
        sampling, identity = self._sampling, self._identities[row["run"]]
        sample, path = row["sample"], entry.path
        limit = self._job.config.episode_timeout_s
        candidate = RoleModel(self._engine, sampling.for_row(sample, *path), identity)
        models = {"": candidate, **self._roles.of(benchmark, sample, path)}
        for name, model in models.items():
            if model.model is self._engine:
                models[name] = replace(model, on_answer=partial(cached.add, name))
        context = EpisodeContext(
            candidate=models.pop(""),
            roles=models,
            open_sandbox=lambda: self._sandboxes.open(row["entry"]),
            deadline=asyncio.get_running_loop().time() + limit,
            works=self._engine.answers,
            token_logprobs=self._engine.token_logprobs,
            service=self._services.get(entry.benchmark),
            attempt=row["attempt"],
            replay_reasoning=self._job.replay.get(entry.benchmark, "none"),
            opening=self._entries.opening(row["entry"]),
        )
        # An interactive episode ends by itself at the deadline, and its present state is scored.
        grace = DEADLINE_GRACE_S if benchmark.interactive(entry) else 0.0
        first, before = False, context
        if row["shares"] >= 0:
            # The preparation must not depend on which of its rows comes first.
            shared_path = (entry.benchmark, benchmark.preparation(entry))
            sharing = replace(
                context,
                candidate=RoleModel(self._engine, sampling.for_row(sample, *shared_path), identity),
                roles=self._roles.of(benchmark, sample, shared_path),
            )
            work = partial(self._prepare, benchmark, entry, sharing, grace)
            before, first = await self._prepared(row, shared, work)
            deadline = asyncio.get_running_loop().time() + limit
            context = replace(context, prepared=before.prepared, deadline=deadline)
        episode: Episode = await self._in_time(benchmark.run(entry, context), grace)
        check_episode(episode)
        if first:
            episode.count_all(before.episode)
        return episode

    async def _in_time(self, work: Awaitable[Any], grace_s: float) -> Any:
        """Await ``work``. Raises `EpisodeTimeout` only if its time has passed: a `TimeoutError` of
        the benchmark's code is raised as it is. Its exits and cancellations become errors."""
        limit_s = self._job.config.episode_timeout_s
        try:
            async with asyncio.timeout(limit_s + grace_s) as limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise EpisodeTimeout(f"timed out after {limit_s:g} s (episode_timeout_s)") from error
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                raise  # the worker stops this row
            problem = f"the benchmark's code raised {type(error).__name__}: {error}"
            raise RuntimeError(problem).with_traceback(error.__traceback__) from error

    async def _prepared(
        self, row: Mapping[str, Any], shared: Shared, work: Callable[[], Awaitable[EpisodeContext]]
    ) -> tuple[EpisodeContext, bool]:
        """Wait for the preparation of ``row``. Return the preparation's context, and whether this
        row started it. While the row waits, only the preparation counts as in flight."""
        name, row_id = shared_id(row), row["row_id"]
        self._waiting.add(row_id)
        first = name not in shared and name not in self._preparing
        if first:
            self._preparing[name] = asyncio.ensure_future(self._share(name, work))
        if name not in shared:
            shared[name] = self._preparing[name]
        before = await asyncio.shield(shared[name])
        self._waiting.discard(row_id)
        await self._coordinator.enter.remote(self._process, [row_id])
        return before, first

    async def _share(
        self, name: str, work: Callable[[], Awaitable[EpisodeContext]]
    ) -> EpisodeContext:
        try:
            await self._coordinator.enter.remote(self._process, [name])
            return await work()
        finally:
            del self._preparing[name]
            self._coordinator.prepared.remote(self._process, name)

    async def _prepare(
        self, benchmark: Benchmark, entry: Entry, context: EpisodeContext, grace_s: float
    ) -> EpisodeContext:
        try:
            context.prepared = await self._in_time(benchmark.prepare(entry, context), grace_s)
            return context
        except EngineDead as error:
            self._die(str(error))
        except EpisodeTimeout:
            if not await self._engine.works():
                self._die(f"a preparation timed out, and {_NOT_HEALTHY}")
            raise

    def _busy_since(self) -> float | None:
        """Return the time of the last progress (`time.monotonic`), or None if no row is in flight.
        A row may hang in the engine or in the event loop, so the earlier of their times counts."""
        if not self._tasks or self._loop is None:
            self._ticked_at = time.monotonic()
            return None
        self._loop.call_soon_threadsafe(self._tick)
        busy_since = self._engine.busy_since()
        return self._ticked_at if busy_since is None else min(busy_since, self._ticked_at)

    def _tick(self) -> None:
        self._ticked_at = time.monotonic()

    def _drain(self, seconds: float) -> None:
        """Start no further rows, and cancel rows in flight after ``seconds``. If the run stops,
        cancelled rows stay pending. If only this node leaves, other workers get them."""
        self._stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._admission.close)
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._give_up)

    def _give_up(self) -> None:
        for task in (*self._tasks.values(), *self._preparing.values()):
            task.cancel()


def _named(error: Exception) -> dict[str, str]:
    return {"error_class": type(error).__name__, "error": well_formed(str(error))[:2000]}
