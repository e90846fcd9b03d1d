"""vLLM's engine arguments and reasoning parsers, read from its source without importing it.

Importing vLLM's argument classes costs 5-20 s of CPU; a misspelt key should cost none of it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from ace_ray import vllm_source
from ace_ray.config import RunConfig, SamplingConfig
from ace_ray.errors import UserError
from ace_ray.mistakes import did_you_mean, instead, sections_of, unknown_keys

INSTALL = "install an engine flavour: pip install ace-ray[gpu], or see README for the CPU"
RESERVED = {"model": "model.source", "revision": "model.revision", "tokenizer": "model.source"}
SECRET = {"hf_token": "the environment variable HF_TOKEN"}
"""Would stand in the manifest and in rows."""


_DRAWN = {name: name for name in SamplingConfig.model_fields} | {"max_new_tokens": "max_tokens"}
_LONG = 200
"""Characters of a list that nobody reads."""

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
    _vllm()
    fields = vllm_source.engine_arguments()
    if not fields:
        return  # a vLLM of another layout, whose own check comes when it starts
    refuse_unknown_args(args)
    for name, value in args.items():
        if value is not None:
            _check_value(name, value, _type_of(fields[name]))
            _check_range(name, value)
    _check_override(args.get("override_generation_config"))


def refuse_unknown_args(args: Mapping[str, Any]) -> None:
    """Raise `UnknownKeys` for arguments that vLLM does not know; not where it cannot be read."""
    fields = vllm_source.engine_arguments()
    if not fields or not (unknown := [name for name in args if name not in fields]):
        return
    elsewhere = sections_of(RunConfig)
    fixes = {}
    for name in unknown:
        fix = instead(name, list(fields), elsewhere, but="engine")
        fixes[name] = fix if len(fix) < _LONG else "see vLLM's engine arguments"
    raise unknown_keys(fixes, where="engine", what="vLLM has no engine argument")


def _check_override(override: Any) -> None:
    drawn = [name for name in _DRAWN if isinstance(override, Mapping) and name in override]
    if drawn:
        raise UserError(
            f"{drawn[0]!r} has no effect here: the engine is asked directly",
            where="engine.override_generation_config",
            fix=f"it belongs under 'sampling', as {_DRAWN[drawn[0]]!r}",
        )


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


_POSITIVE = (
    *("max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "pipeline_parallel_size"),
    *("block_size", "kv_cache_memory_bytes", "num_gpu_blocks_override", "max_seq_len_to_capture"),
    *("max_loras", "max_cpu_loras"),
)
"""vLLM refuses 0 and less of them, some only once the engine starts (``vllm/config``)."""
_NOT_NEGATIVE = ("cpu_offload_gb", "swap_space")


def _check_range(name: str, value: Any) -> None:
    """Raise `UserError` for a number with which no engine starts."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return  # of another type, which is said elsewhere
    if name == "gpu_memory_utilization" and not 0 < number <= 1:
        needed = "a share above 0, 1 at most"
    elif name == "max_model_len" and number != -1 and number < 1:
        needed = "1 or more, or -1 for what fits"
    elif name in _POSITIVE and number < 1:
        needed = "1 or more"
    elif name in _NOT_NEGATIVE and number < 0:
        needed = "0 or more"
    else:
        return
    raise UserError(f"{name!r} is {value}, it takes {needed}", where="engine", fix="correct it")


def check_reasoning_parser(name: str) -> None:
    """Raise `UserError` for a name that is neither ours nor one of vLLM's reasoning parsers."""
    if name in ("auto", "none"):
        return
    known = {"auto", "none", *reasoning_parsers()}
    if len(known) > 2 and name not in known:
        raise UserError(
            f"there is no reasoning parser {name!r}",
            where="model.reasoning_parser",
            fix=did_you_mean(name, sorted(known)),
        )


def reasoning_parsers() -> set[str]:
    """The names of vLLM's own, none where it has another layout."""
    return _string_keys(_parsed("reasoning/__init__.py"))


def _vllm() -> Path:
    folder = vllm_source.folder()
    if folder is None:
        raise UserError("vLLM is not installed", where="this machine", fix=INSTALL)
    return folder


def _parsed(path: str) -> ast.Module:
    return vllm_source.parsed(_vllm() / path)


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
