"""Binary operations in a call's values, which upstream runs through ``eval``.

Those on literals are folded. Most others only fail there, since the names that models use
(``base * height``) mean nothing in upstream's decoder; that much can be said without running them.
What is left would run code and is refused.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Any

from ace_ray.calls import Budget, NotCalls, Refused, fold

# Frames that Python's default recursion limit leaves the upstream decoder for writing an operation
# back as text, and what one level of that and of its own descent costs (measured on 3.11).
_FRAMES = 975
_FRAMES_PER_OPERATION = 3
_FRAMES_PER_VALUE = 2
# Names that upstream's module has or may have: its imports, and its functions by how they begin.
_KNOWN = frozenset([
    *dir(builtins), "Callable", "FileLock", "List", "Lock", "ModelStyle", "Optional", "Path",
    "RESET", "ReturnFormat", "Type", "Union", "ast", "builtins", "copy", "deepcopy", "hashlib",
    "json", "operator", "os", "re", "reduce", "value",
])  # fmt: skip
_KNOWN_BEGINNINGS = (
    "_", "add_", "ast_", "clean_", "combine_", "contain_", "convert_", "decoded_", "default_",
    "extract_", "filter_", "find_", "format_", "formulate_", "get_", "is_", "load_", "make_",
    "parse_", "populate_", "process_", "resolve_", "retry", "sort_", "system_", "wait_", "write_",
)  # fmt: skip


def operation(node: ast.BinOp, budget: Budget, depth: int) -> Any:
    """The value of an operation, ``depth`` levels within a call.

    Raises `NotCalls` where evaluating it would only raise, and `Refused` where it could run code
    or is too large.
    """
    frames = _FRAMES - depth * _FRAMES_PER_VALUE
    try:
        return fold(node, budget, frames // _FRAMES_PER_OPERATION)
    except Refused:
        name = next(_first_names(node), None)
        if name is not None and _means_nothing(name):
            raise NotCalls("a name in an operation that stands for nothing") from None
        raise


def _means_nothing(name: str) -> bool:
    constant = name.isupper() and "_" in name  # as upstream writes its constants
    return not (constant or name in _KNOWN or name.startswith(_KNOWN_BEGINNINGS))


def _first_names(node: ast.expr) -> Iterator[str | None]:
    """The names of an operation in the order in which they are looked up, as far as that is plain.

    None comes in place of a part that may or may not be evaluated, or that does more than that.
    """
    pending: list[ast.expr] = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.BinOp):
            pending += [part.right, part.left]
        elif isinstance(part, ast.UnaryOp):
            pending.append(part.operand)
        elif isinstance(part, (ast.Attribute, ast.Starred)):
            pending.append(part.value)
        elif isinstance(part, ast.Subscript):
            pending += [part.slice, part.value]
        elif isinstance(part, ast.Call):
            pending.append(part.func)
        elif isinstance(part, (ast.List, ast.Tuple, ast.Set)):
            pending += reversed(part.elts)
        elif not isinstance(part, ast.Constant):
            yield None
