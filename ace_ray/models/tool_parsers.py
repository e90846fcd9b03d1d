"""What is known of vLLM's tool parsers without making one: their names, which texts they take too
long for, and what they log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ace_ray.errors import UserError
from ace_ray.mistakes import did_you_mean
from ace_ray.models.engine_args import _parsed, _string_keys

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


def tool_parser_names() -> set[str]:
    """The names of vLLM's own, none where it has another layout. Raises `UserError`: it is not
    installed."""
    return set(_string_keys(_parsed("tool_parsers/__init__.py")))


def check_tool_parser(name: str) -> None:
    """Raise `UserError` for a name that vLLM has no tool parser of, without importing vLLM."""
    known = tool_parser_names()
    if known and name not in known:
        raise _unknown(name, known)


class ParserLog(logging.Handler):
    """Takes what the parsers log while it is entered, instead of a traceback per bad answer.

    ``error``: the class of the last exception that a parser caught and logged itself.
    """

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


def _unknown(name: str, known: Sequence[str] | set[str]) -> UserError:
    return UserError(
        f"vLLM has no tool parser {name!r}",
        where=_WHERE,
        fix=did_you_mean(name, sorted(known)),
    )
