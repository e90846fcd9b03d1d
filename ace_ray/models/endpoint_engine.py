"""Client of a candidate (the evaluated model) behind an endpoint, in place of an engine.

Weights, chat template and tool parser of the endpoint are unknown. `UNKNOWN` lists such properties,
and manifests and comparisons contain the list."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ace_ray.config.schema import CandidateEndpoint, ModelConfig, RunConfig
from ace_ray.errors import PromptTooLong, RequestFailed, UserError
from ace_ray.models.chat import PROBE_TOOLS
from ace_ray.models.endpoint import EndpointModel, EndpointRefused
from ace_ray.models.sources import ModelRef
from ace_ray.models.urls import endpoint_access, host_of
from ace_ray.types import Completion, Messages, Sampling

WHERE = "model.endpoint"
# Unknown properties of a model behind an endpoint.
UNKNOWN = ("revision", "chat template", "tool parser", "context length", "engine and its arguments")
# Keys of a request that ``extra_body`` must not set: answers would be read wrongly.
_OURS = ("model", "messages", "tools", "stream", "n")
# Keys for the schema of an answer, which only the benchmark sets.
_OF_SCHEMAS = ("response_format", "schema")
_QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


class EndpointEngine(EndpointModel):
    """Client of the candidate, one per worker. Raises `UserError` if its URL or API key is bad."""

    version = "endpoint"
    max_model_len = None
    """Unknown. The server refuses prompts that do not fit."""

    def __init__(self, model: ModelConfig) -> None:
        endpoint = endpoint_of(model)
        super().__init__(
            endpoint,
            split_reasoning=model.reasoning_parser != "none",
            template_kwargs=model.chat_template_kwargs,
            location=WHERE,
        )
        self.device = f"endpoint {host_of(endpoint.url)}"

    async def check_health(self) -> None:
        """Return at once, without a health check: if the endpoint fails, a restart of this process
        would not help. `answering` shows whether the endpoint works."""

    def processes(self) -> list[Any]:
        return []

    async def token_logprobs(self, messages: Messages, text: str) -> list[float]:
        raise RequestFailed("an endpoint does not return the logprobs of a given text")


def endpoint_of(model: ModelConfig) -> CandidateEndpoint:
    """Return the endpoint of the candidate. Raises `ValueError` if the config lacks an endpoint."""
    if model.endpoint is None:
        raise ValueError("the config has no endpoint for the candidate")
    return model.endpoint


def endpoint_ref(config: RunConfig) -> ModelRef:
    """Check a candidate behind an endpoint without sending a request, and return a reference to its
    model. The revision consists of the model's name and the host, since the weights are unknown and
    may change without notice.

    Raises `UserError` for a bad URL, a missing API key, or a config key for engines only."""
    model = config.model
    endpoint = endpoint_of(model)
    for key, value in sorted(endpoint.extra_body.items()):
        _check_extra(key, value)
    endpoint_access(endpoint, WHERE)
    engine_only = {
        "engine": bool(config.engine),
        "model.revision": model.revision is not None,
        "model.adapter": model.adapter is not None,
        "model.adapter_revision": model.adapter_revision is not None,
        "model.tool_parser": model.tool_parser is not None,
        "model.reasoning_parser": model.reasoning_parser not in ("auto", "none"),
        "model.chat_template": model.chat_template is not None,
        "model.plugins": bool(model.plugins),
        "model.start_date": model.start_date is not None,
        "worker_cpus": config.worker_cpus != RunConfig.model_fields["worker_cpus"].default,
    }
    for key, is_set in engine_only.items():
        if is_set:
            raise UserError(
                "configures an engine of the run, but the candidate is behind an endpoint",
                where=key,
                fix="write auto or none; the server has its own parser"
                if key.endswith("reasoning_parser")
                else "leave it out; configure the server where it runs",
            )
    name = f"{endpoint.model} at {host_of(endpoint.url)}"
    return ModelRef(endpoint.model, "endpoint", endpoint.model, name)


def _check_extra(key: str, value: Any) -> None:
    location = f"{WHERE}.extra_body"
    if key in _OURS:
        raise UserError(f"{key!r} is set by ace_ray", where=location, fix="leave it out")
    if key == "chat_template_kwargs":
        raise UserError(f"{key!r} belongs to model", where=location, fix=f"write model.{key}")
    if key == "response_format" and value is None:
        return  # requests are then sent without schemas
    if key in _OF_SCHEMAS:
        raise UserError(
            f"{key!r} is set by the benchmark, which defines the schema of answers",
            where=location,
            fix="leave it out, or write response_format: null to ask without schemas",
        )
    drawn = key in Sampling.__dataclass_fields__
    if drawn and value is not None:
        fix = f"write sampling.{key}, or null here to leave it out of requests"
        raise UserError(f"{key!r} belongs to sampling", where=location, fix=fix)
    if not drawn and key != "tool_choice" and value is None:
        raise UserError(f"{key!r} needs a value here", where=location, fix="give it a value")


def ask_endpoint(config: RunConfig, *, tools: bool, patient: bool = True) -> dict[str, Any]:
    """Send the candidate a test question, and return facts about the answer for the manifest.

    The facts are JSON values: ``model``, ``fingerprint``, ``usage``, ``finish_reason``, ``text``,
    and with ``tools`` the number of ``calls``. ``patient``: whether to retry, as for a row.

    Raises `UserError` if the endpoint refuses the question, `EndpointDown` if no answer comes."""
    model = config.model
    if not patient:
        once = endpoint_of(model).model_copy(update={"max_retries": 0})
        model = model.model_copy(update={"endpoint": once})
    try:
        # In a thread, since a notebook already runs an event loop.
        with ThreadPoolExecutor(1) as thread:
            request = _ask(model, config.sampling.sampling(), tools=tools)
            completion = thread.submit(asyncio.run, request).result()
    except EndpointRefused as error:
        raise UserError(str(error), where=WHERE, fix=_fix(str(error), tools=tools)) from error
    except PromptTooLong as error:
        fix = "lower sampling.max_tokens, or serve the model with a longer context"
        raise UserError(str(error), where=WHERE, fix=fix) from error
    facts = completion.endpoint
    assert facts is not None  # set for every answer of an endpoint
    answer: dict[str, Any] = {
        "model": facts.model,
        "fingerprint": facts.fingerprint,
        "usage": facts.has_usage,
        "finish_reason": completion.finish_reason,
        "text": completion.text[:200],
    }
    return answer | ({"calls": len(completion.tools.calls)} if completion.tools else {})


async def _ask(model: ModelConfig, sampling: Sampling, *, tools: bool) -> Completion:
    engine = EndpointEngine(model)
    try:
        return await engine.chat(_QUESTION, sampling, PROBE_TOOLS if tools else None)
    finally:
        await engine.close()


def _fix(refusal: str, *, tools: bool) -> str:
    if "does not accept" in refusal:
        return "set the environment variable in api_key_env to a key that the endpoint accepts"
    if "HTTP 404" in refusal:
        return "check url (the part before /chat/completions) and model"
    if tools:
        return (
            "if the endpoint does not support tools, start the server with a tool parser, or "
            "evaluate with mode: prompt; remove keys that it rejects with extra_body: {KEY: null}"
        )
    return "remove keys that the endpoint rejects with extra_body: {KEY: null}"
