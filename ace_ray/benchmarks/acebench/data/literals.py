"""Constants in Python source that is not ours: parsed with `ast`, never imported or executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError

Function = ast.FunctionDef | ast.AsyncFunctionDef


def literal(node: ast.expr, where: Path) -> Any:
    """The value of a literal. Raises `UserError` for anything that would have to be computed."""
    try:
        return ast.literal_eval(node)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise UserError(
            "a literal was expected, this would have to be executed",
            where=f"{where}:{node.lineno}",
            fix="import an unmodified checkout of the official repository",
        ) from error


def assigned(body: list[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of each plain assignment to one target, annotated or not."""
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            yield statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield statement.target, statement.value


def is_prose(text: str) -> bool:
    """Whether a constant is said to somebody, rather than a key or a mode."""
    return " " in text or not text.isascii()


def strings(function: Function) -> Iterator[str]:
    """String constants of a function, outermost first, without docstrings.

    The constant parts of an f-string are among them.
    """
    silent = _bare(function)
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.value


def templates(function: Function) -> list[str]:
    """What a function can answer: its f-strings, then its other prose, each outermost first.

    An f-string is written as a template, with the source of each expression in braces.
    """
    formatted = [node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in formatted for part in ast.walk(node) if part is not node}
    silent = _bare(function)
    plain = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in inside | silent
        and is_prose(node.value)
    ]
    return [_template(node) for node in formatted if id(node) not in inside] + plain


def _bare(function: Function) -> set[int]:
    """Identities of expressions that are statements of their own: docstrings, text as a comment."""
    return {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Expr)}


def _template(formatted: ast.JoinedStr) -> str:
    text = ""
    for part in formatted.values:
        if isinstance(part, ast.FormattedValue):
            conversion = f"!{chr(part.conversion)}" if part.conversion >= 0 else ""
            spec = part.format_spec
            spec_text = f":{_template(spec)}" if isinstance(spec, ast.JoinedStr) else ""
            text += "{" + ast.unparse(part.value) + conversion + spec_text + "}"
        elif isinstance(part, ast.Constant):
            text += str(part.value)
    return text
