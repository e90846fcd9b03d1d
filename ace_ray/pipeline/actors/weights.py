"""Start the engine of one worker, and swap the engine's weights.

The runs of one job differ only in their weights, so a running engine swaps weights between runs. A
probe checks each swap before the first row. If the probe fails, the process ends, and its successor
starts an engine with the new weights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from operator import add
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray.util import metrics as ray_metrics

from ace_ray.cluster.placement import fetch_on_nodes
from ace_ray.config.schema import ENDPOINT
from ace_ray.errors import EngineDead, RequestFailed, UserError
from ace_ray.models.adapters import check_weights
from ace_ray.models.checkpoints import check_whole, layout_diff
from ace_ray.models.probe import Logprobs, NoVerdict, Probe, ProbeFailed
from ace_ray.models.sources import check_unchanged, release
from ace_ray.models.start_phases import FETCH, StartPhases
from ace_ray.models.weights_cache import NoRoom
from ace_ray.pipeline.actors.worker_config import WorkerConfig
from ace_ray.pipeline.health.heartbeat import EngineLoad, ProcessInfo, die
from ace_ray.pipeline.monitoring.tally import RowReport
from ace_ray.pipeline.monitoring.timing import Clock
from ace_ray.storage.object_store import UnreachableStore
from ace_ray.types import Completion, Messages, Sampling, Tools
from ace_ray.util.sanitizing import replace_surrogates
from ace_ray.util.subprocesses import start_watchdog

# Errors that may be gone at the next attempt; the checkpoint itself may be good.
_TRANSIENT = (NoRoom, UnreachableStore)

# Time for which a process that ends waits until its ended rows have reached a checker.
PASS_ON_S = 60.0

PASS_ON_POLL_S = 0.1

# Time for a Ray task to end after a checker has received its rows. If the task takes longer, Ray
# repeats it, which costs an engine start.
TASK_ENDS_S = 1.0

# Timeout of a health check. An engine answers only between two steps.
ALIVE_S = 30.0

_NO_EFFECT = (
    "the adapter changes nothing: the engine's logprobs are the same with and without it. Its "
    "modules have other names than the base's, or it is empty; name its base as model.source"
)


class WeightLoader:
    """Starts the engine, swaps its weights, and reports both to the coordinator.

    If `WorkerConfig.examine` is set, every checkpoint is checked. Before loading, all its shards
    must be there with the planned content. After loading, the content must be unchanged, and the
    engine must pass a probe. The constructor raises `UserError` if no checkpoint can be loaded."""

    def __init__(self, job: WorkerConfig, process: ProcessInfo, clock: Clock, run: int) -> None:
        self._job, self._coordinator = job, job.coordinator
        self._process, self._clock = process, clock
        self._adapters = job.runs[0].model.adapter is not None
        self._examines = job.examine or self._adapters
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="weights")
        # The next run -> folder of its weights, which a thread fetches in advance.
        self._ahead: dict[int, Future[Path]] = {}
        self._lock = asyncio.Lock()
        self._broken: set[int] = set()
        # Runs whose adapter may name modules that the base does not have.
        self._unsure: set[int] = set()
        self._of_base: Logprobs = ()
        self.run = run
        phases = StartPhases(self._tell)
        phases.begin(FETCH)
        while True:
            try:
                folder = self._examine(self.run)
                break
            except UserError as error:
                if isinstance(error, _TRANSIENT) or not self._examines:
                    raise
                self._give_up(self.run, str(error))
                if self.run + 1 == len(job.runs):
                    raise UserError(
                        "none of the checkpoints that are still to be evaluated can be loaded",
                        where=job.runs[self.run].model.source,
                        fix="repair the checkpoints",
                    ) from error
                self.run += 1
        ray.get(self._coordinator.note_loading.remote(process, self.run))
        began = time.perf_counter()
        self._base = fetch_on_nodes(job.runs[self.run].model) if self._adapters else folder
        self.loaded = start_engine(job, self._base, phases)
        self.engine = MonitoredEngine(self.loaded, job.config.engine_stall_timeout_s / 4, clock)
        phases.end()
        # Seconds of each phase of the engine's start.
        self.start_s = phases.seconds()
        self._loaded_folder = folder
        self._probe = Probe(self.loaded, proven=self._adapters)
        restarted = ray.get(self._coordinator.swap_obstacle.remote(run=self.run))
        how, load_s = "restarted" if restarted else "fresh", round(time.perf_counter() - began, 2)
        self._facts: dict[str, Any] = {"how": how, "worker": process.name, "load_s": load_s}
        self._prefetch(self.run + 1)

    def _tell(self, phase: str) -> None:
        # An exception would end this thread, which forwards the engine's output.
        with suppress(Exception):
            self._coordinator.update_process.remote(self._process, phase=phase)

    async def load(self, run: int) -> bool:
        """Load the weights of ``run`` unless they are loaded. No row may be in flight. Return False
        if the weights cannot be evaluated. End the process if a new engine is needed."""
        async with self._lock:
            if self._facts:
                await self._first_probe()
            if run not in self._broken and run != self.run:
                try:
                    await self._swap(run)
                except UserError as error:
                    self._give_up(run, str(error))
                finally:
                    self._clock.enter_state(None)
            return run not in self._broken

    async def _first_probe(self) -> None:
        """Probe a new engine, and keep its answers for the comparison after the next swap."""
        facts, self._facts = self._facts, {}
        is_loaded = not self._adapters or await self._load_adapter()
        if self._job.examine:
            self._clock.enter_state("warm_up")
            try:
                await self._probe.begin(self._loaded_folder if is_loaded else self._base)
                await asyncio.to_thread(check_unchanged, self._job.runs[self.run].model)
            except EngineDead as error:
                await self._end(f"the probe failed: {error}", self.run)
            except (ProbeFailed, UserError) as error:
                self._give_up(self.run, str(error))
                return
            finally:
                self._clock.enter_state(None)
        if is_loaded:
            await self._coordinator.note_loaded.remote(self.run, facts)

    async def _load_adapter(self) -> bool:
        """Load the first adapter into an engine with the base model. Return whether this worked."""
        try:
            self._of_base = await self.loaded.logprobs()
            await self.loaded.swap(self._loaded_folder)
            if await self._has_no_effect(self.run):
                raise UserError(_NO_EFFECT)
        except EngineDead as error:
            await self._end(f"an adapter could not be loaded: {error}", self.run)
        except UserError as error:
            self._give_up(self.run, str(error))
            return False
        return True

    async def _has_no_effect(self, run: int) -> bool:
        """Return whether the adapter of ``run`` does not change the base model's answers. vLLM
        ignores, without an error, adapter modules that the base model does not have."""
        return run in self._unsure and await self.loaded.logprobs() == self._of_base

    async def _swap(self, run: int) -> None:
        """Swap to the weights of ``run``. Raises `UserError` if the weights are damaged, or if vLLM
        refuses an adapter; the engine then keeps the previous adapter."""
        try:
            folder = await asyncio.to_thread(self._folder, run)
        except _TRANSIENT as error:
            await self._end(str(error), None)
        spent = self._clock.read(), self._clock.output_tokens
        self._coordinator.note_unless_stopped.remote(
            self._process, RowReport(self.run, spent=spent)
        )
        self._clock.restart()
        self._clock.enter_state("load")
        if self.run in self._broken and not self._adapters:
            await self._end("the weights in the engine are unknown", run)
        if why := await self._coordinator.swap_obstacle.remote():
            await self._end(why, run)
        if why := self._swap_obstacle(self._loaded_folder, folder):
            await self._end(f"these weights need a new engine: {why}", run)
        await self._coordinator.note_loading.remote(self._process, run)
        await asyncio.to_thread(self._probe.prepare, self._loaded_folder, folder)
        began = time.perf_counter()
        try:
            await self.loaded.swap(folder)
            if await self._has_no_effect(run):
                await self.loaded.swap(self._loaded_folder)
                raise UserError(_NO_EFFECT)
            self._clock.enter_state("warm_up")
            findings = await self._probe.check_swap(folder)
        except (EngineDead, ProbeFailed, OSError) as error:
            why = f"the swap to {self._job.runs[run].run_id} failed: {error}"
            # If the probe cannot tell, later checkpoints may still be swapped.
            only_run = run if isinstance(error, NoVerdict) else None
            await self._coordinator.swap_obstacle.remote(replace_surrogates(why), run=only_run)
            await self._end(why, run)
        load_s = round(time.perf_counter() - began, 2)
        self._release(self.run)
        # Set this before anything can fail, because the engine has the new weights from now on.
        self.run, self._loaded_folder = run, folder
        if self._job.examine:
            await asyncio.to_thread(check_unchanged, self._job.runs[run].model)
        facts = {"how": "swapped", "worker": self._process.name, "load_s": load_s}
        await self._coordinator.note_loaded.remote(run, {**facts, "probe": findings})
        self._prefetch(run + 1)

    async def _end(self, why: str, run: int | None) -> NoReturn:
        """End this process after its ended rows have reached a checker. Without this wait the
        successor would evaluate these rows again, with other weights.

        The successor starts an engine with the weights of ``run`` (None: the same weights)."""
        if run is not None:
            await self._coordinator.note_loading.remote(self._process, run)
        end = time.monotonic() + PASS_ON_S
        while (
            await self._coordinator.count_unchecked.remote(self._process) and time.monotonic() < end
        ):
            await asyncio.sleep(PASS_ON_POLL_S)
        # Without this pause Ray would repeat the task of these rows and load the old weights again.
        await asyncio.sleep(TASK_ENDS_S)
        die(self._coordinator, self._process, why, rows=[])

    def _give_up(self, run: int, why: str) -> None:
        self._broken.add(run)
        ray.get(self._coordinator.note_loaded.remote(run, broken=replace_surrogates(why)))

    def _prefetch(self, run: int) -> None:
        """Fetch and examine the weights of ``run`` while the engine works on the previous run."""
        if run < len(self._job.runs):
            self._ahead[run] = self._threads.submit(self._prepare_folder, run, self._loaded_folder)

    def _prepare_folder(self, run: int, loaded_folder: Path) -> Path:
        folder = self._examine(run)
        if not self._swap_obstacle(loaded_folder, folder):
            self._probe.prepare(loaded_folder, folder)
        return folder

    def _folder(self, run: int) -> Path:
        """Return the folder on this node that contains the weights of ``run``. Raises `UserError`
        if the weights are damaged, or one of `_TRANSIENT` if they cannot be fetched now."""
        with suppress(*_TRANSIENT):  # the disk may have room by now
            if run in self._ahead:
                return self._ahead.pop(run).result()
        return self._examine(run)

    def _examine(self, run: int) -> Path:
        model = self._job.runs[run].model
        if not self._examines:
            return fetch_on_nodes(model)
        try:
            folder = fetch_on_nodes(model)
            if model.adapter:
                base, folder = folder, fetch_on_nodes(model.adapter.ref)
                if not check_weights(folder, base):
                    self._unsure.add(run)
            check_whole(folder)
        except UserError as error:
            if not isinstance(error, _TRANSIENT):
                self._release(run)
            raise
        check_unchanged(model)
        return folder

    def _release(self, run: int) -> None:
        model = self._job.runs[run].model
        release(model.adapter.ref if model.adapter else model)  # the base model stays on the disk

    def _swap_obstacle(self, loaded_folder: Path, folder: Path) -> str:
        """Return why an engine cannot swap from the weights in ``loaded_folder`` to the weights in
        ``folder``; "" if it can."""
        if self._adapters:
            return ""  # an engine can load any adapter, whatever its rank and modules
        try:
            return layout_diff(loaded_folder, folder)
        except UserError as error:  # a trainer may have removed the older checkpoint
            return str(error)


def start_engine(job: WorkerConfig, folder: Path, phases: StartPhases) -> Any:
    """Start an engine of the job's backend with the weights in ``folder``, and return it."""
    if job.config.backend == "fake":
        from ace_ray.models.fake import FakeEngine

        return FakeEngine(job.engine, folder)
    if job.config.backend == ENDPOINT:
        from ace_ray.models.endpoint_engine import EndpointEngine

        return EndpointEngine(job.config.model)
    from ace_ray.models.vllm_engine import VLLMEngine

    # Ray kills the children of a worker that dies, but not if its raylet died first.
    start_watchdog()
    return VLLMEngine(
        folder,
        job.engine,
        job.choice,
        swappable=len(job.runs) > 1,
        adapters=job.runs[0].model.adapter is not None,
        phases=phases,
        metrics=(job.runs[0].model.name, ray_metrics),
    )


class MonitoredEngine:
    """Wraps an engine, and notes the time of the engine's last progress. Every answer is progress.
    After ``ask_after_s`` seconds without an answer, a health check is sent to the engine."""

    def __init__(self, engine: Any, ask_after_s: float, clock: Clock) -> None:
        self._engine, self._ask_after_s, self._clock = engine, ask_after_s, clock
        self.loop: asyncio.AbstractEventLoop | None = None
        self._asking: Future[None] | None = None
        self._pending = 0
        self._heard_at = time.monotonic()
        self._calls = EngineLoad()
        # Size of the prefix cache; 0 if it is unknown.
        self.cache_tokens: int = getattr(engine, "cache_tokens", 0)
        # Returns the processes of the engine core, which are children of this process.
        self.processes: Callable[[], list[Any]] = engine.processes

    async def chat(self, messages: Messages, sampling: Sampling, tools: Tools = None) -> Completion:
        with self._track_request():
            answer: Completion = await self._engine.chat(messages, sampling, tools)
        tokens = answer.prompt_tokens, answer.completion_tokens
        self._calls = EngineLoad(0, *map(add, self._calls[1:], (1, *tokens)))
        self._clock.output_tokens += answer.completion_tokens
        return answer

    def load(self, rows: int) -> EngineLoad:
        """Return the engine's load with ``rows`` rows in flight. Called from another thread."""
        return self._calls._replace(rows=rows, running=self._pending)

    async def token_logprobs(self, messages: Messages, text: str) -> list[float]:
        """Return the logprob of each token of ``text`` as the answer to ``messages``."""
        with self._track_request():
            logprobs: list[float] = await self._engine.token_logprobs(messages, text)
        return logprobs

    @contextmanager
    def _track_request(self) -> Iterator[None]:
        self.loop = asyncio.get_running_loop()
        self._pending += 1
        try:
            with self._clock.track("call"):
                yield
        except RequestFailed:
            self._heard_at = time.monotonic()  # a refusal is an answer
            raise
        finally:
            self._pending -= 1
        self._heard_at = time.monotonic()

    async def works(self) -> bool:
        """Return whether the engine answers a health check within `ALIVE_S` seconds."""
        with suppress(Exception):
            await asyncio.wait_for(self._engine.check_health(), ALIVE_S)
            return True
        return False

    async def answers(self) -> bool:
        """Return whether the engine works: an endpoint if it has answered the last request."""
        return await self.works() and getattr(self._engine, "answering", True)

    def busy_since(self, rows: int | None = None) -> float | None:
        """Return the time of the last progress (`time.monotonic`); None if no request is pending,
        or if ``rows``, a number of rows in flight, is 0. Rows may hang without a request.

        Call this method often, and from another thread, since the event loop may hang."""
        if self.loop is None or not (self._pending if rows is None else rows):
            self._heard_at = time.monotonic()
            return None
        is_asked = self._asking is not None and not self._asking.done()
        if time.monotonic() - self._heard_at > self._ask_after_s and not is_asked:
            self._asking = asyncio.run_coroutine_threadsafe(self._check_alive(), self.loop)
        return self._heard_at

    async def _check_alive(self) -> None:
        with suppress(Exception):  # the pending requests raise the same error
            await self._engine.check_health()
            self._heard_at = time.monotonic()
