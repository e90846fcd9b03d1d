"""Choose the candidate's chat template and parsers before anything starts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.config.schema import ENDPOINT, RunConfig, config_text
from ace_ray.errors import UserError
from ace_ray.models.families import FamilyFacts, FormatChoice, choose_tool_parser, reasoning_parser
from ace_ray.models.parser_plugins import plugin_sha256, read_plugins
from ace_ray.pipeline.roles import RoleBindings
from ace_ray.types import Entry

# Date in prompts that contain a date, by default. It is fixed, so that prompts do not change daily.
START_DATE = "2025-08-05"


def native_benchmark(
    benchmarks: Mapping[str, Benchmark], entries: Sequence[Entry], bindings: RoleBindings
) -> Benchmark | None:
    """Return the first benchmark that offers tools to the candidate through the model's template:
    in the prompt of an entry, or in another role that the candidate plays. Else return None."""
    playing = {
        name
        for name, roles in bindings.items()
        if any(binding.role == "same" and binding.calls for binding in roles.values())
    }
    native = (
        benchmark
        for entry in entries
        if (benchmark := benchmarks[entry.benchmark]).tools(entry) is not None
        or (entry.benchmark in playing and benchmark.interactive(entry))
    )
    return next(native, None)


def choose_format(
    config: RunConfig, facts: FamilyFacts, *, native: Benchmark | None
) -> tuple[FormatChoice, FamilyFacts]:
    """Choose template and parsers of a model from the ``facts`` of its family. Return the choice
    and the facts; a template that the config names replaces the one in the facts. ``native`` is a
    benchmark that offers tools through the model's template.

    Raises `UserError` if a file cannot be read, or if a needed parser is unknown for the family."""
    model, is_vllm = config.model, config.backend == "vllm"
    # End of an error message: the setting that turns native tool calls off.
    without = "" if native is None else native.without_native
    instead = without and f", or write {without}"
    if facts.writes_by_code and model.chat_template is not None:
        problem = "vLLM formats this family's chats in code and reads no template"
        raise UserError(problem, where="model.chat_template", fix="leave it out")
    template = None
    if model.chat_template is not None:
        template = config_text(model.chat_template)
        facts = replace(facts, templates=(template,))
    reasoning, tool = model.reasoning_parser, model.tool_parser
    if reasoning == "auto" and is_vllm:
        reasoning = reasoning_parser(facts)
    if tool == "auto" and is_vllm:
        source = model.chat_template or str(model.source)
        tool = choose_tool_parser(facts, source, instead=instead) if native is not None else None
    if native is not None and tool is None:
        if facts.model_type == "gpt_oss" and reasoning == "openai_gptoss":
            tool = "openai"
        elif is_vllm:
            raise UserError(
                f"native tool calling of {native.name} needs a parser that reads the model's calls",
                where="model.tool_parser",
                fix="name the vLLM tool parser of this model, or write auto" + instead,
            )
    choice = FormatChoice(
        reasoning_parser=reasoning,
        tool_parser=tool,
        chat_template=template,
        template_kwargs=config.template_kwargs,
        plugins=read_plugins(model.plugins),
        start_date=_day(model.start_date) if facts.reads_date else None,
    )
    if model.start_date and is_vllm and not facts.reads_date:
        message = "the model's chats contain no date"
        raise UserError(message, where="model.start_date", fix="leave it out")
    return choice, facts


def _day(start_date: str | None) -> str:
    """Return the date for the prompts: ``start_date``, else the one in ``VLLM_SYSTEM_START_DATE``,
    else `START_DATE`. Raises `UserError` if this is not a date."""
    variable = "VLLM_SYSTEM_START_DATE"
    text = start_date or os.environ.get(variable) or START_DATE
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise UserError(
            f"{text!r:.40} is not a date",
            where="model.start_date" if start_date else variable,
            fix="write it as 2025-08-05",
        ) from error


def choice_facts(choice: FormatChoice) -> dict[str, Any]:
    """Return ``choice`` for the manifest, with hashes in place of the template and the plugins."""
    facts = asdict(choice)
    facts["plugins"] = {name: plugin_sha256(text) for name, text in choice.plugins}
    if choice.chat_template is not None:
        facts["chat_template"] = hashlib.sha256(choice.chat_template.encode()).hexdigest()
    return facts


def replay_policy(
    config: RunConfig, benchmark: Benchmark, choice: FormatChoice, facts: FamilyFacts
) -> str:
    """Return which of its reasoning the model sees again in episodes of ``benchmark``: "none",
    "tool_steps" or "all". Except for endpoints, it is "none" if answers have no reasoning or the
    template drops reasoning. Raises `UserError` if the benchmark's class sets any other value."""
    if benchmark.replay_reasoning not in ("none", "tool_steps", "all"):
        raise UserError(
            f"replay_reasoning is {benchmark.replay_reasoning!r:.60}",
            where=f"the class of {benchmark.name}",
            fix="write none, tool_steps or all",
        )
    # An endpoint's template is unknown, so reasoning is sent back to the endpoint in any case.
    unread = choice.reasoning_parser == "none" or not facts.reads_reasoning
    if config.backend != ENDPOINT and unread:
        return "none"
    return config.model.replay_reasoning or benchmark.replay_reasoning
