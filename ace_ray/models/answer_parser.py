"""Parse answers into reasoning, content and calls with vLLM's `Parser`, as its server does.

Parsers read untrusted text. If a parser raises or logs an error, the answer has no calls."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError, first_line
from ace_ray.models.reasoning import split_think
from ace_ray.types import ToolAnswer, ToolCall

# Maximum characters for a reasoning parser (400,000 took 2.5 s on a busy core). A longer text is
# split at its ``<think>`` tags instead.
REASONING_CHARS = 524_288

# Maximum characters for a tool parser. Some parsers take quadratic time.
MAX_CHARS = 65_536
# Parser -> mark and maximum characters. Regular expressions of these parsers take cubic time if the
# text contains the mark. With these limits they took at most half a second on a busy core.
MARKED_CHARS = {
    "deepseek_v3": ("<｜tool▁call▁begin｜>", 12_288),
    "deepseek_v31": ("<｜tool▁call▁begin｜>", 12_288),
    "ling3": ("<arg_key>", 4_096),
}

# Call ids that the model itself writes (Kimi) and its template renders. Other ids are random.
_NATIVE_ID = re.compile(r"functions\.[\w.-]{1,200}:\d{1,6}")


class TooLong(Exception):
    """The text is longer than its parser allows."""


class ParserLog(logging.Handler):
    """Context that captures exceptions which parsers log, so that the tracebacks do not fill
    ace_ray's log.

    ``error``: class name of the last exception that a parser caught and logged; "" for none."""

    def __init__(self) -> None:
        super().__init__()
        self.error = ""
        self._loggers = [logging.getLogger(name) for name in ("vllm.tool_parsers", "vllm.parser")]

    def __enter__(self) -> ParserLog:
        self.error = ""
        for logger in self._loggers:
            logger.addHandler(self)
            logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self._loggers:
            logger.removeHandler(self)
            logger.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self.error = record.exc_info[0].__name__


@dataclass(frozen=True, slots=True)
class Reading:
    """A parsed answer. ``text`` is the answer without its reasoning; it contains the calls as the
    model wrote them. ``truncated``: the reasoning did not end."""

    text: str
    reasoning: str = ""
    truncated: bool = False
    tools: ToolAnswer | None = None


def parser_class(
    tokenizer: Any, *, reasoning: str | None, tool: str | None, is_harmony: bool = False
) -> Any:
    """Return the class that vLLM's server builds from the named parsers; None if no parser is
    named. Raises `UserError` if vLLM lacks a named parser, or the tokenizer does not suit it."""
    from vllm.parser import ParserManager

    location = f"model.{'tool' if tool else 'reasoning'}_parser"
    if tool == "openai" and not is_harmony:
        problem = f"the tool parser {tool!r} reads gpt-oss tokens, not text"
        raise UserError(problem, where=location, fix="name another parser, or write mode: prompt")
    try:
        with ParserLog():
            return ParserManager.get_parser(
                tool_parser_name=tool,
                reasoning_parser_name=reasoning,
                enable_auto_tools=True,
                is_harmony=is_harmony,
                tokenizer=tokenizer,
            )
    # The name may be unknown, a package missing, or a special token that the parser needs.
    except Exception as error:
        names = " and ".join(filter(None, (reasoning, tool)))
        raise UserError(
            f"vLLM cannot use the parser {names}: {first_line(error.__cause__ or error)}",
            where=location,
            fix="name the parser of the model's family (ace-ray list parsers)",
        ) from error


def parser_facts(tool: str | None, reasoning: str | None) -> dict[str, Any]:
    """Return the facts, besides the model, that determine how answers are decoded and parsed. With
    strict tool calling, which some parsers enable, vLLM decodes calls under a grammar."""
    import vllm
    from vllm import envs
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    tool_class = tool and ToolParserManager.get_tool_parser(tool)
    reasoning_class = reasoning and ReasoningParserManager.get_reasoning_parser(reasoning)
    level = getattr(tool_class, "default_tool_strict_level", None)
    strict_level = "auto" if level is None else str(getattr(level, "name", level)).lower()
    return {
        "vllm": vllm.__version__,
        "tool_parser": _source_of(tool, tool_class),
        "reasoning_parser": _source_of(reasoning, reasoning_class),
        "VLLM_ENFORCE_STRICT_TOOL_CALLING": bool(envs.VLLM_ENFORCE_STRICT_TOOL_CALLING),
        "tool_strict_level": strict_level,
    }


def _source_of(name: str | None, cls: Any) -> dict[str, str] | None:
    """Return name and module of a parser, with the hash of the module's source."""
    if not name:
        return None
    file = Path(inspect.getsourcefile(cls) or "")
    # A plugin's file no longer exists, but the run's identity contains its hash.
    content = file.read_bytes() if file.is_file() else b""
    return {"name": name, "module": cls.__module__, "sha256": hashlib.sha256(content).hexdigest()}


class AnswerReader:
    """Parses answers. vLLM's parsers have state, so each answer gets a new parser.

    Args:
        parser_type: the class from `parser_class`, or None.
        tool: name of the tool parser, which decides the maximum length.
        split: whether ``<think>`` blocks are separated first, without a reasoning parser."""

    def __init__(
        self, parser_type: Any, tokenizer: Any, model_config: Any, *, tool: str | None, split: bool
    ) -> None:
        self._class, self._tokenizer, self._config = parser_type, tokenizer, model_config
        self._mark, self._marked_chars = MARKED_CHARS.get(tool or "", ("", MAX_CHARS))
        self._split = split
        self._log = ParserLog()

    def new_parser(self, request: Any, template_kwargs: dict[str, Any]) -> Any:
        """Return a new parser for one answer; None if no parser is configured."""
        if self._class is None:
            return None
        return self._class(
            self._tokenizer,
            request.tools,
            model_config=self._config,
            chat_template_kwargs=template_kwargs,
        )

    def read(
        self,
        text: str,
        token_ids: Sequence[int],
        request: Any,
        *,
        prompt_ids: Sequence[int],
        template_kwargs: dict[str, Any],
        opened: bool = False,
    ) -> Reading:
        """Parse ``text``. Never raises on any text.

        Args:
            token_ids: tokens of the text; some parsers read only these.
            request: the request for which the prompt was rendered.
            opened: whether the prompt ended in an open ``<think>`` block."""
        reasoning, answer, truncated = "", text, False
        if self._split:
            reasoning, answer, truncated = split_think(text, opened=opened)
        if self._class is None or truncated:
            plain = ToolAnswer(answer) if request.tools else None
            return Reading(answer, reasoning, truncated, plain)
        with self._log as logged:
            try:
                parser = self.new_parser(request, template_kwargs)
                parser.set_prompt_token_ids(prompt_ids)
                inputs = self._limit_inputs(parser, answer)
                theirs, content, calls = parser.parse(
                    answer, request, enable_auto_tools=True, model_output_token_ids=token_ids
                )
            except Exception as error:  # noqa: BLE001 - hostile text, third-party parsers
                return self._fallback(answer, reasoning, request, template_kwargs, error)
        reasoning = theirs or reasoning
        if not inputs:
            inputs = [content or ("" if theirs and not calls else answer)]
        end = getattr(parser.reasoning_parser, "reasoning_end_str", None)
        closed = isinstance(end, str) and bool(end) and end in answer
        if content is None and theirs and not calls and not closed:
            return Reading("", reasoning, True, ToolAnswer("") if request.tools else None)
        if not request.tools:
            return Reading(content or "", reasoning)
        tools = ToolAnswer(content or "", tuple(map(_call, calls or ())), logged.error)
        return Reading(inputs[-1], reasoning, False, tools)

    def _limit_inputs(self, parser: Any, text: str) -> list[str]:
        """Limit the lengths of ``text`` and of the input of the tool parser in ``parser``. Raises
        `TooLong` if ``text`` is too long; the tool parser later raises `TooLong` for its own input.
        Return a list to which this input will be added."""
        from vllm.parser.abstract_parser import DelegatingParser

        inputs: list[str] = []
        if len(text) > REASONING_CHARS:
            raise TooLong
        tool = parser.tool_parser
        if tool is None:
            return inputs
        if type(parser).parse is not DelegatingParser.parse:
            self._check(text)
            return inputs
        extract = tool.extract_tool_calls

        def extract_bounded(model_output: str, request: Any) -> Any:
            inputs.append(model_output)
            self._check(model_output)
            return extract(model_output, request=request)

        tool.extract_tool_calls = extract_bounded
        return inputs

    def _check(self, text: str) -> None:
        marked = len(text) > self._marked_chars and self._mark in text
        if len(text) > MAX_CHARS or marked:
            raise TooLong

    def _fallback(
        self,
        text: str,
        reasoning: str,
        request: Any,
        template_kwargs: dict[str, Any],
        error: Exception,
    ) -> Reading:
        """Return the reading after a parser error, with the reasoning separated if possible."""
        answer: str | None = text
        if len(text) > REASONING_CHARS:
            split = split_think(text)
            reasoning = split.reasoning or reasoning
            answer = None if split.truncated else split.answer
        else:
            try:
                parser = self.new_parser(request, template_kwargs)
                theirs, answer = parser.extract_reasoning(text, request)
                reasoning = theirs or reasoning
            except Exception:  # noqa: BLE001 - hostile text, third-party parsers
                answer = text
        tools = ToolAnswer(answer or "", error=type(error).__name__) if request.tools else None
        return Reading(answer or "", reasoning, answer is None, tools)


def _call(call: Any) -> ToolCall:
    native = isinstance(call.id, str) and _NATIVE_ID.fullmatch(call.id)
    return ToolCall(call.name, call.arguments, call.id if native else "")
