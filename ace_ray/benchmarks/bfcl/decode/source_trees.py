"""Java and JavaScript in model text as syntax trees, through tree-sitter, within bounds.

What parses, and as what, depends on the versions of the grammars and of the parser: only those are
taken that read as upstream's do.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
from collections.abc import Mapping
from typing import Any, Literal

from ace_ray.calls import NotCalls
from ace_ray.errors import UserError

GRAMMARS: Mapping[str, str] = {"java": "0.21.0", "javascript": "0.21.4"}
"""The versions of the grammars that bfcl-eval pins. Of 5,000 JavaScript outputs with noise 163 have
another verdict with tree-sitter-javascript 0.25.0."""
PARSERS = ("0.22.", "0.23.", "0.24.")
"""Versions of tree-sitter whose trees are those of the one that bfcl-eval pins, 0.21.3, whose
interface is another: all of 358,891 texts with noise. From 0.25 on errors are mended otherwise."""
MAX_SOURCE, MAX_TOKENS = 8_192, 2_048
"""Longest text that is parsed, in characters and in words and signs; gold answers have fewer than
400 characters. Without errors it takes milliseconds. Behind an error time and memory grow with the
square of the tokens of some texts, to 0.3 s and 150 MiB; of 8,192 tokens, such as ``+1[^`` again
and again, to 3.4 s and 1.8 GiB."""
_TOKEN = re.compile(r"\w++|[^\w\s]")
_SLICE_US, _SLICES = 50_000, 20
"""The parser stops after each slice of time, and goes on where it was; after the last one it is
given up. A machine that stands still spoils one slice, not the parse."""


def source_tree(text: str, language: Literal["java", "javascript"]) -> Any:
    """The root node of a text's syntax tree.

    Raises `NotCalls` where the text does not parse (a missing semicolon or bracket that the parser
    can supply is no error) or is beyond the bounds, and `UserError` without tree-sitter.
    """
    if len(text) > MAX_SOURCE:
        raise NotCalls(f"longer than {MAX_SOURCE} characters")
    if len(_TOKEN.findall(text)) > MAX_TOKENS:
        raise NotCalls(f"more than {MAX_TOKENS} words and signs")
    try:
        source = text.encode()
    except UnicodeEncodeError:
        raise NotCalls("a lone surrogate in the text") from None
    new_parser, grammar = _grammar(language)
    root = _parsed(new_parser(grammar, timeout_micros=_SLICE_US), source, language).root_node
    if root.has_error and _has_error_node(root):
        raise NotCalls(f"no {language}")
    return root


def _parsed(parser: Any, source: bytes, language: str) -> Any:
    for _ in range(_SLICES):
        try:
            tree = parser.parse(source)
        except ValueError:  # its time is over
            continue
        if tree is not None:
            return tree
    raise NotCalls(f"no {language} that can be parsed in time")


def require_grammar(language: str) -> None:
    """Raise `UserError` where upstream's version of a language's grammar is not installed."""
    _grammar(language)


@functools.cache
def _grammar(language: str) -> tuple[Any, Any]:
    package, version = f"tree-sitter-{language}", GRAMMARS[language]
    parser = f"{PARSERS[-1]}0"
    fix = (
        f"pip install --no-deps tree-sitter=={parser} {package}=={version}, "
        f"or leave out simple_{language}"
    )
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        grammar = importlib.import_module(f"tree_sitter_{language}")
        found = {name: importlib.metadata.version(name) for name in ("tree-sitter", package)}
    except ImportError as error:
        named = (error.name or package).replace("_", "-")
        raise UserError(f"{named} is not installed", where="bfcl", fix=fix) from None
    for name, wanted, right in (
        ("tree-sitter", parser, found["tree-sitter"].startswith(PARSERS)),
        (package, version, found[package] == version),
    ):
        if not right:
            what = f"{name} {found[name]} is installed; upstream's verdicts are those of {wanted}"
            raise UserError(what, where="bfcl", fix=fix)
    # The address of the grammar is what these versions give; tree-sitter takes it and warns.
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
