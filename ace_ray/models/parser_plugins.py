"""Load the user's plugin files, which contain reasoning and tool parsers for vLLM."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from ace_ray.config.schema import config_text
from ace_ray.errors import UserError
from ace_ray.util.subprocesses import module_command, module_environment

_loaded: set[str] = set()
# Time limit for importing vLLM, which takes 5-20 s, and the plugins.
_IMPORT_S = 300.0


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


@cache
def registered_parsers(plugins: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    """Return the names of all "tool" and "reasoning" parsers after loading ``plugins``, pairs of
    file name and text, in a child process. Raises `UserError`: a file cannot be imported."""
    names = ", ".join(name for name, _ in plugins)
    try:
        done = subprocess.run(
            module_command("ace_ray.models.parser_plugins"),
            env=module_environment(),
            input=json.dumps(plugins),
            capture_output=True,
            text=True,
            check=False,
            timeout=_IMPORT_S,
        )
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        why = f"took longer than {_IMPORT_S:g} s"
        if isinstance(error, ValueError):
            lines = done.stderr.strip().splitlines() or ["no message"]
            why = f"ended the process with exit code {done.returncode}: {lines[-1]:.300}"
        where, fix = f"model.plugins: {names}", "correct the files"
        raise UserError(f"the import {why}", where=where, fix=fix) from error
    if "what" in answer:
        raise UserError(**answer)
    return dict(answer)


def _main() -> None:
    """Load the plugins from standard input, and print the names of all parsers."""
    answers = os.dup(1)
    os.dup2(2, 1)  # plugins and vLLM may print
    try:
        for name, text in json.load(sys.stdin):
            load_plugin(name, text)
    except UserError as error:
        answer = {"what": error.what, "where": error.where, "fix": error.fix}
    else:
        from vllm.reasoning import ReasoningParserManager as Reasoning
        from vllm.tool_parsers import ToolParserManager as Tool

        answer = {"tool": Tool.list_registered(), "reasoning": Reasoning.list_registered()}
    os.write(answers, json.dumps(answer).encode())


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
    _main()
