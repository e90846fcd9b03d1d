"""Read calls from syntax trees, either strictly or as a lenient decoder does; write calls as text.

Several evaluators share the lenient decoder (``resolve_ast_by_type``). It reads a name as a string
(``true`` as "true") and ``+5`` or ``~5`` as -5. It converts a call in an argument to a dict. It
passes binary operations to ``eval``; here `fold` computes these operations."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

from ace_ray.parsing.constant_folding import Budget, fold
from ace_ray.parsing.syntax import NotCalls, expression


class Call(NamedTuple):
    """One tool call: a (dotted) name and its keyword arguments as plain values."""

    name: str
    args: dict[Any, Any]


def dotted_name(node: ast.expr) -> str | None:
    """Return ``a.b.c`` for a chain of attributes on a name, None for any other expression."""
    parts, base = _chain(node)
    return ".".join([base.id, *parts]) if isinstance(base, ast.Name) else None


def literal(node: ast.expr) -> Any:
    """Return the value of a literal: str, int, float, bool, None, signed number, list, tuple, dict.

    Raises `NotCalls` for everything else (names, calls, operations, bytes, complex, sets, ...)."""
    if isinstance(node, ast.Constant):
        if node.value is None or isinstance(node.value, (str, int, float)):
            return node.value
    elif isinstance(node, ast.List):
        return [literal(item) for item in node.elts]
    elif isinstance(node, ast.Tuple):
        return tuple([literal(item) for item in node.elts])
    elif isinstance(node, ast.Dict):
        return _pairs(node, literal)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return -number if isinstance(node.op, ast.USub) else number
    raise NotCalls(f"{type(node).__name__} is not a literal value")


def literal_calls(tree: ast.expr) -> list[Call]:
    """Read the calls of a tree that is a list of calls with keyword arguments and literal values.

    Raises `NotCalls` for anything else, such as repeated keywords, which Python refuses too."""
    if not isinstance(tree, ast.List):
        raise NotCalls("not a list")
    return [_literal_call(item) for item in tree.elts]


_JSON_WORDS = {"true": True, "false": False, "null": None}


class _JsonWords(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_WORDS[node.id]) if node.id in _JSON_WORDS else node


def replace_json_words(tree: ast.expr) -> ast.expr:
    """Replace ``true``, ``false`` and ``null`` in a tree by values, as vLLM's parsers do."""
    return _JsonWords().visit(tree)  # type: ignore[no-any-return]


def parse_calls(text: str) -> list[Call]:
    """Read the calls of a text that is one list of calls with keyword arguments and literal values.
    Raises `NotCalls` for any other text."""
    return literal_calls(expression(text))


def _literal_call(node: ast.expr) -> Call:
    name = dotted_name(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or name is None:
        raise NotCalls("an element that is not a call of a named function")
    if node.args:
        raise NotCalls(f"{name[:80]} has positional arguments")
    args: dict[Any, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in args:
            raise NotCalls(f"{name[:80]} has ** or a repeated keyword")
        args[keyword.arg] = literal(keyword.value)
    return Call(name, args)


def render(calls: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """Write calls as the text ``[F(k='v'), ...]`` that `parse_calls` reads back."""
    rendered = [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"
        for name, args in calls
    ]
    return f"[{', '.join(rendered)}]"


class LenientReader:
    """Reads the calls in one text as the lenient decoder does.

    Args:
        is_defined: returns whether a name is defined where upstream evaluates the text.
        bare_as_source: whether an argument that is a call without keywords becomes its source text.
    """

    __slots__ = ("_bare_as_source", "_budget")

    def __init__(self, is_defined: Callable[[str], bool], *, bare_as_source: bool) -> None:
        self._bare_as_source = bare_as_source
        self._budget = Budget(is_defined)

    def call(self, node: ast.Call) -> Call:
        """Return the name and the keyword arguments of a call. Positional arguments are dropped.

        Raises `NotCalls` where upstream's decoder raises an error, and `Refusal` if arithmetic is
        too large. Arguments are read in upstream's order, so the first error is upstream's, too."""
        args: dict[str | None, Any] = {}
        for keyword in node.keywords:  # `**x` has the key None; the last of equal keys counts
            args[keyword.arg] = self.value(keyword.value)
        # Unlike `dotted_name`, this drops a base that is not a name: ``f().a.b`` becomes "a.b".
        parts, base = _chain(node.func)
        return Call(".".join([base.id, *parts] if isinstance(base, ast.Name) else parts), args)

    def operation(self, node: ast.BinOp) -> Any:
        """Compute a binary operation. Raises `NotCalls` or `Refusal` if it is not possible."""
        return fold(node, self._budget)

    def value(self, node: ast.expr) -> Any:
        """Return the value of one argument. Raises `NotCalls` or `Refusal` as `call` does."""
        if isinstance(node, ast.Constant):
            return "..." if node.value is ... else node.value
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.UnaryOp):
            # Every operator negates: `+5`, `~5` and `-5` are all -5, and `not True` is -1.
            number = node.operand.value if isinstance(node.operand, ast.Constant) else None
            if isinstance(number, (int, float, complex)):
                return -number
            raise NotCalls("a sign before something other than a number")
        if isinstance(node, ast.List):
            return [self.value(item) for item in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple([self.value(item) for item in node.elts])
        if isinstance(node, ast.Dict):
            return _pairs(node, self.value)
        if isinstance(node, ast.BinOp):
            return self.operation(node)
        if isinstance(node, ast.Call):
            if self._bare_as_source and not node.keywords:
                return _source(node)
            name, args = self.call(node)
            return {name: args}
        if isinstance(node, ast.Subscript):
            return f"{_source(node.value)}[{_source(node.slice)}]"
        raise NotCalls(f"{type(node).__name__} as a value")


def _pairs(node: ast.Dict, value: Callable[[ast.expr], Any]) -> dict[Any, Any]:
    pairs: dict[Any, Any] = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        if key_node is None:
            raise NotCalls("** in a dict")
        key, item = value(key_node), value(value_node)
        try:
            pairs[key] = item
        except TypeError:
            raise NotCalls("a key that cannot be hashed") from None
    return pairs


def _chain(node: ast.expr) -> tuple[list[str], ast.expr]:
    """Split ``base.a.b`` into its attributes, ["a", "b"], and the expression ``base``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return parts[::-1], node


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError) as error:
        raise NotCalls(f"{type(error).__name__} in converting a value to text") from None


# A function that parses one JSON value within bounds. It raises `ValueError` for any other text.
Json = Callable[[str], Any]
_JSON_TYPES: dict[type, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string",
    list: "array", dict: "object",
}  # fmt: skip
_ALIASES = {
    "str": "string", "text": "string", "varchar": "string", "char": "string", "enum": "string",
    "int": "integer", "long": "integer", "float": "number", "double": "number", "bool": "boolean",
    "dict": "object", "list": "array",
}  # fmt: skip


def types_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that ``schema`` allows, such as {"string", "null"}.

    ``root`` is the schema in which ``$ref`` is resolved. Without a type, a string is allowed."""
    types: set[str] = set()
    followed: set[str] = set()
    pending = [schema]
    while pending:
        part = pending.pop()
        if not isinstance(part, Mapping):
            types.add("string")
            continue
        kinds = part.get("type")
        names = {t for t in (kinds if isinstance(kinds, list) else [kinds]) if type(t) is str}
        examples = [*_list(part, "enum"), *([part["const"]] if "const" in part else ())]
        names |= {_JSON_TYPES[type(value)] for value in examples if type(value) in _JSON_TYPES}
        choices = [choice for key in ("anyOf", "oneOf", "allOf") for choice in _list(part, key)]
        ref = part.get("$ref")
        if isinstance(ref, str) and ref not in followed:
            choices.append(_resolve(ref, root))
        if not names and not choices and not isinstance(ref, str):
            names = {"string"}
        followed.add(str(ref))  # follow each reference once, so that a cycle ends
        types |= names | ({"null"} if part.get("nullable") is True else set())
        pending += choices
    return {_ALIASES.get(name, name) for name in (kind.strip().lower() for kind in types)} or {
        "string"
    }


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _resolve(ref: str, root: Mapping[str, Any]) -> Any:
    """Return the value at the JSON pointer ``ref`` in ``root``; None if it does not exist."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    value: Any = root
    for key in ref.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def to_type(text: str, types: set[str], parse: Json) -> Any:
    """Convert ``text`` to the first of ``types`` that fits, in vLLM's order.

    If no type fits, parse the text as JSON with ``parse``. If that fails, return the text itself.
    """
    if "null" in types and text.lower() == "null":
        return None
    if types & {"integer", "number"} and (number := _number(text, types)) is not None:
        return number
    if "boolean" in types and (word := text.lower().strip()) in ("true", "1", "false", "0"):
        return word in ("true", "1")
    if "string" in types and not types & {"object", "array"}:
        return text
    try:
        value = parse(text)
        json.dumps(value, allow_nan=False)
    except ValueError:
        return text
    return value


def _number(text: str, types: set[str]) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    if not isfinite(number):
        return None
    if number == int(number) and ("number" in types or "string" not in types):
        return int(number)
    return number if "number" in types else None
