"""vLLM's tool parsers: model text -> tool calls, by the parser's name.

The parsers read hostile text; whatever one raises or logs of it is an answer without calls.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.errors import UserError
from ace_ray.models.engine_args import _nearest, _parsed, _string_keys
from ace_ray.records import ToolAnswer, ToolCall

MAX_CHARS = 65_536
"""Longest text that is given to a parser; some take time quadratic in it."""
MARKED_CHARS = {
    "deepseek_v3": ("<｜tool▁call▁begin｜>", 12_288),
    "deepseek_v31": ("<｜tool▁call▁begin｜>", 12_288),
    "ling3": ("<arg_key>", 4_096),
}
"""Parsers whose expressions take cubic time once their mark is in the text, and the longest text
that has it. Measured: half a second on a busy core at most."""

_WHERE = "model.tool_parser"
_PROBE = {"type": "function", "function": {"name": "probe", "parameters": {"type": "object"}}}


def check_tool_parser(name: str) -> None:
    """Raise `UserError` for a name that vLLM has no tool parser of, without importing vLLM."""
    known = _string_keys(_parsed("tool_parsers/__init__.py"))
    if known and name not in known:
        raise _unknown(name, known)


def tool_parser(name: str, tokenizer: Any) -> ToolParser:
    """The tool parser called ``name``, on a model's tokenizer.

    Raises:
        UserError: vLLM has none of that name, or it does not take this tokenizer.
    """
    from vllm.tool_parsers import ToolParserManager

    known = ToolParserManager.list_registered()
    if name not in known:
        raise _unknown(name, known)
    try:
        with _Log():
            parser_class = ToolParserManager.get_tool_parser(name)
            return ToolParser(parser_class, tokenizer, MARKED_CHARS.get(name))
    except ImportError as error:
        raise UserError(
            f"the tool parser {name!r} needs a package: {error}",
            where=_WHERE,
            fix="install it beside vLLM, or name another parser",
        ) from error
    except NotImplementedError as error:
        raise UserError(
            f"the tool parser {name!r} reads tokens and not text",
            where=_WHERE,
            fix="name another parser, or write mode: prompt",
        ) from error
    # Parsers look for their special tokens when they are made, and raise RuntimeError or others.
    except Exception as error:
        raise UserError(
            f"the tool parser {name!r} does not take this model's tokenizer: {error}",
            where=_WHERE,
            fix="name the parser of the model's family",
        ) from error


class ToolParser:
    """Reads one answer at a time; vLLM's parsers keep state, so each answer gets a new one.

    ``detokenization`` holds the sampling parameters of vLLM without which the marks of a call would
    not be in the text: in some vocabularies they are special tokens. The constructor raises what
    the parser raises on every text, whatever the model says.
    """

    def __init__(
        self, parser_class: Any, tokenizer: Any, marked: tuple[str, int] | None = None
    ) -> None:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        self._class, self._tokenizer, self._request = parser_class, tokenizer, ChatCompletionRequest
        self._mark, self._marked_chars = marked or ("", MAX_CHARS)
        self._log = _Log()
        parser, request = self._made([_PROBE])
        parser.extract_tool_calls("", request)
        request = parser.adjust_request(request)
        self.detokenization: dict[str, bool] = {
            "skip_special_tokens": request.skip_special_tokens,
            "spaces_between_special_tokens": request.spaces_between_special_tokens,
        }

    def __call__(self, text: str, tools: Sequence[Mapping[str, Any]]) -> ToolAnswer:
        """``text`` taken apart; it is all content when no tools are offered. Never raises on any
        text."""
        if not tools:
            return ToolAnswer(text)
        marked = len(text) > self._marked_chars and self._mark in text
        if len(text) > MAX_CHARS or marked:
            return ToolAnswer(text, error="TooLong")
        parser, request = self._made(tools)
        with self._log as logged:
            try:
                read = parser.extract_tool_calls(text, request)
                calls = tuple(
                    ToolCall(call.function.name, call.function.arguments)
                    for call in read.tool_calls
                )
            except Exception as error:  # noqa: BLE001 - hostile text, third-party parsers
                return ToolAnswer(text, error=type(error).__name__)
        if not calls:
            # Markers of special tokens are taken out of a text without calls by some parsers.
            return ToolAnswer(text if read.content is None else read.content, error=logged.error)
        return ToolAnswer(read.content or "", calls, logged.error)

    def _made(self, tools: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
        message = {"role": "user", "content": ""}
        request = self._request(messages=[message], tools=list(tools), tool_choice="auto")
        return self._class(self._tokenizer, request.tools), request


class _Log(logging.Handler):
    """Takes what the parsers log while it is entered, instead of a traceback per bad answer.

    ``error``: the class of the last exception that a parser caught and logged itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.error = ""
        self._loggers = [logging.getLogger(name) for name in ("vllm.tool_parsers", "vllm.parser")]

    def __enter__(self) -> _Log:
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


def _unknown(name: str, known: Sequence[str] | set[str]) -> UserError:
    return UserError(
        f"vLLM has no tool parser {name!r}",
        where=_WHERE,
        fix=_nearest(name, known, f"known: {', '.join(sorted(known))}"),
    )
