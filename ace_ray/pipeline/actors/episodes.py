"""Run the episodes of rows on the engine of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.validation import check_episode
from ace_ray.errors import EngineDead, EpisodeTimeout, RowError
from ace_ray.pipeline.actors.coordinator import fetch_shared
from ace_ray.pipeline.actors.in_flight import RowReporter, Shared
from ace_ray.pipeline.actors.kv_budget import CacheContext, KVBudget
from ace_ray.pipeline.actors.service import ServiceClient
from ace_ray.pipeline.actors.verdicts import report_bug
from ace_ray.pipeline.actors.weights import MonitoredEngine
from ace_ray.pipeline.actors.worker_config import WorkerConfig
from ace_ray.pipeline.health.isolation import IsolatedRow, ended_columns
from ace_ray.pipeline.monitoring.timing import Clock
from ace_ray.pipeline.roles import RoleModels, candidate_identity
from ace_ray.sandbox.actor import SandboxPool
from ace_ray.storage.rows import episode_columns
from ace_ray.types import Entry, Episode
from ace_ray.util import log
from ace_ray.util.sanitizing import replace_surrogates

# Extra time after its deadline for an interactive episode to read the state of its sandbox.
DEADLINE_GRACE_S = 300.0

NOT_HEALTHY = "the engine did not answer a health check"

_NO_EPISODE = episode_columns(Episode())


class EpisodeRunner:
    """Runs episodes, and makes their records. Failures of a row become columns of its record.

    ``worker`` is the worker's name in the records. ``die`` ends this process, whose engine does not
    work, for the given reason; Ray then repeats its rows. An exception would fail the job."""

    def __init__(
        self,
        job: WorkerConfig,
        engine: MonitoredEngine,
        clock: Clock,
        reports: RowReporter,
        *,
        worker: str,
        die: Callable[[str], NoReturn],
    ) -> None:
        self._job, self._engine, self._clock, self._reports = job, engine, clock, reports
        self._roles = RoleModels(job.bindings, job.served, engine)
        self._entries, self._benchmarks = fetch_shared(job.coordinator)
        self._worker, self._die = worker, die
        self.room = KVBudget(engine.cache_tokens)
        self._sampling = job.config.sampling.sampling()
        self._identities = [
            candidate_identity(job.config, run.model, job.choice) for run in job.runs
        ]
        self._sandboxes = SandboxPool(job.sandboxes)
        self._services = {name: ServiceClient(actor) for name, actor in job.services.items()}

    def entry(self, row: Mapping[str, Any]) -> tuple[Entry, Benchmark]:
        """Return the entry of ``row`` and the entry's benchmark."""
        entry = self._entries[row["entry"]]
        return entry, self._benchmarks[entry.benchmark]

    async def run(self, row: dict[str, Any], attempt: int, shared: Shared) -> dict[str, Any]:
        """Run the episode of ``row``, and return its record."""
        entry, benchmark = self.entry(row)
        clock = time.perf_counter()
        record = self._blank(row, attempt)
        cached = self.room.open() if benchmark.interactive(entry) else CacheContext()
        try:
            with self._clock.track("row"):
                episode = await self._episode(row, shared, cached)
            record |= episode_columns(episode)
            if not self._job.config.store_token_ids:
                record["output_token_ids"] = None
        except EngineDead as error:
            self._die(str(error))
        except RowError as error:
            if isinstance(error, EpisodeTimeout) and not await self._engine.works():
                self._die(f"a row timed out, and {NOT_HEALTHY}")
            record |= {"status": error.status, **_error_columns(error)}
        except Exception as error:  # noqa: BLE001 - one row's failure never ends the run
            record |= {"status": "infra_error", **_error_columns(error)}
            report_bug(self._job.coordinator, entry.benchmark)
        finally:
            self.room.close(cached)
        record["duration_s"] = time.perf_counter() - clock
        if record["status"] != "scored":
            line = f"row {row['row_id']}: {record['status']}, {record['error']}"
            log.debug(line, event="row", row_id=row["row_id"])
        return record

    def untried_record(self, row: dict[str, Any], state: IsolatedRow) -> dict[str, Any]:
        """Return the record of an isolated row that this pass does not try again."""
        record = self._blank(row, row["attempt"] + state.unstored_deaths - 1)
        return record | ended_columns(state, "engine")

    def _blank(self, row: Mapping[str, Any], attempt: int) -> dict[str, Any]:
        return {
            **row,
            **_NO_EPISODE,
            "status": "scored",
            "error_class": None,
            "error": None,
            "attempts": attempt,
            "started_at": datetime.now(UTC),
            "worker": self._worker,
            "duration_s": 0.0,
        }

    async def _episode(
        self, row: Mapping[str, Any], shared: Shared, cached: CacheContext
    ) -> Episode:
        entry, benchmark = self.entry(row)
        before, first = None, False
        if row["shares"] >= 0:
            # The preparation must not depend on which of its rows comes first.
            path = (entry.benchmark, benchmark.preparation(entry))
            context = self._context(row, path)
            prepare = partial(self._prepare, row, context)
            before, first = await self._reports.wait_for_preparation(row, shared, prepare)
        context = self._context(row, entry.path, cached)
        if before is not None:
            context.prepared = before.prepared
        episode: Episode = await self._await_in_time(row, benchmark.run(entry, context))
        check_episode(episode)
        if before is not None and first:
            episode.add_episode_usage(before.episode)
        return episode

    def _context(
        self, row: Mapping[str, Any], path: Sequence[str], cached: CacheContext | None = None
    ) -> EpisodeContext:
        """Return the context of an episode whose seeds depend on ``path``. ``cached`` counts the
        tokens of the engine's answers."""
        entry, benchmark = self.entry(row)
        sampling = self._sampling.with_row_seed(row["sample"], *path)
        candidate = RoleModel(self._engine, sampling, self._identities[row["run"]])
        models = {"": candidate, **self._roles.models_of(benchmark, row["sample"], path)}
        for name, model in models.items():
            if cached is not None and model.model is self._engine:
                models[name] = replace(model, on_answer=partial(cached.add, name))
        return EpisodeContext(
            candidate=models.pop(""),
            roles=models,
            open_sandbox=lambda: self._sandboxes.open(row["entry"]),
            deadline=asyncio.get_running_loop().time() + self._job.config.episode_timeout_s,
            works=self._engine.answers,
            token_logprobs=self._engine.token_logprobs,
            service=self._services.get(entry.benchmark),
            attempt=row["attempt"],
            replay_reasoning=self._job.replay.get(entry.benchmark, "none"),
            opening=self._entries.opening(row["entry"]),
        )

    async def _prepare(self, row: Mapping[str, Any], context: EpisodeContext) -> EpisodeContext:
        entry, benchmark = self.entry(row)
        try:
            context.prepared = await self._await_in_time(row, benchmark.prepare(entry, context))
            return context
        except EngineDead as error:
            self._die(str(error))
        except EpisodeTimeout:
            if not await self._engine.works():
                self._die(f"a preparation timed out, and {NOT_HEALTHY}")
            raise

    async def _await_in_time(self, row: Mapping[str, Any], work: Awaitable[Any]) -> Any:
        """Await ``work``, which runs the benchmark's code. Raises `EpisodeTimeout` when the row's
        time is over. A `TimeoutError` of that code is raised unchanged; its attempts to exit or to
        cancel become a `RuntimeError`."""
        entry, benchmark = self.entry(row)
        limit_s = self._job.config.episode_timeout_s
        # An interactive episode ends by itself at the deadline, and its present state is scored.
        grace_s = DEADLINE_GRACE_S if benchmark.interactive(entry) else 0.0
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


def _error_columns(error: Exception) -> dict[str, str]:
    return {"error_class": type(error).__name__, "error": replace_surrogates(str(error))[:2000]}
