"""Read the source of vLLM without importing it, since an import takes 5-20 s of CPU."""

from __future__ import annotations

import ast
import importlib.util
from importlib.metadata import entry_points
from pathlib import Path


def folder() -> Path | None:
    """Return the folder of the installed vLLM, or None."""
    # find_spec does not import a top-level package.
    spec = importlib.util.find_spec("vllm")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def parse_source(path: str) -> ast.Module:
    """Parse the file ``path`` of vLLM. Return an empty module if it cannot be read: some versions
    of vLLM do not have the file."""
    vllm = folder()
    try:
        return ast.parse((vllm / path).read_text(encoding="utf-8") if vllm else "")
    except (OSError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def engine_arguments() -> list[str]:
    """Return the names of vLLM's engine arguments; [] if they cannot be read."""
    return [
        item.target.id
        for node in parse_source("engine/arg_utils.py").body
        if isinstance(node, ast.ClassDef) and node.name in ("EngineArgs", "AsyncEngineArgs")
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def architectures() -> set[str]:
    """Return the model architectures that vLLM supports; empty if they cannot be read."""
    names: set[str] = set()
    for node in parse_source("model_executor/models/registry.py").body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            # In tables of models that vLLM no longer supports, values are strings, not tuples.
            pairs = zip(node.value.keys, node.value.values, strict=True)
            keys = [key for key, value in pairs if isinstance(value, ast.Tuple)]
            names |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    return names


def has_plugins() -> bool:
    """Return whether other packages add models or quantization methods to vLLM."""
    points = entry_points(group="vllm.general_plugins")
    return any(point.dist is None or not point.dist.name.startswith("vllm") for point in points)
