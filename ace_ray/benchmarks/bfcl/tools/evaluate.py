"""Execute the text of one call without ``eval``.

Upstream passes the text to ``eval``. Here it must be a call of a tool, and its arguments must be
literals or calls of the same tools. Any other Python is refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from ace_ray.parsing.literals import dotted_name
from ace_ray.parsing.syntax import NotCalls, expression

# Names that upstream refuses to call (``multi_turn_utils.py``).
BLOCKED = frozenset(["kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"])
_BEFORE_BRACKET = re.compile(r"\b([a-zA-Z_]\w*)\s+(?=\()")
_SYNTAX_ERROR = re.compile(r"(?:Syntax|Indentation|Tab)Error: ")

Tools = Mapping[str, Callable[..., Any]]
Convert = Callable[[Any], Any]


class CallRefused(Exception):
    """The text is not a call that can be executed. The model sees the message."""


def remove_call_spaces(text: str) -> str:
    """Remove spaces between a word and an opening bracket, also inside strings, as upstream does.

    Upstream inserts an instance's name before each tool name. Its regular expression also removes
    these spaces: ``echo(content='a (b)')`` writes ``a(b)``. Such strings reach files and messages,
    so they must be equal to upstream's. Upstream also inserts instance names into strings; this
    function does not, since no gold value contains instance names."""
    return _BEFORE_BRACKET.sub(r"\1", text)


def evaluate(text: str, tools: Tools, convert: Convert) -> Any:
    """Execute the call in ``text``, and return its result.

    A nested call's result is passed through ``convert`` before it becomes an argument. Raises
    `CallRefused` unless the text is a call with literal arguments; `NameError`, with Python's
    message, for an unknown tool; and any `Exception` that the tool raises."""
    text = remove_call_spaces(text)
    name = text.split("(", 1)[0]
    if "." in name:
        name = name.split(".")[1]
    if name in BLOCKED:
        raise CallRefused(f"Function call {name} is not allowed.")
    try:
        tree = expression(text.lstrip(" \t"))
    except NotCalls as error:
        message = _SYNTAX_ERROR.sub("", str(error)).replace("<unknown>", "<string>")
        raise CallRefused(message) from None
    if not isinstance(tree, ast.Call):
        raise CallRefused("not a call of a function")
    return _call(tree, tools, convert)


def _call(node: ast.Call, tools: Tools, convert: Convert) -> Any:
    name = dotted_name(node.func)
    if name is None:
        raise CallRefused("not a call of a function by its name")
    if name not in tools:
        raise NameError(f"name '{name.partition('.')[0]}' is not defined")
    args: list[Any] = []
    for item in node.args:
        if isinstance(item, ast.Starred):
            args.extend(_value(item.value, tools, convert))
        else:
            args.append(_value(item, tools, convert))
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise CallRefused("** among the arguments")
        if keyword.arg in kwargs:
            raise CallRefused(f"keyword argument repeated: {keyword.arg} (<string>, line 1)")
        kwargs[keyword.arg] = _value(keyword.value, tools, convert)
    return tools[name](*args, **kwargs)


def _value(node: ast.expr, tools: Tools, convert: Convert) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Call):
        return convert(_call(node, tools, convert))
    if isinstance(node, ast.List):
        return [_value(item, tools, convert) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple([_value(item, tools, convert) for item in node.elts])
    if isinstance(node, ast.Dict):
        return _dict(node, tools, convert)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(number, (int, float, complex)):
            return -number if isinstance(node.op, ast.USub) else +number
    if isinstance(node, ast.Name):
        raise NameError(f"name '{node.id}' is not defined")
    raise CallRefused(f"{type(node).__name__} among the arguments")


def _dict(node: ast.Dict, tools: Tools, convert: Convert) -> dict[Any, Any]:
    pairs: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise CallRefused("** in an argument")
        # An unhashable key raises TypeError, as in Python.
        pairs[_value(key, tools, convert)] = _value(value, tools, convert)
    return pairs


def strings_in(text: str) -> list[str]:
    """Return the string literals in the call ``text``; an empty list if the text does not parse."""
    try:
        tree = expression(remove_call_spaces(text).lstrip(" \t"))
    except NotCalls:
        return []
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [value for value in constants if isinstance(value, str)]
