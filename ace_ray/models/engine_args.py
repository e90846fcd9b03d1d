"""Read engine arguments and names of parsers from vLLM's source, without importing vLLM.

Importing vLLM's argument classes takes 5-20 s of CPU time, too long to report a misspelt key."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from typing import Any

from ace_ray.config.schema import ModelConfig, RunConfig, SamplingConfig
from ace_ray.config.suggestions import sections_of, suggest_key, unknown_keys
from ace_ray.errors import UserError
from ace_ray.models.parser_plugins import read_plugins, registered_parsers
from ace_ray.util import vllm_source
from ace_ray.util.suggestions import did_you_mean

INSTALL = "install ace_ray with an engine: pip install ace-ray[gpu] (for a CPU, see README)"
RESERVED = {
    "model": "model.source",
    "revision": "model.revision",
    "tokenizer": "model.source",
    # A secret would be stored in the manifest and in rows.
    "hf_token": "the environment variable HF_TOKEN",
    # Engines would take more GPUs than planned.
    "data_parallel_size": "workers",
    "data_parallel_size_local": "workers",
    "prefill_context_parallel_size": "tensor_parallel_size",
    **dict.fromkeys(("enable_lora", "max_loras", "max_lora_rank"), "model.adapter"),
}
_DRAWN = {name: name for name in SamplingConfig.model_fields} | {"max_new_tokens": "max_tokens"}
_OUR_PARSERS = {"reasoning": ("auto", "none"), "tool": ("auto",)}
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "max_num_seqs")
# Maximum characters of a suggestion. A longer list does not help.
_LONG = 200


def check_engine_args(args: Mapping[str, Any]) -> None:
    """Raise `UserError` for an argument that vLLM does not have, or that another config key sets.
    vLLM checks the values of arguments when an engine starts."""
    for name in args:
        if name in RESERVED:
            fix = f"use {RESERVED[name]}"
            raise UserError(f"{name!r} is set elsewhere", where=f"engine.{name}", fix=fix)
    _check_installed()
    fields = vllm_source.engine_arguments()
    if fields and (unknown := [name for name in args if name not in fields]):
        elsewhere = sections_of(RunConfig)
        fixes = {}
        for name in unknown:
            fix = suggest_key(name, fields, elsewhere, but="engine")
            fixes[name] = fix if len(fix) < _LONG else "see vLLM's engine arguments"
        raise unknown_keys(fixes, source="engine", label="vLLM has no engine argument")
    # Plans use these arguments, so refuse booleans, null and numbers below 1.
    for name in _SIZES:
        size = args.get(name, 1)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            problem = f"{size!r} is not an integer of at least 1"
            raise UserError(problem, where=f"engine.{name}", fix="write a whole number")
    override = args.get("override_generation_config")
    drawn = [name for name in _DRAWN if isinstance(override, Mapping) and name in override]
    if drawn:
        raise UserError(
            f"{drawn[0]!r} has no effect here, because the engine is called directly",
            where="engine.override_generation_config",
            fix=f"move it to 'sampling', as {_DRAWN[drawn[0]]!r}",
        )


def check_parsers(model: ModelConfig) -> None:
    """Raise `UserError` for a plugin that cannot be imported, and for an unknown parser name."""
    plugins = read_plugins(model.plugins)
    registered = registered_parsers(plugins) if plugins else {}
    for kind, ours in _OUR_PARSERS.items():
        name = getattr(model, f"{kind}_parser")
        if name is None or name in ours:
            continue
        vllm_names = parser_names(kind).union(registered.get(kind, ()))
        if vllm_names and name not in vllm_names:
            raise UserError(
                f"vLLM has no {kind} parser {name!r}" + ", nor have the plugins" * bool(plugins),
                where=f"model.{kind}_parser",
                fix=did_you_mean(name, sorted({*ours, *vllm_names})),
            )


def parser_names(kind: str) -> set[str]:
    """Return the names of vLLM's parsers. ``kind``: "reasoning" or "tool".

    The set is empty if vLLM's source has another layout. Raises `UserError` if vLLM is missing."""
    _check_installed()
    folder = {"reasoning": "reasoning", "tool": "tool_parsers"}[kind]
    module = vllm_source.parse_source(f"{folder}/__init__.py")
    values = [node.value for node in module.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    keys = [key for value in values if isinstance(value, ast.Dict) for key in value.keys]
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def _check_installed() -> None:
    if vllm_source.folder() is None:
        raise UserError("vLLM is not installed", where="this machine", fix=INSTALL)


def cluster_engine_args(
    args: Mapping[str, Any], *, on_gpu: bool, seeded: bool, spread: bool = False
) -> dict[str, Any]:
    """Return ``args`` plus the arguments that an engine in a Ray actor needs on the cluster.

    ``seeded``: whether requests sample with a seed. ``spread``: whether an engine spans nodes."""
    args = dict(args)
    if spread:
        return {"distributed_executor_backend": "ray", **args}
    if on_gpu:
        if int(args.get("tensor_parallel_size", 1)) > 1:
            # A Ray executor inside a Ray actor would request the GPUs a second time.
            args.setdefault("distributed_executor_backend", "mp")
        return args
    if "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
        # Without a limit vLLM requires most of the machine's memory to be free.
        args.setdefault("kv_cache_memory_bytes", 1 << 30)
    if seeded:
        # vLLM 0.32 rewinds the generator of a seeded request after each chunk of its prompt. CPU
        # generators cannot be rewound, so the engine would crash. Without chunks, a batch must have
        # room for the longest prompt.
        args["enable_chunked_prefill"] = False
        batch, longest = args.get("max_num_batched_tokens"), args.get("max_model_len")
        if isinstance(batch, int) and isinstance(longest, int):
            args["max_num_batched_tokens"] = max(batch, longest)
    return args
