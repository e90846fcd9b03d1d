"""vLLM's own source, read without importing it: that costs 5-20 s of CPU."""

from __future__ import annotations

import ast
import importlib.util
from importlib.metadata import entry_points
from pathlib import Path


def folder() -> Path | None:
    """Where the installed vLLM is; None where there is none."""
    # find_spec does not import a top-level package.
    spec = importlib.util.find_spec("vllm")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def parsed(file: Path) -> ast.Module:
    """Without content where there is none: a vLLM of another layout."""
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def engine_arguments() -> list[str]:
    """Names of vLLM's engine arguments; [] where they cannot be read."""
    vllm = folder()
    if vllm is None:
        return []
    return [
        item.target.id
        for node in parsed(vllm / "engine/arg_utils.py").body
        if isinstance(node, ast.ClassDef) and node.name in ("EngineArgs", "AsyncEngineArgs")
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def architectures() -> set[str]:
    """Names of the architectures that vLLM has models of; empty where they cannot be read."""
    vllm = folder()
    if vllm is None:
        return set()
    names: set[str] = set()
    for node in parsed(vllm / "model_executor/models/registry.py").body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            # In tables of models that vLLM had once the values are texts, not tuples.
            pairs = zip(node.value.keys, node.value.values, strict=True)
            found = [key for key, value in pairs if isinstance(value, ast.Tuple)]
            names |= {str(key.value) for key in found if isinstance(key, ast.Constant)}
    return names


def has_plugins() -> bool:
    """Return whether other packages add models to vLLM."""
    found = entry_points(group="vllm.general_plugins")
    return any(point.dist is None or not point.dist.name.startswith("vllm") for point in found)
