"""Load the user's plugin files, which contain reasoning and tool parsers for vLLM."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from ace_ray.config.schema import config_text
from ace_ray.errors import UserError
from ace_ray.util.subprocesses import run_module

# Timeout of a child that imports vLLM and the plugins. vLLM alone takes 10 s, more on a busy disk.
IMPORT_S = 300
_loaded: set[str] = set()


def read_plugins(paths: list[str]) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of each plugin file. Raises `UserError` if a file cannot be read."""
    return tuple((Path(path).name, config_text(path)) for path in paths)


def plugin_sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def registered_parsers(plugins: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    """Return the names of all "tool" and "reasoning" parsers after loading ``plugins``, pairs of
    file name and text, in a child process. Raises `UserError` if a file cannot be imported."""
    module, question = "ace_ray.models.parser_plugins", json.dumps(plugins)
    try:
        child = run_module(module, stdin=question, timeout_s=IMPORT_S)
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"importing the plugin files took over {IMPORT_S} s", where="model.plugins",
            fix="remove what waits or computes while the files are imported",
        ) from error  # fmt: skip
    try:
        # Plugins and vLLM may print too.
        names: dict[str, list[str]] = json.loads(child.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        last = (child.stderr.strip() or "no message").splitlines()[-1]
        _, cause, line = last.partition("UserError: ")
        problem = line if cause else f"model.plugins: exit code {child.returncode} ({last:.300})"
        raise UserError(problem) from error
    return names


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


if __name__ == "__main__":
    for plugin in json.load(sys.stdin):
        load_plugin(*plugin)
    from vllm.reasoning import ReasoningParserManager as Reasoning
    from vllm.tool_parsers import ToolParserManager as Tool

    print(json.dumps({"tool": Tool.list_registered(), "reasoning": Reasoning.list_registered()}))
