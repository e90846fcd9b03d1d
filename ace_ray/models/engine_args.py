"""vLLM's engine arguments and reasoning parsers by name, read without importing vLLM.

Importing vLLM's argument classes costs 5-20 s of CPU; a misspelt key should cost none of it.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError

INSTALL = "install an engine flavour: pip install ace-ray[gpu], or see README for the CPU"
RESERVED = {"model": "model.source", "revision": "model.revision", "tokenizer": "model.source"}


def check_engine_args(args: Mapping[str, Any]) -> None:
    """Raise `UserError` for an argument that vLLM does not know or that belongs elsewhere."""
    for name in args:
        if name in RESERVED:
            raise UserError(
                f"{name!r} is set elsewhere", where=f"engine.{name}", fix=f"use {RESERVED[name]}"
            )
    known = _fields(_parsed("engine/arg_utils.py"), ("EngineArgs", "AsyncEngineArgs"))
    for name in args:
        # No name at all: a vLLM of another layout, whose own check comes when it starts.
        if known and name not in known:
            fix = _nearest(name, known, "see vLLM's engine arguments")
            raise UserError(f"vLLM has no engine argument {name!r}", where="engine", fix=fix)


def check_reasoning_parser(name: str) -> None:
    """Raise `UserError` for a name that is neither ours nor one of vLLM's reasoning parsers."""
    if name in ("auto", "none"):
        return
    known = {"auto", "none", *_string_keys(_parsed("reasoning/__init__.py"))}
    if len(known) > 2 and name not in known:
        fix = _nearest(name, known, f"known: {', '.join(sorted(known))}")
        raise UserError(
            f"there is no reasoning parser {name!r}", where="model.reasoning_parser", fix=fix
        )


def _nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def _parsed(path: str) -> ast.Module:
    # find_spec does not import a top-level package.
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.origin:
        raise UserError("vLLM is not installed", where="this machine", fix=INSTALL)
    try:
        return ast.parse((Path(spec.origin).parent / path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def _fields(module: ast.Module, classes: Iterable[str]) -> set[str]:
    """Names of the dataclass fields of ``classes``."""
    return {
        item.target.id
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name in classes
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def _string_keys(module: ast.Module) -> set[str]:
    """Text keys of the dictionaries that are assigned at the top of the module."""
    values = [node.value for node in module.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    return {
        key.value
        for value in values
        if isinstance(value, ast.Dict)
        for key in value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
