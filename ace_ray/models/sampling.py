"""Convert `Sampling` to vLLM and OpenAI parameters; read a model's generation_config.

Only this module uses the names that vLLM and OpenAI give to sampling parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ace_ray.config.schema import ModelConfig, SamplingConfig
from ace_ray.errors import UserError
from ace_ray.models.engine_args import parser_names
from ace_ray.models.sources import read_json
from ace_ray.types import Sampling

FILE = "generation_config.json"
# Parameters with the same name in vLLM and its server. Their defaults have no effect.
_OPTIONAL = (
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "thinking_token_budget",
)
_DEFAULT = {field.name: field.default for field in fields(Sampling)}


def vllm_arguments(sampling: Sampling, room: int) -> dict[str, Any]:
    """Return the arguments of vLLM's ``SamplingParams``. ``room``: tokens left in the context.

    ``reasoning_effort`` is not included, since it is a variable of the prompt's template
    (`RunConfig.template_kwargs`)."""
    values: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_tokens": min(sampling.max_tokens, room),
        # A seed makes batching in vLLM slower, and does not affect greedy decoding.
        "seed": sampling.seed if sampling.temperature > 0 else None,
        "stop": list(sampling.stop) or None,
        **_changes(sampling),
    }
    if sampling.schema:
        from vllm.sampling_params import StructuredOutputsParams

        values["structured_outputs"] = StructuredOutputsParams(json=sampling.schema)
    return values


def request_fields(sampling: Sampling) -> dict[str, Any]:
    """Return the fields of a chat completion request. Fields beyond OpenAI's are only sent if they
    are set, since OpenAI's API rejects unknown fields."""
    values: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        **_changes(sampling),
    }
    if sampling.top_k:
        values["top_k"] = sampling.top_k
    if sampling.temperature > 0:
        values["seed"] = sampling.seed
    if sampling.stop:
        values["stop"] = list(sampling.stop)
    if sampling.reasoning_effort is not None:
        values["reasoning_effort"] = sampling.reasoning_effort
    if sampling.schema:
        json_schema = {"name": "answer", "schema": json.loads(sampling.schema)}
        values["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return values


def _changes(sampling: Sampling) -> dict[str, Any]:
    values = {name: getattr(sampling, name) for name in _OPTIONAL}
    return {name: value for name, value in values.items() if value != _DEFAULT[name]}


def check_budget(
    config: SamplingConfig | None, engine: Mapping[str, Any], parser: str, *, location: str
) -> None:
    """Raise `UserError` when an engine with the arguments ``engine`` would reject
    ``thinking_token_budget``. ``parser``: the reasoning parser after resolving ``auto``."""
    budget = config and config.thinking_token_budget
    if budget is None or engine.get("reasoning_parser") or engine.get("reasoning_config"):
        return
    if parser not in parser_names("reasoning"):  # the engine core does not load plugins
        raise UserError(
            "thinking_token_budget needs a parser of vLLM that finds the reasoning",
            where=f"{location}.thinking_token_budget",
            fix="name one of vLLM's own parsers for this model in model.reasoning_parser",
        )


def check_sampling(config: SamplingConfig | None, model: ModelConfig, *, location: str) -> None:
    """Raise `UserError` if sampling and template variables both set ``reasoning_effort``."""
    effort = config and config.reasoning_effort
    if effort is not None and "reasoning_effort" in model.chat_template_kwargs:
        problem = "is also set in model.chat_template_kwargs"
        raise UserError(problem, where=f"{location}.reasoning_effort", fix="set it only once")


# Keys that vLLM's ``ModelConfig.get_diff_sampling_param`` reads from the file.
_OWN = ("temperature", "top_k", "top_p", *_OPTIONAL[:-1])


def fill_defaults(
    config: SamplingConfig, folder: Path | None, engine: Mapping[str, Any], *, location: str
) -> SamplingConfig:
    """Fill in the model's defaults from generation_config.json, if ``config`` uses them.

    vLLM's server uses these values by default, but its engine does not. ``folder`` has the model's
    small files; None if they are unknown. ``engine`` may name another folder with the file. Raises
    `UserError` if the file has no sampling values, or values outside of vLLM's ranges."""
    if config.is_complete:
        return config
    problem = "the model's sampling cannot be read: its files are not available here"
    defaults: dict[str, Any] = {}
    if folder is not None:
        source = engine.get("generation_config", "auto")
        file = (folder if source in (None, "auto", "vllm") else Path(str(source))) / FILE
        problem = f"{file} recommends no sampling values"
        tree = read_json(file) if file.exists() else {}
        values = {name: tree.get(name) for name in _OWN}
        values["max_tokens"] = tree.get("max_new_tokens")
        defaults = {name: value for name, value in values.items() if value is not None}
        if defaults.get("top_k") == -1:  # -1 means all tokens, as 0 does here
            defaults["top_k"] = 0
    if not defaults:
        raise UserError(problem, where=location, fix="write the values in place of 'model'")
    # If the file sets only top_p, the temperature is 1, not 0 (greedy decoding).
    return config.fill_from_model({"temperature": 1.0, **defaults}, location=str(file))
