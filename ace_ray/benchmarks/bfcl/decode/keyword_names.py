"""Arguments that are named by a word of Python's own: ``flight_book(from="Seattle")``.

Python does not parse that, so upstream's decoder takes it for no call. Under ``strict`` it is one.
"""

from __future__ import annotations

import ast
import keyword
import re

from ace_ray.calls import NotCalls, expression

_MARK = "ꔀ"
"""A letter, which makes a keyword a name. No text that holds it is read this way."""
# String literals and comments are passed over as a whole. A keyword before a single `=` occurs
# nowhere else in an expression.
_TOKENS = re.compile(
    r"'''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?+"
    r'|"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?+'
    r"|'(?:[^'\\\n]++|\\.)*+'?+"
    r'|"(?:[^"\\\n]++|\\.)*+"?+'
    r"|#[^\n]*+"
    rf"|\b({'|'.join(keyword.kwlist)})\b(?=\s*+=(?!=))",
    re.DOTALL,
)


def marked_names(text: str) -> str | None:
    """The text with such names made names that Python takes; None where it has none."""
    if _MARK in text:
        return None
    found = _TOKENS.sub(lambda token: token[0] + _MARK if token[1] else token[0], text)
    return None if found == text else found


def marked_expression(text: str) -> ast.expr:
    """The tree of a text from `marked_names`, with the names as they were.

    Raises `NotCalls` as `expression` does."""
    tree = expression(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None:
            node.arg = node.arg.removesuffix(_MARK)
        elif isinstance(node, ast.arg):
            raise NotCalls("a parameter named by a keyword")
    return tree
