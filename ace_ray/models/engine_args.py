"""vLLM's engine arguments and the names of its parsers, read from its source without importing it.

Importing vLLM's argument classes costs 5-20 s of CPU; a misspelt key should cost none of it.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ace_ray.config.schema import RunConfig, SamplingConfig
from ace_ray.config.suggestions import did_you_mean, instead, sections_of, unknown_keys
from ace_ray.errors import UserError
from ace_ray.util import vllm_source

INSTALL = "install an engine flavour: pip install ace-ray[gpu], or see README for the CPU"
RESERVED = {"model": "model.source", "revision": "model.revision", "tokenizer": "model.source"}
SECRET = {"hf_token": "the environment variable HF_TOKEN"}
"""Would stand in the manifest and in rows."""


_DRAWN = {name: name for name in SamplingConfig.model_fields} | {"max_new_tokens": "max_tokens"}
_LONG = 200
"""Characters of a list that nobody reads."""


def check_engine_args(args: Mapping[str, Any]) -> None:
    """Raise `UserError` for an argument that vLLM does not know, or that belongs elsewhere; its
    value is vLLM's to judge when an engine starts."""
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
    _refuse_unknown(args)
    _check_override(args.get("override_generation_config"))


def _refuse_unknown(args: Mapping[str, Any]) -> None:
    """Raise `UserError` for arguments that vLLM does not know; not where it cannot be read."""
    fields = vllm_source.engine_arguments()
    if not fields or not (unknown := [name for name in args if name not in fields]):
        return
    elsewhere = sections_of(RunConfig)
    fixes = {}
    for name in unknown:
        fix = instead(name, fields, elsewhere, but="engine")
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


def check_tool_parser(name: str) -> None:
    """Raise `UserError` for a name that vLLM has no tool parser of, without importing vLLM."""
    known = tool_parser_names()
    if known and name not in known:
        raise UserError(
            f"vLLM has no tool parser {name!r}",
            where="model.tool_parser",
            fix=did_you_mean(name, sorted(known)),
        )


def tool_parser_names() -> set[str]:
    """The names of vLLM's own, none where it has another layout. Raises `UserError`: it is not
    installed."""
    return _string_keys(_parsed("tool_parsers/__init__.py"))


def _vllm() -> Path:
    folder = vllm_source.folder()
    if folder is None:
        raise UserError("vLLM is not installed", where="this machine", fix=INSTALL)
    return folder


def _parsed(path: str) -> ast.Module:
    return vllm_source.parsed(_vllm() / path)


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
        batch, longest = args.get("max_num_batched_tokens"), args.get("max_model_len")
        if isinstance(batch, int) and isinstance(longest, int):
            args["max_num_batched_tokens"] = max(batch, longest)
    return args
