"""Read the source of vLLM without importing it, since an import takes 5-20 s of CPU."""

from __future__ import annotations

import ast
import importlib.util
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
