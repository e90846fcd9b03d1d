"""Run vLLM's `AsyncLLM` in this process, with the interface of `Model`.

Many coroutines call `chat` at once, and vLLM batches the requests. The engine core and its workers
are child processes. After a crash of a child, every call raises `EngineDead`."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ace_ray.errors import EngineDead, PromptTooLong, RequestFailed, UserError
from ace_ray.models.adapters import content_hash
from ace_ray.models.answer_parser import parser_facts
from ace_ray.models.core_process import fork_cores, start_fork_server
from ace_ray.models.cpu_environment import cpu_environment
from ace_ray.models.families import FormatChoice
from ace_ray.models.format import Format, set_environment
from ace_ray.models.probe import TEXTS, Logprobs, compute_references
from ace_ray.models.sampling import vllm_arguments
from ace_ray.models.start_failure import capture_start
from ace_ray.models.start_phases import PROCESS, StartPhases
from ace_ray.types import Completion, EngineFigures, Messages, Sampling, Tools, bounded_raw
from ace_ray.util.sanitizing import one_line
from ace_ray.util.secrets import mask_secrets

# Maximum attempts to empty the cache of an engine.
RESETS = 20
# Reason for an answer without a schema: its grammar would apply to the reasoning as well.
UNSEEN = (
    "the model may think, and vLLM would apply the schema to its reasoning; set "
    "model.reasoning_parser to one of vLLM's own parsers, which finds the end of the reasoning"
)
# Environment variable of Ray. A local Ray sets it to 0, since nobody reads its metrics.
RAY_METRICS = "RAY_enable_metrics_collection"
EXTENSION = "ace_ray.models.vllm_engine.SwapExtension"


class VLLMEngine:
    """A vLLM engine. Loading takes 20-60 s, so a worker creates one engine and shares it.

    ``choice``: the format of chats and answers, with a tool parser if `chat` gets tools.
    ``swappable``: whether `swap` will be called. ``adapters``: whether `swap` loads LoRA adapters;
    the base model answers until the first swap. ``phases`` times the start. ``metrics``: in an
    actor, the pair of the model's name in vLLM's metrics and the module ``ray.util.metrics``.
    Raises `EngineNotStarted`, and `UserError` if the choice does not fit the model."""

    def __init__(
        self,
        folder: Path,
        engine_args: Mapping[str, Any],
        choice: FormatChoice,
        *,
        swappable: bool = False,
        adapters: bool = False,
        phases: StartPhases | None = None,
        metrics: tuple[str, Any] | None = None,
    ) -> None:
        phases = phases or StartPhases(lambda phase: None)
        phases.begin(PROCESS)
        os.environ.update(cpu_environment())
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        set_environment(choice)
        with capture_start(phases.read):
            # First, since it imports vLLM while this process does.
            forks = metrics is not None and start_fork_server(engine_args)
            from vllm import SamplingParams, __version__
            from vllm.platforms import current_platform
            from vllm.sampling_params import RequestOutputKind
            from vllm.v1.engine.exceptions import EngineDeadError

            arguments = _arguments(engine_args, choice)
            if swappable and not adapters:
                arguments = {"worker_extension_cls": EXTENSION, **arguments}
            if forks:
                fork_cores()
            self._engine = _start(folder, arguments, metrics)
        phases.end()
        self._dead = EngineDeadError
        self._params = SamplingParams
        self._final = RequestOutputKind.FINAL_ONLY
        self._format = Format(self._engine.model_config, self._engine.renderer, choice)
        self._ids = itertools.count()
        self._core_sees_reasoning = bool(arguments.get("reasoning_parser"))
        self._adapters = adapters
        # The active `LoRARequest`; None for the base.
        self._adapter: Any = None
        # Numbers of all adapters of this engine, by name.
        self._numbers: dict[str, int] = {}
        self.max_model_len: int = self._engine.model_config.max_model_len
        cache = self._engine.vllm_config.cache_config
        # Size of the prefix cache; 0 without one.
        blocks = cache.num_gpu_blocks if cache.enable_prefix_caching else 0
        self.cache_tokens = (blocks or 0) * cache.block_size
        self.version: str = __version__
        structured = self._engine.vllm_config.structured_outputs_config
        self.reading = {
            **parser_facts(choice.tool_parser, choice.vllm_reasoning_parser),
            "structured_outputs_backend": str(structured.backend),
        }
        # Name of the accelerator; "" on a CPU.
        self.device = "" if current_platform.is_cpu() else current_platform.get_device_name()

    async def check_health(self) -> None:
        """Wait until the engine core has answered, which happens between two steps."""
        await self._engine.is_sleeping()

    def processes(self) -> list[Any]:
        """Return the engine cores (`multiprocessing.Process`); [] if they are Ray actors. If vLLM
        names a failed core, return only this core: vLLM itself has ended the other cores."""
        manager = self._engine.engine_core.resources.engine_manager
        cores = list(getattr(manager, "processes", ()))
        failed = getattr(manager, "failed_proc_name", None)
        return [core for core in cores if core.name == failed] or cores

    async def swap(self, folder: Path) -> None:
        """Load the adapter or the weights in ``folder``. New weights must have the layout of the
        current weights. No request may be in flight.

        Raises `EngineDead` if the engine cannot be used any more, and `UserError` if vLLM refuses
        the adapter; the previous adapter then stays active."""
        if self._adapters:
            await self._take_adapter(folder)
            return
        try:
            await self._engine.collective_rpc("swap_weights", args=(str(folder),))
            await self._forget_caches()
        except Exception as error:
            raise EngineDead(f"the weights could not be swapped: {error}") from error

    async def _take_adapter(self, folder: Path) -> None:
        from vllm.lora.request import LoRARequest

        # vLLM, including its prefix cache, compares adapters by name. So the name is a hash.
        name = content_hash(folder)
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        request = LoRARequest(lora_name=name, lora_int_id=number, lora_path=str(folder))
        try:
            await self._engine.add_lora(request)
        except self._dead as error:
            raise EngineDead(str(error)) from error
        except Exception as error:
            raise UserError(
                f"vLLM does not accept the adapter: {one_line(mask_secrets(str(error)), 600)}",
                where=str(folder),
                fix="merge the adapter into its base and name the result as model.source",
            ) from error
        self._adapter = request

    async def _forget_caches(self) -> None:
        """Empty the prefix caches of the previous weights, including caches in KV connectors."""
        for _ in range(RESETS):
            if await self._engine.reset_prefix_cache(reset_connector=True):
                return
            # Aborted requests keep their cache blocks until the next step.
            await asyncio.sleep(0.1)
        raise RuntimeError("the cache of the previous weights could not be cleared")

    async def logprobs(self) -> Logprobs:
        """Return the logprob of each token except the first, for each text in `TEXTS`."""
        return [await self._prompt_logprobs(ids) for ids in self._probe_ids()]

    async def token_logprobs(self, messages: Messages, text: str) -> list[float]:
        """Return the logprob of each token of ``text`` as the answer to ``messages``. Raises
        `PromptTooLong` if both together do not fit the context."""
        prompt_ids = list((await self._format.render(messages)).ids)
        ids = prompt_ids + self._format.encode(text)
        if len(ids) >= self.max_model_len:
            raise PromptTooLong(
                f"the prompt and the text have {len(ids)} tokens, but the context holds "
                f"{self.max_model_len}"
            )
        return (await self._prompt_logprobs(ids))[len(prompt_ids) - 1 :]

    async def _prompt_logprobs(self, ids: list[int]) -> list[float]:
        """Return the logprob of each token in ``ids`` except the first."""
        params = self._params(max_tokens=1, temperature=0, prompt_logprobs=0)
        final = await self._last_output({"prompt_token_ids": ids}, params, "p")
        if final is None or final.prompt_logprobs is None:
            raise EngineDead("the engine returned no logprobs")
        pairs = zip(ids[1:], final.prompt_logprobs[1:], strict=True)
        return [by_token[token].logprob for token, by_token in pairs]

    async def _last_output(self, prompt: Any, params: Any, kind: str, **more: Any) -> Any:
        """Return the last output for a prompt; None if the engine returns no output."""
        final = None
        try:
            async for output in self._engine.generate(
                prompt,
                params,
                request_id=f"{kind}{next(self._ids)}",
                lora_request=self._adapter,
                **more,
            ):
                final = output
        except self._dead as error:
            raise EngineDead(str(error)) from error
        return final

    def reference(self, folders: Sequence[Path]) -> list[Logprobs]:
        """Compute the logprobs of `TEXTS` for each checkpoint with transformers. The call blocks,
        so run it in a thread. Raises `ProbeFailed` if the computation fails."""
        return compute_references(folders, self._probe_ids())

    def _probe_ids(self) -> list[list[int]]:
        return [self._format.encode(text) for text in TEXTS]

    async def chat(self, messages: Messages, sampling: Sampling, tools: Tools = None) -> Completion:
        if tools is not None and self._format.choice.tool_parser is None:
            raise ValueError("tools need a tool parser that reads the answer")
        prompt = await self._format.render(messages, tools, schema=sampling.schema)
        room = self.max_model_len - len(prompt.ids)
        if room < 1:
            raise PromptTooLong(
                f"the prompt has {len(prompt.ids)} tokens, but the context holds "
                f"{self.max_model_len}"
            )
        unseen = not self._core_sees_reasoning and self._format.may_think(prompt)
        free = bool(sampling.schema) and unseen
        if free:
            sampling = sampling.with_schema(None)
            prompt = await self._format.render(messages, tools)
        # Parameters of the parser, such as a grammar for calls, take precedence.
        values = {**vllm_arguments(sampling, room), **prompt.adjustments}
        params = self._params(**values, output_kind=self._final)
        start = time.perf_counter()
        more = self._format.engine_kwargs(prompt)
        final = await self._last_output(prompt.engine_input, params, "r", **more)
        if final is None or not final.outputs:
            raise EngineDead("the engine ended a request without an answer")
        answer = final.outputs[0]
        finish = answer.finish_reason or "stop"
        # A core that shuts down or fails ends its requests in flight with other finish reasons.
        if finish == "abort":
            raise EngineDead("the engine aborted the request")
        if finish not in ("stop", "length"):
            raise RequestFailed(f"the engine ended the request with {finish!r}")
        reading = self._format.read(prompt, answer.text, answer.token_ids)
        times = final.metrics  # None if an engine reports none
        return Completion(
            text=reading.text,
            tools=reading.tools,
            reasoning=reading.reasoning,
            reasoning_truncated=reading.truncated,
            finish_reason=finish,
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(answer.token_ids),
            seconds=time.perf_counter() - start,
            raw=bounded_raw(answer.text, reading.text),
            schema_refused=UNSEEN if free else "",
            token_ids=list(answer.token_ids),
            engine=times
            and EngineFigures(
                final.num_cached_tokens or 0,
                times.first_token_latency,
                times.last_token_ts - times.first_token_ts,
            ),
        )


def _arguments(engine_args: Mapping[str, Any], choice: FormatChoice) -> dict[str, Any]:
    """Return ``engine_args`` plus ace_ray's defaults. Load the plugins of ``choice``."""
    from vllm.reasoning import ReasoningParserManager

    defaults: dict[str, Any] = {"disable_log_stats": True, "generation_config": "vllm"}
    # With this parser, grammars apply after the reasoning. The core does not load plugins.
    if choice.vllm_reasoning_parser in ReasoningParserManager.list_registered():
        defaults["reasoning_parser"] = choice.vllm_reasoning_parser
    choice.load_plugins()
    return {**defaults, **engine_args}


def _start(folder: Path, arguments: Mapping[str, Any], metrics: tuple[str, Any] | None) -> Any:
    """Start an `AsyncLLM` with the model in ``folder``. ``metrics``: as for `VLLMEngine`."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    stat_logger = _null_logger()
    if metrics is not None and os.environ.get(RAY_METRICS) != "0":
        name, ray_metrics = metrics
        arguments = {"served_model_name": name, **arguments}
        stat_logger = _ray_logger(ray_metrics)
    engine_args = AsyncEngineArgs(model=str(folder), **arguments)
    return AsyncLLM.from_engine_args(engine_args, stat_loggers=[stat_logger])


def _null_logger() -> Any:
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    class NullLogger(PrometheusStatLogger):  # type: ignore[misc]
        """Does nothing, in place of vLLM's logger: without a logger, requests have no times."""

        def nothing(self, *_: Any, **__: Any) -> None:
            pass

        __init__ = record = log_engine_initialized = nothing
        record_sleep_state = record_admission_rejection = nothing

    return NullLogger


def _ray_logger(ray_metrics: Any) -> Any:
    """Return the class that exports vLLM's metrics through the module ``ray.util.metrics``."""
    from vllm.v1.metrics import ray_wrappers

    ray_wrappers.ray_metrics = ray_metrics  # vLLM finds the module only if Ray Serve is installed

    class RayLogger(ray_wrappers.RayPrometheusStatLogger):  # type: ignore[misc]
        """Exports all but the times between tokens: one observation per token slows the engine."""

        def record(self, scheduler: Any, iteration: Any, *more: Any, **options: Any) -> None:
            if iteration is not None:
                iteration.inter_token_latencies_iter = []
            super().record(scheduler, iteration, *more, **options)

    return RayLogger


class SwapExtension:
    """Mix-in for vLLM's worker class, with a method that loads other weights."""

    model_runner: Any

    def swap_weights(self, folder: str) -> None:
        """Replace the weights by those in ``folder``, which have the same layout."""
        self.model_runner.reload_weights(weights_path=folder)
        model = self.model_runner.get_model()
        head: Any = getattr(model, "lm_head", None)
        embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
        # A tied head shares the weights of the embedding. On the CPU it uses a packed copy, which a
        # reload does not update: without this, logits would silently come from the old weights.
        if hasattr(head, "cpu_linear") and getattr(embedding, "weight", None) is head.weight:
            head.quant_method.process_weights_after_loading(head)
