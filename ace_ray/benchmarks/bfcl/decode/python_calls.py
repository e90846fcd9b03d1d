"""Calls written in Python, as upstream's decoder reads them (``model_handler/utils.py``).

It is lenient: names become texts (``true`` is "true"), every sign negates, positional arguments
vanish, a call as a value becomes an object or, without keywords, its source. Binary operations it
runs through ``eval``; here they are folded or refused (see `operations`).
"""

from __future__ import annotations

import ast
from functools import partial

from ace_ray.benchmarks.bfcl.decode.keyword_names import marked_expression, marked_names
from ace_ray.benchmarks.bfcl.decode.operations import operation
from ace_ray.benchmarks.bfcl.decode.reading import Read
from ace_ray.calls import LenientReader, NotCalls, expression, plain_calls


def read_python(text: str) -> list[Read]:
    """The calls of a call, or of a list, tuple or set of calls.

    Raises `NotCalls` where upstream's decoder raises, and `Refused` on an operation that is not
    folded, whichever comes first in its order of evaluation.
    """
    plain = plain_calls(text)
    if plain is not None:
        return [Read(call.name, call.args) for call in plain]
    return _calls(expression(text))


def read_python_with_keywords(text: str) -> list[Read]:
    """The same of a text in which some argument is named by a word of Python's own.

    Raises `NotCalls` for any other text, too."""
    marked = marked_names(text)
    if marked is None:
        raise NotCalls("no argument is named by a keyword")
    return _calls(marked_expression(marked))


def _calls(tree: ast.expr) -> list[Read]:
    reader = LenientReader(operation, bare_as_source=True)
    try:
        if isinstance(tree, ast.Call):
            return [_call(tree, reader)]
        if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
            raise NotCalls(f"{type(tree).__name__} in place of a list")
        return [_call(item, reader) for item in tree.elts]
    except RecursionError:
        raise NotCalls("nested too deep") from None


def _call(node: ast.expr, reader: LenientReader) -> Read:
    if not isinstance(node, ast.Call):
        raise NotCalls(f"{type(node).__name__} in place of a call")
    name, args = reader.call(node, 1)
    positional = {n: partial(reader.value, item, 2) for n, item in enumerate(node.args)}
    seen: set[str | None] = set()
    repeated = None
    for keyword in node.keywords:
        if keyword.arg in seen:
            repeated = keyword.arg
        seen.add(keyword.arg)
    return Read(name, args, positional, repeated=repeated)
