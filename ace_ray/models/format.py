"""How a model's chats are written and its answers read: by the code of vLLM's own server.

The server's `OnlineRenderer` writes: it chooses the template or the encoder of the family, prepares
messages and tools, and adjusts the request for the parser. Only the Jinja program itself, which is
somebody else's, runs elsewhere: in the bounded child of `ace_ray.models.renderer`. No template
reaches vLLM's own look at it before that child has compiled it within its limits.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ace_ray.errors import PromptRefused, PromptTooLong, UserError
from ace_ray.models.answers import AnswerReader, Reading, parser_class
from ace_ray.models.families import SWITCHES, FormatChoice
from ace_ray.models.reasoning import closes_thinking, may_think
from ace_ray.models.renderer import Renderer, RenderFailed
from ace_ray.records import Messages, ToolAnswer, Tools

_NOT_VARIABLES = (
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "tokenizer_kwargs",
)
"""What transformers takes beside a template's variables."""


@dataclass(frozen=True)
class Prompt:
    """A chat as the model gets it, and what its answer is read with.

    Attributes:
        ids: the tokens.
        text: "" where the renderer writes tokens alone.
        engine_input: what `AsyncLLM.generate` takes.
        request: the server's request, as adjusted for the parser.
        template_kwargs: the template's variables that were in effect, for the parser.
        tools: as they were offered.
    """

    ids: Sequence[int]
    text: str
    engine_input: Any
    request: Any
    template_kwargs: dict[str, Any] = field(repr=False)
    tools: Tools = None

    @property
    def adjusted(self) -> dict[str, Any]:
        """The sampling parameters that the parser asks for: whether special tokens stay in the
        text, and a grammar that binds decoding."""
        asked = self.request
        parameters = {
            "skip_special_tokens": asked.skip_special_tokens,
            "spaces_between_special_tokens": asked.spaces_between_special_tokens,
            "structured_outputs": asked.extract_structured_outputs(),
        }
        return {key: value for key, value in parameters.items() if value is not None}


class Format:
    """The format of one model.

    Args:
        model_config: vLLM's, of a live engine or of `create_engine_config`.
        renderer: vLLM's (`renderer_from_config`); its tokenizer is changed to render in the child.
        choice: the template, its variables and the parsers.
        child: the process that renders, if it has begun already.

    Raises `UserError`: a parser cannot be had, or the template does not compile.
    """

    def __init__(
        self,
        model_config: Any,
        renderer: Any,
        choice: FormatChoice,
        child: Renderer | None = None,
    ) -> None:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.renderers.online_renderer import OnlineRenderer

        set_environment(choice)
        self.choice = choice
        self.tokenizer = renderer.get_tokenizer()
        self._request = ChatCompletionRequest
        self.is_harmony = model_config.hf_config.model_type == "gpt_oss"
        self.renderer_name = "harmony" if self.is_harmony else type(renderer).__name__
        self._child = child or Renderer(choice.start_date or "")
        self._config = model_config
        # Elsewhere an encoder of vLLM's writes, whatever template there is.
        self._of_jinja = self.renderer_name == "HfRenderer" and renders_in_child(
            self.tokenizer, self._child
        )
        if not self._of_jinja:
            self._child.close()
        self._tried: set[str] = set()
        choice.load_plugins()
        tool, reasoning = choice.tool_parser, choice.named_reasoning

        def online(tool: str | None) -> tuple[Any, AnswerReader]:
            made = parser_class(
                self.tokenizer, reasoning=reasoning, tool=tool, is_harmony=self.is_harmony
            )
            theirs = OnlineRenderer(
                model_config,
                renderer,
                request_logger=None,
                chat_template=choice.chat_template,
                chat_template_content_format=choice.content_format,
                enable_auto_tools=True,
                tool_parser=tool,
                reasoning_parser=reasoning,
                default_chat_template_kwargs=self._variables,
            )
            split = choice.reasoning_parser == "auto"
            reader = AnswerReader(made, self.tokenizer, model_config, tool=tool, split=split)
            return theirs, reader

        self._effort = None
        self._variables = dict(choice.template_kwargs)
        if self.is_harmony:  # reads it from the request
            self._effort = self._variables.pop("reasoning_effort", None)
        self._with_tools = online(tool)
        # Without tools a parser of calls has nothing to take out of an answer. Harmony's parser is
        # one for both, and its class keeps what it was made for last.
        self._plain = online(None) if tool and not self.is_harmony else self._with_tools

    async def render(self, messages: Messages, tools: Tools = None, *, schema: str = "") -> Prompt:
        """The prompt, with ``tools`` in OpenAI's form if any, for an answer that follows the JSON
        ``schema``: some parsers write the grammar of all answers, and know it by the request.

        Raises:
            PromptRefused: the template or the encoder rejects the messages.
            PromptTooLong: they have more tokens than the context holds.
        """
        offered = list(tools) if tools else None
        online, _ = self._with_tools if offered else self._plain
        try:
            if self._of_jinja:
                self._try(offered)
            request = self._asked(messages, offered, schema)
            rendered = await online.render_chat(request)
        # A template is a program of somebody else's: whatever it raises, it refuses.
        except Exception as error:
            if getattr(error, "parameter", None) in ("input_tokens", "input_text"):
                raise PromptTooLong(str(error)) from error
            raise PromptRefused(f"the chat template refuses these messages: {error}") from error
        if not isinstance(rendered, tuple):
            why = getattr(getattr(rendered, "error", rendered), "message", rendered)
            raise PromptRefused(f"the chat template refuses these messages: {why}")
        _, (engine_input,) = rendered
        text = engine_input.get("prompt") or ""
        variables = online.effective_chat_template_kwargs(request)
        if closes_thinking(text):
            # Parsers take a switch that nobody set for on; some templates take it for off.
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
        """What the server passes to `AsyncLLM.generate` beside prompt and parameters."""
        _, reader = self._with_tools if prompt.request.tools else self._plain
        parser = reader.parser(prompt.request, prompt.template_kwargs)
        ended = prompt.request.resolve_reasoning_ended(parser, list(prompt.ids))
        variables = None
        if parser is not None and parser.reasoning_parser is not None:
            variables = {"chat_template_kwargs": prompt.template_kwargs}
        return {"reasoning_ended": ended, "reasoning_parser_kwargs": variables}

    def read(self, prompt: Prompt, text: str, token_ids: Sequence[int]) -> Reading:
        """The answer to ``prompt``, taken apart. Never raises on any text."""
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
        # Tools could have been offered, and none were.
        return Reading(reading.text, reading.reasoning, reading.truncated, ToolAnswer(reading.text))

    def may_think(self, prompt: Prompt) -> bool:
        """Whether the answer may begin with reasoning."""
        if self.choice.named_reasoning:
            return True
        template = self._template(prompt.request.tools)
        return template is None or may_think(template, prompt.text)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text that is no chat."""
        ids: list[int] = self.tokenizer.encode(_valid(text), add_special_tokens=False)
        return ids

    def _asked(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None, schema: str
    ) -> Any:
        # A copy: the server changes the messages that it is given.
        asked: dict[str, Any] = {"messages": _copied(messages)}
        if tools:
            asked |= {"tools": _copied(tools), "tool_choice": "auto"}
        if schema:
            asked["structured_outputs"] = {"json": schema}
        if self._effort is not None:
            asked["reasoning_effort"] = self._effort
        return self._request(**asked)

    def _try(self, tools: Sequence[Mapping[str, Any]] | None) -> None:
        """Have the child compile the template before vLLM looks at it in this process."""
        template = self._template(tools)
        if template is None or template in self._tried:
            return
        self._child.check(template)
        self._tried.add(template)

    def _template(self, tools: Sequence[Any] | None) -> str | None:
        """The one that vLLM takes; None where an encoder of its own writes."""
        if not self._of_jinja:
            return None
        from vllm.renderers.hf import resolve_chat_template

        template: str | None = resolve_chat_template(
            self.tokenizer,
            self.choice.chat_template,
            list(map(dict, tools)) if tools else None,
            model_config=self._config,
        )
        return template


def renders_in_child(tokenizer: Any, child: Renderer) -> bool:
    """Let ``tokenizer`` render templates in ``child``; False for one with code of its own for it,
    which is left as it is."""
    from transformers import PreTrainedTokenizerBase

    base = PreTrainedTokenizerBase.apply_chat_template
    owners = [
        owner
        for owner in type(tokenizer).__mro__
        if "apply_chat_template" in vars(owner) and not owner.__name__.startswith("TokenizerPool")
    ]
    if not owners or vars(owners[0])["apply_chat_template"] is not base:
        return False
    signature = inspect.signature(base)

    def apply_chat_template(*arguments: Any, **named: Any) -> str:
        given = signature.bind(tokenizer, *arguments, **named).arguments
        given.pop("self")
        variables = {**tokenizer.special_tokens_map, **given.pop("kwargs", {}), **given}
        if variables.get("tokenize", True):
            raise ValueError("a text is what the child renders")
        template = variables.pop("chat_template", None) or tokenizer.get_chat_template(
            tools=variables.get("tools")
        )
        variables["messages"] = variables.pop("conversation")
        for name in _NOT_VARIABLES:
            variables.pop(name, None)
        return child.render(template, variables)

    tokenizer.apply_chat_template = apply_chat_template
    return True


def look_for_processor(tokenizer: str, engine_args: Mapping[str, Any]) -> None:
    """Have vLLM look for a processor's chat template now, which it does when it first renders
    without tools: it loads the tokenizer once more for that, 0.7 s for one of 49,152 tokens.

    ``tokenizer`` is the folder. What vLLM finds, or that it finds nothing, is kept by it
    (``vllm/renderers/hf.py``).
    """
    from vllm.renderers.hf import _try_get_processor_chat_template

    _try_get_processor_chat_template(
        SimpleNamespace(name_or_path=tokenizer),
        revision=engine_args.get("tokenizer_revision"),
        code_revision=engine_args.get("code_revision"),
        trust_remote_code=bool(engine_args.get("trust_remote_code", False)),
    )


def check_template(template: str, where: str) -> None:
    """Raise `UserError` when a template does not compile within the child's limits."""
    child = Renderer()
    try:
        child.check(template)
    except RenderFailed as error:
        raise UserError(
            f"the chat template does not compile: {error}",
            where=where,
            fix="correct the template",
        ) from error
    finally:
        child.close()


def set_environment(choice: FormatChoice) -> None:
    """Say to vLLM what it reads from the environment, once, when an engine starts."""
    # The child has limits of its own, and vLLM's count the time in the queue.
    os.environ.setdefault("VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT", "0")
    if choice.start_date is not None:  # else gpt-oss is told the day on which a process asks
        os.environ["VLLM_SYSTEM_START_DATE"] = choice.start_date


def _copied(values: Sequence[Mapping[str, Any]]) -> Any:
    # ASCII escapes show lone surrogates, which are no valid text to a tokenizer.
    text = json.dumps(list(values), default=str)
    copied = json.loads(text)
    return _mended(copied) if "\\ud" in text else copied


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _valid(value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
