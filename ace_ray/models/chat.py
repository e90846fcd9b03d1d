"""Render messages as prompt text with a model's chat template, and tokenize the text."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ace_ray.errors import PromptRefused, UserError, first_line
from ace_ray.models.completions import arguments_of
from ace_ray.models.engine_args import INSTALL
from ace_ray.models.families import date_variables, read_json
from ace_ray.types import Messages, Tools
from ace_ray.util.sanitizing import replace_surrogates

_PROBE = "ace_ray_probe_tool"
_RESULT = "ace_ray_probe_result"
_VALUE = "ace_ray_probe_value"
_PROBE_FUNCTION = {
    "name": _PROBE,
    "description": "Looks something up.",
    "parameters": {
        "type": "object",
        "properties": {"key": {"type": "string", "description": "What to look up."}},
        "required": ["key"],
    },
}
PROBE_TOOLS = [{"type": "function", "function": _PROBE_FUNCTION}]
_TEMPLATE_FIX = (
    "set model.chat_template to a template that shows tools, calls and results (vLLM's examples "
    "have one for many families), or write mode: prompt"
)
# Some templates require ids of nine characters.
_PROBE_IDS = ("call00000", "call00001")
_PROBE_CALL = {"name": _PROBE, "arguments": {"key": _VALUE}}
PROBE_HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "x"},
    {"role": "user", "content": "x"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": i, "type": "function", "function": _PROBE_CALL} for i in _PROBE_IDS],
    },
    *({"role": "tool", "name": _PROBE, "tool_call_id": i, "content": _RESULT} for i in _PROBE_IDS),
    {"role": "assistant", "content": "x"},
    {"role": "user", "content": "x"},
]


class Chat:
    """Renders messages with the model's chat template, in Jinja's sandbox.

    ``template_kwargs``: extra variables. ``date``: ISO date for templates that print the date."""

    def __init__(
        self, tokenizer: Any, template_kwargs: Mapping[str, Any], date: str | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self._variables = {**date_variables(date), **template_kwargs}

    @classmethod
    def load(
        cls,
        folder: Path,
        template_kwargs: Mapping[str, Any],
        *,
        trust_remote_code: bool = False,
        template: str | None = None,
        date: str | None = None,
    ) -> Chat:
        """Load the tokenizer of a model folder, and its chat template unless ``template`` is given.
        Raises `UserError` if the folder lacks a template or a tokenizer."""
        try:
            tokenizer_class = _tokenizer_class(folder)
        except ImportError as error:
            problem = "transformers is not installed"
            raise UserError(problem, where="this machine", fix=INSTALL) from error
        try:
            # Always pass trust_remote_code: otherwise transformers waits for input at the terminal.
            tokenizer = tokenizer_class.from_pretrained(folder, trust_remote_code=trust_remote_code)
        # The Rust tokenizers raise bare Exception on a damaged file.
        except Exception as error:
            raise UserError(
                f"the tokenizer cannot be loaded: {first_line(error)}",
                where=str(folder),
                fix="name a complete model folder",
            ) from error
        if template is not None:
            tokenizer.chat_template = template
        chat = cls(tokenizer, template_kwargs, date)
        if not chat.template:
            fix = "use an instruction-tuned model, or add chat_template.jinja to its folder"
            raise UserError("the model has no chat template", where=str(folder), fix=fix)
        return chat

    @property
    def template(self) -> str:
        template = self.tokenizer.chat_template
        return (template.get("default") if isinstance(template, dict) else template) or ""

    @property
    def template_sha256(self) -> str:
        return hashlib.sha256(self.template.encode()).hexdigest()

    @property
    def tools_template_sha256(self) -> str:
        """Hash of the template that renders tools. Some models have a second template for tools."""
        template = self.tokenizer.get_chat_template(tools=[_PROBE_FUNCTION])
        return hashlib.sha256(template.encode()).hexdigest()

    def has_variable(self, variable: str) -> bool:
        """Return whether the template uses ``variable``. Templates ignore unknown variables."""
        templates = self.tokenizer.chat_template
        texts = templates.values() if isinstance(templates, dict) else [templates]
        return any(variable in str(text) for text in texts)

    def render(self, messages: Messages, tools: Tools = None) -> str:
        """Render the prompt text, with ``tools`` in OpenAI's format. Raises `PromptRefused` if
        the template does not compile or rejects the messages."""
        divided = split_calls(messages)
        return self._render(divided if divided and self.is_single_call else messages, tools)

    def _render(self, messages: Messages, tools: Tools) -> str:
        offered = [_server_tool(tool) for tool in tools] if tools else None
        try:
            text = self.tokenizer.apply_chat_template(
                _server_messages(messages),
                tools=offered,
                tokenize=False,
                add_generation_prompt=True,
                chat_template=None,  # a variable of a stored run must not replace it
                **self._variables,
            )
        # A template is foreign code: any exception counts as a refusal.
        except Exception as error:
            raise PromptRefused(f"the chat template rejects these messages: {error}") from error
        return str(text)

    @cached_property
    def supports_tools(self) -> bool:
        """Whether the template renders tools. Tested with a probe tool, whose name must be in the
        prompt. Other templates ignore tools, and the model would not see them."""
        try:
            return _PROBE in self.render([{"role": "user", "content": "x"}], PROBE_TOOLS)
        except PromptRefused:
            return False

    @cached_property
    def history_problem(self) -> str:
        """Reason why the template cannot be used for episodes with tools, or "". The template must
        accept a chat with an answer that makes two calls, and render the calls and results."""
        try:
            text = self.render(PROBE_HISTORY, PROBE_TOOLS)
        except PromptRefused as error:
            return f"in a chat with tool calls and their results, {error}"
        if _RESULT not in text:
            return "the model's chat template does not include tool results"
        if _VALUE not in text:
            return "the model's chat template does not include the model's earlier tool calls"
        return ""

    @cached_property
    def is_single_call(self) -> bool:
        """Whether the template rejects an answer with two calls, but accepts two answers with one
        call each, as in Llama 3. `render` then divides such answers."""
        return not self._accepts(PROBE_HISTORY) and self._accepts(split_calls(PROBE_HISTORY) or ())

    def _accepts(self, messages: Messages) -> bool:
        try:
            self._render(messages, PROBE_TOOLS)
        except PromptRefused:
            return False
        return True

    def require_tools(
        self, location: str, *, episodes: bool = False, fix: str = _TEMPLATE_FIX
    ) -> None:
        """Raise `UserError` if the template does not render tools or, for ``episodes``, tool calls
        and their results. ``location`` and ``fix`` are parts of the error."""
        problem = "the model's chat template ignores tools" if not self.supports_tools else ""
        if not problem and episodes:
            problem = self.history_problem
        if problem:
            raise UserError(problem, where=location, fix=fix)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a rendered prompt, which already contains the special tokens."""
        ids: list[int] = self.tokenizer.encode(replace_surrogates(text), add_special_tokens=False)
        return ids


def split_calls(messages: Messages) -> list[Mapping[str, Any]] | None:
    """Divide answers with several calls into answers with one call, each before the call's result.
    Return None if no answer has several calls. Llama 3's templates accept one call per answer."""
    if all(len(message.get("tool_calls") or ()) < 2 for message in messages):
        return None
    divided: list[Mapping[str, Any]] = []
    for message in messages:
        calls = message.get("tool_calls") or [None]
        if message["role"] == "tool":
            divided.insert(_position(message, divided), message)
        elif len(calls) == 1:
            divided.append(message)
        else:
            bare_message = {"role": message["role"], "content": ""}
            divided += [
                {**(bare_message if number else message), "tool_calls": [call]}
                for number, call in enumerate(calls)
            ]
    return divided


def _position(result: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the index after the last message that makes the call of ``result``, and after the
    results that follow this message."""
    for index in range(len(messages), 0, -1):
        calls = messages[index - 1].get("tool_calls") or ()
        if any(call.get("id") == result.get("tool_call_id") for call in calls):
            results = itertools.takewhile(lambda m: m["role"] == "tool", messages[index:])
            return index + len(list(results))
    return len(messages)


def _server_messages(messages: Messages) -> list[dict[str, Any]]:
    """Convert messages as vLLM's server does for templates that expect strings as contents."""
    served = []
    for message in messages:
        fields = {key: message[key] for key in ("role", "name", "tool_call_id") if key in message}
        fields["content"] = "" if message.get("content") is None else message["content"]
        if message.get("tool_calls"):
            fields["tool_calls"] = list(map(_parse_arguments, message["tool_calls"]))
        if message.get("reasoning") is not None:
            fields |= dict.fromkeys(("reasoning", "reasoning_content"), message["reasoning"])
        served.append(fields)
    return served


def _parse_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": arguments_of(function.get("arguments"))}}


def _server_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a tool as vLLM's server does: keys that OpenAI does not define are removed, such as
    BFCL's description of a result."""
    function = tool["function"]
    fields = {key: function.get(key) for key in ("name", "description", "parameters")}
    more = {key: function[key] for key in ("strict", "defer_loading") if key in function}
    return {"type": "function", "function": fields | more}


def _tokenizer_class(folder: Path) -> Any:
    """Return `PreTrainedTokenizerFast` if ``folder`` names this class, else `AutoTokenizer`."""
    import transformers

    settings = read_json(folder / "tokenizer_config.json")
    name = settings.get("tokenizer_class")
    # AutoTokenizer imports torch, which takes 5-15 s of CPU time before a run can start.
    if name in ("PreTrainedTokenizerFast", "TokenizersBackend") and "auto_map" not in settings:
        return transformers.PreTrainedTokenizerFast
    return transformers.AutoTokenizer
