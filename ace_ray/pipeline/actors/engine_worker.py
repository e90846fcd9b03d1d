"""The actor that hosts an engine and runs episodes on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
import ray

from ace_ray.cluster.environment import engine_facts
from ace_ray.cluster.placement import place_facts
from ace_ray.config.schema import ENDPOINT
from ace_ray.errors import EngineDead
from ace_ray.pipeline.actors.admission import AdmissionControl, Group, Partition
from ace_ray.pipeline.actors.episodes import NOT_HEALTHY, EpisodeRunner
from ace_ray.pipeline.actors.in_flight import RowReporter, Shared
from ace_ray.pipeline.actors.verdicts import log_traceback
from ace_ray.pipeline.actors.weights import WeightLoader
from ace_ray.pipeline.actors.worker_config import WorkerConfig, guard_start
from ace_ray.pipeline.end_time import RowTimes
from ace_ray.pipeline.health.crash_cause import CrashFile, outside_cause
from ace_ray.pipeline.health.heartbeat import Heartbeat, die, this_process
from ace_ray.pipeline.health.isolation import OPEN, IsolatedRow, shared_id, states_by_row
from ace_ray.pipeline.monitoring.tally import RowReport
from ace_ray.pipeline.monitoring.timing import Clock
from ace_ray.storage.rows import EPISODES
from ace_ray.types import Sampling
from ace_ray.util import log

# Time after its first block for which a new process waits for the blocks of its predecessor.
ARRIVE_S = 5.0

# Request that an engine must answer before an isolated row, if no row has ended in the engine yet.
CONTROL = [{"role": "user", "content": "Say yes."}]


class EngineWorker:
    """Hosts one engine in its own process, and runs many episodes on the engine concurrently.

    One call handles one block of one run. Ray Data keeps many calls in flight, so rows of
    different blocks share the engine's batches. At most ``concurrency`` rows are in flight. They
    are admitted in groups of at most ``concurrency`` / 8. A row frees its place when it ends."""

    def __init__(self, job: WorkerConfig, concurrency: int) -> None:
        self._job, self._coordinator = job, job.coordinator
        self._process = this_process("engine")
        began = time.perf_counter()
        with guard_start(self._coordinator, self._process, "an engine worker") as answer:
            end = job.rows_end_here(answer)
            self._crash_file = CrashFile(self._process)
            self._clock = Clock()
            self._clock.enter_state("load")
            run = job.pending[0] if answer.run is None else answer.run
            self._candidate = WeightLoader(job, self._process, self._clock, run)
            self._engine = self._candidate.engine
            self._reports = RowReporter(
                partial(self._coordinator.note_unless_stopped.remote, self._process)
            )
            self._episodes = EpisodeRunner(
                job,
                self._engine,
                self._clock,
                self._reports,
                worker=self._process.name,
                die=self._die,
            )
        self._stopping = False
        # Runs that were stopped early. Their rows are not evaluated and stay pending.
        self._decided: set[int] = set()
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._times = RowTimes(end, job.pending, self._cancel_run)
        self._admission = AdmissionControl(
            concurrency,
            run=self._candidate.run,
            starts_since_progress=answer.starts_since_progress,
            arriving=answer.replaces,
            room=self._episodes.room,
        )
        self._group_size = max(1, concurrency // 8)
        self._begin(round(time.perf_counter() - began, 2))

    def _begin(self, load_s: float) -> None:
        loaded = self._candidate.loaded
        engine: dict[str, Any] = {"device": loaded.device}
        if self._job.config.backend != ENDPOINT:
            engine = {**engine_facts(loaded.device), **place_facts()}
            if reading := getattr(loaded, "reading", {}):
                engine["reading"] = reading
        facts = {
            "worker": self._process.name,
            "load_s": load_s,
            "start_s": self._candidate.start_s,
            "max_model_len": loaded.max_model_len,
            "engine_version": loaded.version,
            "engine": engine,
        }
        self._clock.enter_state(None)
        log.debug(f"engine worker {self._process.name} is ready", **facts)
        ray.get(self._coordinator.update_process.remote(self._process, facts=facts))
        Heartbeat(
            self._coordinator,
            self._process,
            stall_timeout_s=self._job.config.engine_stall_timeout_s,
            busy_since=lambda: self._engine.busy_since(rows=len(self._tasks)),
            outside=self._outside_cause,
            on_drain=self._drain,
            load=lambda: self._engine.load(len(self._tasks)),
        )

    async def __call__(self, block: pa.Table) -> pa.Table:
        if self._engine.loop is None:
            self._engine.loop = asyncio.get_running_loop()
            self._engine.loop.call_later(ARRIVE_S, self._admission.note_arrival)
        planned = block.to_pylist()
        if self._stopping:
            await self._reports.give_back(planned, [])
            return EPISODES.empty_table()
        ids = {key for row in planned for key in (row["row_id"], shared_id(row))}
        states = await self._coordinator.isolated.remote("engine", [*ids])
        isolated = states_by_row(planned, states)
        groups: dict[int, list[dict[str, Any]]] = {}
        records = []
        for row in planned:
            if (state := isolated.get(row["row_id"])) is not None and state.end:
                records.append(self._episodes.untried_record(row, state))
            else:
                groups.setdefault(state.group if state else OPEN, []).append(row)
        shared: Shared = {}
        parts = await asyncio.gather(
            *(
                self._evaluate_rows(
                    rows[start : start + self._group_size],
                    (rows[0]["run"], group),
                    isolated,
                    shared,
                )
                for group, rows in groups.items()
                for start in range(0, len(rows), self._group_size)
            )
        )
        records += [record for part in parts for record in part]
        if self._stopping:
            await self._reports.give_back(planned, records)
        return pa.Table.from_pylist(records, schema=EPISODES)

    async def _evaluate_rows(
        self,
        rows: list[dict[str, Any]],
        partition: Partition,
        isolated: Mapping[str, IsolatedRow],
        shared: Shared,
    ) -> list[dict[str, Any]]:
        """Evaluate ``rows`` of one partition. Return the records of rows that were not stopped."""
        tried = max(s.deaths_alone if (s := isolated.get(row["row_id"])) else 0 for row in rows)
        run, isolation_group = partition
        entry, benchmark = self._episodes.entry(rows[0])
        episodes = benchmark.interactive(entry)
        admitted = self._admission.admission(partition, len(rows), tried=tried, episodes=episodes)
        async with admitted as group:
            if self._stopping or run in self._decided or not await self._candidate.load(run):
                return []
            if isolation_group != OPEN:
                await self._health_check()
            if self._stopping:  # the check may have taken long
                return []
            starting = [row for row in rows if self._times.can_end(run, *self._kind_of(row))]
            started = {row["row_id"] for row in starting}
            late = [row["row_id"] for row in rows if row["row_id"] not in started]
            if not starting:
                self._reports.send(RowReport(run, late=late))
                return []
            # Rows with a preparation enter when the preparation is done.
            alone = [row["row_id"] for row in starting if row["shares"] < 0]
            if not await self._reports.enter(alone, run):
                self._decided.add(run)
                return []
            tasks: dict[str, asyncio.Task[Any]] = {}
            for row in starting:
                state = isolated.get(row["row_id"])
                attempt = row["attempt"] + (state.unstored_deaths if state else 0)
                task = asyncio.ensure_future(self._episodes.run(row, attempt, shared))
                task.add_done_callback(partial(self._row_ended, group, row))
                tasks[row["row_id"]] = self._tasks[row["row_id"]] = task
            await asyncio.wait(tasks.values())
            if not self._stopping:
                late += [row_id for row_id, task in tasks.items() if task.cancelled()]
            spent = self._clock.read(), self._clock.output_tokens
            self._reports.send(RowReport(run, late=late, spent=spent))
        return [task.result() for task in tasks.values() if not task.cancelled()]

    def _row_ended(self, group: Group, row: Mapping[str, Any], task: asyncio.Task[Any]) -> None:
        self._tasks.pop(row["row_id"], None)
        if not task.cancelled() and task.exception() is None:
            category, length = self._kind_of(row)
            self._times.add(category, task.result()["duration_s"], length)
        self._admission.free_place(group)
        self._reports.end_row(row["row_id"])

    def _kind_of(self, row: Mapping[str, Any]) -> tuple[str, float]:
        """Return the category and the length of ``row``, as `RowTimes` needs them."""
        entry, _ = self._episodes.entry(row)
        return f"{entry.benchmark}/{entry.category}", row["length"]

    async def _health_check(self) -> None:
        """Make one request before an isolated row runs, unless a row has ended in this engine. If
        the engine fails on this request, the failure does not count against the isolated row."""
        self._crash_file.note_oom_kills()
        if self._admission.passed:
            return
        request = self._engine.chat(CONTROL, Sampling(max_tokens=1))
        try:
            await asyncio.wait_for(request, self._job.config.engine_stall_timeout_s)
        except EngineDead as error:
            self._die(f"the engine failed a health check: {error}")
        except TimeoutError:
            if not await self._engine.works():
                self._die(NOT_HEALTHY)
        except Exception:  # noqa: BLE001 - a refusal is an answer
            log_traceback()

    def _die(self, why: str) -> NoReturn:
        self._reports.send(RowReport())  # rows that have just ended are not isolated
        die(self._coordinator, self._process, why, self._outside_cause())

    def _outside_cause(self) -> str:
        return outside_cause(self._engine.processes(), self._crash_file.oom_kills)

    def _drain(self, seconds: float) -> None:
        """Start no further rows, and cancel rows in flight after ``seconds``. If the run stops,
        cancelled rows stay pending. If only this node leaves, other workers get them."""
        self._stopping = True
        if (loop := self._engine.loop) is not None:
            loop.call_soon_threadsafe(self._admission.close)
            loop.call_soon_threadsafe(loop.call_later, seconds, self._cancel_tasks)

    def _cancel_run(self, run: int) -> bool:
        """Cancel the rows of ``run`` in flight; return False if no row has ended in this engine."""
        if self._candidate.run == run:
            if not self._admission.passed:
                return False
            self._cancel_tasks()  # all rows in flight are rows of this run
        return True

    def _cancel_tasks(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._reports.cancel_preparations()
