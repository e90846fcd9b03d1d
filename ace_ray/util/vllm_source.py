"""vLLM's own source, read without importing it: that costs 5-20 s of CPU."""

from __future__ import annotations

import ast
import importlib.util
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
