"""vLLM's engine arguments and reasoning parsers, read from its source without importing it.

Importing vLLM's argument classes costs 5-20 s of CPU; a misspelt key should cost none of it.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from ace_ray.errors import UserError

INSTALL = "install an engine flavour: pip install ace-ray[gpu], or see README for the CPU"
RESERVED = {"model": "model.source", "revision": "model.revision", "tokenizer": "model.source"}
SECRET = {"hf_token": "the environment variable HF_TOKEN"}
"""Would stand in the manifest and in rows."""


_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_BY_NAME: dict[str, Any] = {kind.__name__: kind for kind in _PLAIN}


def check_engine_args(args: Mapping[str, Any]) -> None:
    """Raise `UserError` for an argument that vLLM does not know, that belongs elsewhere, or whose
    value cannot be of the annotated type.

    Numbers, texts, flags, and choices among literals are checked, as leniently as vLLM does; a
    value of any other type is vLLM's to judge when it starts, and so is null.
    """
    for name in args:
        if name in SECRET:
            raise UserError(
                f"{name!r} does not belong in a config",
                where=f"engine.{name}",
                fix=f"use {SECRET[name]}",
            )
        if name in RESERVED:
            raise UserError(
                f"{name!r} is set elsewhere", where=f"engine.{name}", fix=f"use {RESERVED[name]}"
            )
    fields = _fields(_parsed("engine/arg_utils.py"), ("EngineArgs", "AsyncEngineArgs"))
    for name, value in args.items():
        # No name at all: a vLLM of another layout, whose own check comes when it starts.
        if fields and name not in fields:
            fix = _nearest(name, fields, "see vLLM's engine arguments")
            raise UserError(f"vLLM has no engine argument {name!r}", where="engine", fix=fix)
        if fields and value is not None:
            _check_value(name, value, _type_of(fields[name]))


def _check_value(name: str, value: Any, kind: Any) -> None:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
        raise UserError(
            f"{name!r} is {shown}, vLLM takes {_described(kind)}",
            where="engine",
            fix="correct the value",
        ) from error


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


def _vllm() -> Path:
    # find_spec does not import a top-level package.
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.origin:
        raise UserError("vLLM is not installed", where="this machine", fix=INSTALL)
    return Path(spec.origin).parent


def _parsed(path: str) -> ast.Module:
    file = _vllm() / path
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def _fields(module: ast.Module, classes: Iterable[str]) -> dict[str, ast.expr]:
    """Names and annotations of the dataclass fields of ``classes``."""
    return {
        item.target.id: item.annotation
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name in classes
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def _type_of(node: ast.expr) -> Any:
    """The type that an annotation names; `Any` where it is none of those checked here."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str() as text):
            try:
                return _type_of(ast.parse(text, mode="eval").body)
            except SyntaxError:
                return Any
        case ast.Name(id=name):
            return _BY_NAME.get(name) or _alias(name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_type_of(left), _type_of(right)]  # noqa: UP007
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return Union[_type_of(inner), None]  # noqa: UP007
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            values = _literals(inner.elts if isinstance(inner, ast.Tuple) else [inner])
            return Literal[tuple(values)] if values else Any
    return Any


def _literals(nodes: Iterable[ast.expr]) -> list[Any]:
    """The values in a ``Literal[...]``, which may name other aliases; none if one is unknown."""
    values: list[Any] = []
    for node in nodes:
        inner = [node.value] if isinstance(node, ast.Constant) else _choices(_type_of(node))
        if not inner:
            return []
        values += inner
    return values


def _alias(name: str) -> Any:
    """What ``name`` stands for in vLLM's config modules if that is a ``Literal[...]``."""
    for path in sorted(_vllm().glob("config/*.py")):
        # Parsing all of them would cost half a second.
        if not re.search(rf"^{name}(: TypeAlias)? = Literal\b", path.read_text("utf-8"), re.M):
            continue
        for node in _parsed(f"config/{path.name}").body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    return _type_of(node.value)
    return Any


def _choices(kind: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [choice for part in get_args(kind) for choice in _choices(part)]


def _described(kind: Any) -> str:
    parts = [part for part in (get_args(kind) or [kind]) if part is not NoneType]
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    return " or ".join(_PLAIN.get(part) or _described(part) for part in parts)


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


def cluster_engine_args(
    args: Mapping[str, Any], *, on_gpu: bool, seeded: bool, spread: bool = False
) -> dict[str, Any]:
    """``args`` with what an engine inside an actor needs on this kind of cluster.

    ``seeded``: whether requests draw their tokens, and so have seeds. ``spread``: whether it lies
    on several nodes.
    """
    args = dict(args)
    if spread:
        return {"distributed_executor_backend": "ray", **args}
    if on_gpu:
        if int(args.get("tensor_parallel_size", 1)) > 1:
            # A Ray executor inside a Ray actor would ask for the GPUs a second time.
            args.setdefault("distributed_executor_backend", "mp")
        return args
    if "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
        # Without it vLLM demands most of the machine's memory to be free.
        args.setdefault("kv_cache_memory_bytes", 1 << 30)
    if seeded:
        # vLLM 0.32 rewinds a seeded request's generator after each chunk of its prompt, which CPU
        # generators cannot: the engine dies. Whole prompts need a batch that holds the longest.
        args["enable_chunked_prefill"] = False
        if "max_num_batched_tokens" in args:
            longest = args.get("max_model_len") or 0
            args["max_num_batched_tokens"] = max(args["max_num_batched_tokens"], longest)
    return args
