"""Check that the chat templates of a run accept its prompts, and that the prompts fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ace_ray.config.roles import ServedRole
from ace_ray.config.schema import ENDPOINT
from ace_ray.errors import PromptRefused, UserError
from ace_ray.models import adapters
from ace_ray.models.families import SWITCHES
from ace_ray.models.sources import tokenizer_folder
from ace_ray.pipeline.entries import read_opening
from ace_ray.pipeline.planning.plan import Plan

if TYPE_CHECKING:
    from ace_ray.models.chat import Chat

Messages = Sequence[Mapping[str, Any]]
Count = Callable[[Messages, Messages | None], int]
# Number of prompts that fit the context after which shorter ones are not counted (4 ms a prompt).
ENOUGH = 50
DIVIDED_CALLS = (
    "the chat template takes one call per message; an answer with several calls is shown to the "
    "model as several messages with one call each"
)
# Time limit for counting tokens, since some templates are slow.
COUNT_S = 10.0


def check_chat(plan: Plan) -> tuple[dict[str, Any], str, int]:
    """Check that the chat template accepts this run's prompts, and that prompts fit the context.

    Return facts for the manifest, a line about how many prompts fit, and the number of prompts that
    do not fit. If tokens cannot be counted, the last two values are "" and 0. Raises `UserError` if
    the template refuses the prompts or no prompt fits the context."""
    engine, files = plan.config.engine, plan.files
    facts: dict[str, Any] = {"chat_template_sha256": ""}
    if plan.config.backend == ENDPOINT:
        _check_roles(plan, None)
        return {"chat_template_sha256": None}, "", 0
    if plan.config.backend == "fake":
        from ace_ray.models.fake import FakeScript, count_words

        limit = FakeScript.model_validate(engine).max_model_len
        return facts, *_check_fit(plan, count_words, limit)
    from ace_ray.models.chat import Chat

    assert files.folder is not None  # `resolve_model` has read the files
    context = files.context(engine.get("max_model_len"))
    if plan.model.adapter is not None:
        adapters.check_adapter(plan.model, plan.choice.chat_template)
    if files.facts.writes_by_code:  # only the engine can check the prompts
        return facts, "", 0
    chat = Chat.load(
        files.folder,
        plan.config.template_kwargs,
        trust_remote_code=engine.get("trust_remote_code") is True,
        template=plan.choice.chat_template,
        date=plan.choice.start_date,
    )
    facts["chat_template_sha256"] = chat.template_sha256
    if plan.native:
        # Prompts of a single call may contain earlier calls, too.
        has_calls = any('"tool_calls"' in opening for opening in plan.openings)
        has_calls = has_calls or bool(plan.rows.interactive.any())
        chat.require_tools(plan.model.source, episodes=has_calls)
        facts["chat_template_sha256"] = chat.tools_template_sha256
        if has_calls and chat.is_single_call:
            facts["divided_calls"] = DIVIDED_CALLS
    _check_variables(plan, chat)
    for entry in {(e.benchmark, e.category): e for e in plan.entries}.values():
        benchmark = plan.benchmarks[entry.benchmark]
        if benchmark.interactive(entry):
            sent = benchmark.template_probe(entry), benchmark.tools(entry)
            source, fix = plan.model.source, benchmark.refused_fix
            _check_template(chat, *sent, who=entry.category, location=source, fix=fix)
    _check_roles(plan, chat)

    def count(messages: Messages, tools: Messages | None) -> int:
        return len(chat.encode(chat.render(messages, tools)))

    return facts, *_check_fit(plan, count, context)


def _check_variables(plan: Plan, chat: Chat) -> None:
    """Raise `UserError` if the template does not use a variable that the config sets."""
    effort = plan.config.sampling.reasoning_effort
    if effort is not None and not any(
        map(chat.has_variable, ("reasoning_effort", "enable_thinking"))
    ):
        raise UserError(
            f"the chat template of {plan.model.source} does not use reasoning_effort",
            where="sampling.reasoning_effort",
            fix="leave it out, or set the template's own variable in model.chat_template_kwargs",
        )
    for name in plan.config.model.chat_template_kwargs:
        # Parsers read the switches for thinking, even if the template does not use them.
        if chat.has_variable(name) or (name in SWITCHES and plan.choice.vllm_reasoning_parser):
            continue
        problem = f"the chat template of {plan.model.source} does not use {name}"
        raise UserError(problem, where=f"model.chat_template_kwargs.{name}", fix="leave it out")


def _check_roles(plan: Plan, candidate: Chat | None) -> None:
    """Raise `UserError` if the template of a role's model refuses the role's chats or drops its
    tools. ``candidate`` is None for an endpoint, whose template is unknown."""
    from ace_ray.models.chat import Chat

    for name, roles in plan.bindings.items() if plan.rows.interactive.any() else ():
        for role, binding in roles.items():
            chat, tools = candidate, plan.benchmarks[name].role_tools(role)
            location, fix = f"benchmarks.{name}.{role}", "use another model or an endpoint for it"
            if isinstance(binding.role, ServedRole):
                assert binding.model is not None  # a served role has a model
                chat = Chat.load(
                    tokenizer_folder(binding.model),
                    binding.role.model.chat_template_kwargs,
                    trust_remote_code=binding.role.engine.get("trust_remote_code") is True,
                )
                if tools is not None:
                    chat.require_tools(location, episodes=True, fix=fix)
            elif binding.role != "same" or chat is None:
                continue
            sent = plan.benchmarks[name].role_chat(role), tools
            _check_template(chat, *sent, who="this role", location=location, fix=fix)


def _check_template(
    chat: Chat, messages: Messages, tools: Messages | None, *, who: str, location: str, fix: str
) -> None:
    """Raise `UserError` if the template of ``chat`` refuses ``messages`` and ``tools``. ``who`` is
    the category or role that sends them; ``location`` and ``fix`` are parts of the error."""
    try:
        chat.render(messages, tools)
    except PromptRefused as error:
        senders = ", ".join(message["role"] for message in messages)
        problem = f"messages of {senders} in {who}: {error}"
        raise UserError(problem, where=location, fix=fix) from error


def _check_fit(plan: Plan, count: Count, context: int | None) -> tuple[str, int]:
    """Count the tokens of the shortest prompt, then of the longest ones until `ENOUGH` prompts fit.
    Return a line about the prompts, and how many are too long or refused by the template. Raises
    `UserError` if the template refuses the shortest prompt, or if no prompt fits ``context``."""
    entries = sorted({*plan.rows.entry.tolist()}, key=lambda n: len(plan.openings[n]))
    fitting = skipped = longest = 0
    least: int | None = None
    end = time.monotonic() + COUNT_S
    for number in (*entries[:1], *reversed(entries[1:])):
        benchmark = plan.benchmarks[plan.entries[number].benchmark]
        try:
            tokens = count(*read_opening(plan.openings[number]))
        except PromptRefused as error:
            if not fitting:
                location, fix = plan.model.source, benchmark.refused_fix
                raise UserError(str(error), where=location, fix=fix) from error
            skipped += 1
            continue
        longest, least = max(longest, tokens), min(least or tokens, tokens)
        fits = context is None or tokens < context
        fitting, skipped = fitting + fits, skipped + (not fits)
        # A prompt with more characters may have fewer tokens, but not half as many.
        can_fit = context is None or least <= 2 * context
        time_over = time.monotonic() > end and (fitting or not can_fit)
        if context is None or fitting == ENOUGH or time_over:
            break
    if entries and not fitting:
        shortest = entries[0]
        benchmark = plan.benchmarks[plan.entries[shortest].benchmark]
        chars_per_token = len(plan.openings[shortest]) / (least or 1)
        change = benchmark.shorter_prompts(context or 0, chars_per_token)
        raise UserError(
            f"no prompt fits: the shortest has {least:,} tokens, but the context is {context:,}",
            where="engine.max_model_len",
            fix=change or "raise it, or use a model with a longer context",
        )
    if context is None:
        return "the chat template accepts them; only vLLM knows the context length", skipped
    total, uncounted = len(entries), len(entries) - skipped - fitting
    line = f"{total - skipped} of {total} prompts fit"
    if uncounted and fitting < ENOUGH:
        line = f"{uncounted} of {total} prompts were not counted, at least {skipped} do not fit"
    line += f" a context of {context} tokens, the longest has {longest}"
    if skipped:
        line += "; rows whose prompt does not fit are skipped (PromptTooLong)"
    return line, skipped
