"""Java and JavaScript in model text as syntax trees, through tree-sitter, within bounds."""

from __future__ import annotations

import functools
import importlib
import itertools
from typing import Any, Literal

from ace_ray.calls import NotCalls
from ace_ray.errors import UserError

MAX_SOURCE = 16_384
"""Longest text that is parsed."""
MAX_STEPS = 5_000
"""Of the parser, each some hundred of its operations: a text without errors takes one for 10 to 25
characters. Behind an error the parser tries so many ways to go on that 20,000 characters took 23 s;
within both bounds the worst text known takes about a second."""
_SHORT = 2_000
"""Texts up to this length are parsed without counting: the worst takes tenths of a second."""


def source_tree(text: str, language: Literal["java", "javascript"]) -> Any:
    """The root node of a text's syntax tree.

    Raises `NotCalls` where the text does not parse (a missing semicolon or bracket that the parser
    can supply is no error) or is beyond the bounds, and `UserError` without tree-sitter.
    """
    if len(text) > MAX_SOURCE:
        raise NotCalls(f"longer than {MAX_SOURCE} characters")
    try:
        source = text.encode()
    except UnicodeEncodeError:
        raise NotCalls("a lone surrogate in the text") from None
    new_parser, grammar = _grammar(language)
    if len(source) > _SHORT and not _is_bounded(new_parser(grammar), source):
        raise NotCalls(f"more than {MAX_STEPS} steps of a parser of {language}")
    root = new_parser(grammar).parse(source).root_node
    if root.has_error and _has_error_node(root):
        raise NotCalls(f"no {language}")
    return root


def _is_bounded(parser: Any, source: bytes) -> bool:
    """Whether parsing ends within `MAX_STEPS`. Only a source that is read through a function can be
    counted, and the nodes of such a tree cannot give their text: hence a parse of its own."""
    steps = itertools.count(1)
    try:
        tree = parser.parse(
            lambda offset, _: source[offset:],
            progress_callback=lambda offset, has_error: next(steps) > MAX_STEPS,
        )
    except ValueError:  # stopped
        return False
    return tree is not None


@functools.cache
def _grammar(language: str) -> tuple[Any, Any]:
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        grammar = importlib.import_module(f"tree_sitter_{language}")
    except ImportError as error:
        raise UserError(
            f"{error.name} is not installed",
            where="bfcl",
            fix=f"pip install tree-sitter tree-sitter-{language}, or leave out simple_{language}",
        ) from None
    return tree_sitter.Parser, tree_sitter.Language(grammar.language())


def _has_error_node(root: Any) -> bool:
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "ERROR":
            return True
        # What holds no error need not be looked into.
        pending += [child for child in node.children if child.has_error]
    return False
