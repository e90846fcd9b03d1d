"""Load the user's plugin files, which contain reasoning and tool parsers for vLLM."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from ace_ray.config.schema import config_text
from ace_ray.errors import UserError

_loaded: set[str] = set()


def read_plugins(paths: list[str]) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of each plugin file. Raises `UserError`: a file cannot be read."""
    read = []
    for path in paths:
        text = config_text(path)
        try:
            compile(text, path, "exec")
        except (SyntaxError, ValueError) as error:
            raise UserError(
                f"is not a Python file: {error}", where=path, fix="name a file with parsers"
            ) from error
        read.append((Path(path).name, text))
    return tuple(read)


def plugin_sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def load_plugin(name: str, text: str) -> None:
    """Run a plugin file in this process, once, so that it registers its parsers with vLLM. Raises
    `UserError`: the file cannot be imported."""
    sha = plugin_sha256(text)
    if sha in _loaded:
        return
    from vllm.utils.import_utils import import_from_path

    with tempfile.TemporaryDirectory(prefix="ace_ray_plugin_") as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        try:
            import_from_path(f"ace_ray_plugin_{sha[:16]}", str(path))
        # A plugin is foreign code: any exception means that it does not load.
        except Exception as error:
            raise UserError(
                f"cannot be imported: {type(error).__name__}: {error}",
                where=f"model.plugins: {name}",
                fix="correct the file; it must register its parsers with vLLM's managers",
            ) from error
    _loaded.add(sha)
