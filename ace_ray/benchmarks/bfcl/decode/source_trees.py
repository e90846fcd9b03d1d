"""Java and JavaScript in model text as syntax trees, through tree-sitter, within bounds."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Literal

from ace_ray.calls import NotCalls
from ace_ray.errors import UserError

MAX_SOURCE = 32_768
"""Longest text that is parsed; the worst such text takes about a quarter of a second."""


def source_tree(text: str, language: Literal["java", "javascript"]) -> Any:
    """The root node of a text's syntax tree.

    Raises `NotCalls` where the text does not parse (a missing semicolon or bracket that the parser
    can supply is no error) or is longer than `MAX_SOURCE`, and `UserError` without tree-sitter.
    """
    if len(text) > MAX_SOURCE:
        raise NotCalls(f"longer than {MAX_SOURCE} characters")
    try:
        source = text.encode()
    except UnicodeEncodeError:
        raise NotCalls("a lone surrogate in the text") from None
    new_parser, grammar = _grammar(language)
    root = new_parser(grammar).parse(source).root_node
    if root.has_error and _has_error_node(root):
        raise NotCalls(f"no {language}")
    return root


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
