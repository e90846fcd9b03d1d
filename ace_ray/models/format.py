"""Render chats and parse answers with the code of vLLM's server.

The server's `OnlineRenderer` chooses the template or the encoder of the family, prepares messages
and tools, and adjusts the request for the parser. A template runs in Jinja's sandbox, with vLLM's
timeout."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.errors import PromptRefused, PromptTooLong, RequestFailed
from ace_ray.models.answer_parser import AnswerReader, Reading, parser_class
from ace_ray.models.chat import PROBE_HISTORY, PROBE_TOOLS, split_calls
from ace_ray.models.completions import arguments_to_text
from ace_ray.models.families import SWITCHES, FormatChoice, date_variables
from ace_ray.models.reasoning import closes_thinking, may_think
from ace_ray.types import Messages, ToolAnswer, Tools
from ace_ray.util.sanitizing import replace_surrogates

# Timeout of a rendering. vLLM's default of 30 s includes the time in a worker's queue.
RENDER_TIMEOUT_S = 300


@dataclass(frozen=True)
class Prompt:
    """A rendered chat, with the data to parse its answer."""

    ids: Sequence[int]
    text: str
    """Text of the prompt; "" if the renderer returns only tokens."""
    engine_input: Any
    """Input of `AsyncLLM.generate`."""
    request: Any
    """The server's request, adjusted for the parser."""
    template_kwargs: dict[str, Any] = field(repr=False)
    """Effective variables of the template, for the parser."""
    tools: Tools = None

    @property
    def adjustments(self) -> dict[str, Any]:
        """Sampling parameters that the parser needs: whether special tokens stay in the text, and
        a grammar for decoding."""
        request = self.request
        parameters = {
            "skip_special_tokens": request.skip_special_tokens,
            "spaces_between_special_tokens": request.spaces_between_special_tokens,
            "structured_outputs": request.extract_structured_outputs(),
        }
        return {key: value for key, value in parameters.items() if value is not None}


class Format:
    """Renders chats and parses answers of one model with vLLM's ``model_config`` and ``renderer``.
    Raises `UserError` if vLLM lacks a parser that ``choice`` names."""

    def __init__(self, model_config: Any, renderer: Any, choice: FormatChoice) -> None:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.renderers.online_renderer import OnlineRenderer

        set_environment(choice)
        self.choice = choice
        self.tokenizer = renderer.get_tokenizer()
        self._request = ChatCompletionRequest
        self.is_harmony = model_config.hf_config.model_type == "gpt_oss"
        self.renderer_name = "harmony" if self.is_harmony else type(renderer).__name__
        self._config = model_config
        # Other renderers use an encoder of vLLM and ignore the template.
        self._of_jinja = self.renderer_name == "HfRenderer"
        choice.load_plugins()
        tool, reasoning = choice.tool_parser, choice.vllm_reasoning_parser

        def make_reader(tool: str | None) -> tuple[Any, AnswerReader]:
            parser_type = parser_class(
                self.tokenizer, reasoning=reasoning, tool=tool, is_harmony=self.is_harmony
            )
            theirs = OnlineRenderer(
                model_config,
                renderer,
                request_logger=None,
                chat_template=choice.chat_template,
                chat_template_content_format="auto",
                enable_auto_tools=True,
                tool_parser=tool,
                reasoning_parser=reasoning,
                default_chat_template_kwargs=self._variables,
            )
            split = choice.reasoning_parser == "auto"
            reader = AnswerReader(parser_type, self.tokenizer, model_config, tool=tool, split=split)
            return theirs, reader

        self._is_single_call: bool | None = None
        self._effort = None
        self._variables = dict(choice.template_kwargs)
        if self._of_jinja:
            self._variables = {**date_variables(choice.start_date), **self._variables}
        if self.is_harmony:  # harmony reads the effort from the request
            self._effort = self._variables.pop("reasoning_effort", None)
        self._with_tools = make_reader(tool)
        # Without tools a tool parser must not change an answer. Harmony uses one parser for both
        # cases, since the parser class keeps the settings of its last use.
        self._plain = make_reader(None) if tool and not self.is_harmony else self._with_tools

    async def render(self, messages: Messages, tools: Tools = None, *, schema: str = "") -> Prompt:
        """Render a prompt, with ``tools`` in OpenAI's format.

        ``schema``: JSON schema of the answer, from which some parsers build a grammar. Raises
        `PromptRefused` if the template rejects the messages, `PromptTooLong` if the prompt is too
        long, and `RequestFailed` after vLLM's timeout."""
        divided = split_calls(messages)
        if divided is not None and await self._takes_single_calls():
            messages = divided
        return await self._render(messages, tools, schema)

    async def _takes_single_calls(self) -> bool:
        """Return whether the template accepts only one call per answer. This is tested once, with a
        probe, since a row's prompt must not depend on other rows."""
        if self._is_single_call is None:
            divided = split_calls(PROBE_HISTORY) or ()
            refused = not await self._accepts(PROBE_HISTORY)
            self._is_single_call = refused and await self._accepts(divided)
        return self._is_single_call

    async def _accepts(self, messages: Messages) -> bool:
        try:
            await self._render(messages, PROBE_TOOLS, "")
        except PromptRefused:
            return False
        return True

    async def _render(self, messages: Messages, tools: Tools, schema: str) -> Prompt:
        offered = list(tools) if tools else None
        online, _ = self._with_tools if offered else self._plain
        try:
            request = self._chat_request(messages, offered, schema)
            rendered = await online.render_chat(request)
        except TimeoutError as error:
            raise RequestFailed(str(error)) from error
        # A template is foreign code: any exception counts as a refusal.
        except Exception as error:
            if getattr(error, "parameter", None) in ("input_tokens", "input_text"):
                raise PromptTooLong(str(error)) from error
            raise PromptRefused(f"the chat template rejects these messages: {error}") from error
        if not isinstance(rendered, tuple):
            why = getattr(getattr(rendered, "error", rendered), "message", rendered)
            raise PromptRefused(f"the chat template rejects these messages: {why}")
        _, (engine_input,) = rendered
        text = engine_input.get("prompt") or ""
        variables = online.effective_chat_template_kwargs(request)
        # Variables go to the engine core, which does not accept functions.
        variables = {name: v for name, v in variables.items() if name != "strftime_now"}
        if closes_thinking(text):
            # Parsers treat an unset switch as on, but some templates treat it as off.
            variables = {**variables, **dict.fromkeys(SWITCHES, False)}
        return Prompt(
            ids=engine_input["prompt_token_ids"],
            text=text,
            engine_input=engine_input,
            request=request,
            template_kwargs=variables,
            tools=tools,
        )

    def engine_kwargs(self, prompt: Prompt) -> dict[str, Any]:
        """Return the arguments about reasoning that vLLM's server passes to `AsyncLLM.generate`."""
        _, reader = self._with_tools if prompt.request.tools else self._plain
        parser = reader.new_parser(prompt.request, prompt.template_kwargs)
        reasoning_ended = prompt.request.resolve_reasoning_ended(parser, list(prompt.ids))
        variables = None
        if parser is not None and parser.reasoning_parser is not None:
            variables = {"chat_template_kwargs": prompt.template_kwargs}
        return {"reasoning_ended": reasoning_ended, "reasoning_parser_kwargs": variables}

    def read(self, prompt: Prompt, text: str, token_ids: Sequence[int]) -> Reading:
        """Parse the answer to ``prompt``. Never raises on any text."""
        _, reader = self._with_tools if prompt.request.tools else self._plain
        reading = reader.read(
            text,
            token_ids,
            prompt.request,
            prompt_ids=prompt.ids,
            template_kwargs=prompt.template_kwargs,
            opened=prompt.text.rstrip().endswith("<think>"),
        )
        if prompt.tools is None or reading.tools is not None:
            return reading
        # The list of offered tools was empty.
        return Reading(reading.text, reading.reasoning, reading.truncated, ToolAnswer(reading.text))

    def may_think(self, prompt: Prompt) -> bool:
        """Return whether the answer to ``prompt`` may begin with reasoning."""
        if self.choice.vllm_reasoning_parser or not self._of_jinja:  # an encoder may open a block
            return True
        from vllm.renderers.hf import resolve_chat_template

        tools = prompt.request.tools
        template: str | None = resolve_chat_template(
            self.tokenizer,
            self.choice.chat_template,
            list(map(dict, tools)) if tools else None,
            model_config=self._config,
        )
        return template is None or may_think(template, prompt.text)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a plain text."""
        ids: list[int] = self.tokenizer.encode(replace_surrogates(text), add_special_tokens=False)
        return ids

    def _chat_request(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None, schema: str
    ) -> Any:
        # A copy: the server changes its input.
        fields: dict[str, Any] = {"messages": _copy(list(map(arguments_to_text, messages)))}
        if tools:
            fields |= {"tools": _copy(tools), "tool_choice": "auto"}
        if schema:
            fields["structured_outputs"] = {"json": schema}
        if self._effort is not None:
            fields["reasoning_effort"] = self._effort
        return self._request(**fields)


def set_environment(choice: FormatChoice) -> None:
    """Set the environment variables that vLLM reads once, when an engine starts."""
    os.environ.setdefault("VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT", str(RENDER_TIMEOUT_S))
    if choice.start_date is not None:  # else gpt-oss gets the current date
        os.environ["VLLM_SYSTEM_START_DATE"] = choice.start_date


def _copy(values: Sequence[Mapping[str, Any]]) -> Any:
    text = json.dumps(list(values), ensure_ascii=False, default=str)
    return json.loads(replace_surrogates(text))
