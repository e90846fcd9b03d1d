"""Java and JavaScript in model text as syntax trees, through tree-sitter, within bounds.

What parses, and as what, depends on the grammar's version: only upstream's are taken.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import Any, Literal

from ace_ray.calls import NotCalls
from ace_ray.errors import UserError

GRAMMARS: Mapping[str, str] = {"java": "0.21.0", "javascript": "0.21.4"}
"""The versions of the grammars that bfcl-eval pins. Of 5,000 JavaScript outputs with noise 163 have
another verdict with tree-sitter-javascript 0.25.0."""
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


def require_grammar(language: str) -> None:
    """Raise `UserError` where upstream's version of a language's grammar is not installed."""
    _grammar(language)


@functools.cache
def _grammar(language: str) -> tuple[Any, Any]:
    package, version = f"tree-sitter-{language}", GRAMMARS[language]
    fix = f"pip install --no-deps {package}=={version}, or leave out simple_{language}"
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        grammar = importlib.import_module(f"tree_sitter_{language}")
        installed = importlib.metadata.version(package)
    except ImportError as error:
        named = (error.name or package).replace("_", "-")
        if named == "tree-sitter":
            fix = fix.replace("--no-deps", "tree-sitter")
        raise UserError(f"{named} is not installed", where="bfcl", fix=fix) from None
    if installed != version:
        what = f"{package} {installed} is installed; upstream's verdicts are those of {version}"
        raise UserError(what, where="bfcl", fix=fix)
    # The address of the grammar, as these versions give it: tree-sitter 0.26 takes it and warns.
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
