"""Makes a model's renderer and parsers for real, in a process of its own: it imports vLLM."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ace_ray.children import module_command, module_environment
from ace_ray.errors import PromptRefused, UserError
from ace_ray.models.families import FormatChoice

TIMEOUT_S = 300.0
_TOOL = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "Looks something up.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    },
}


def probe_format(folder: Path, engine: Mapping[str, Any], choice: FormatChoice) -> str:
    """What renders the model in ``folder`` and reads its answers, as a line.

    Raises `UserError`: it cannot be made, or refuses a short chat.
    """
    asked = {"folder": str(folder), "engine": dict(engine), "choice": dataclasses.asdict(choice)}
    try:
        done = subprocess.run(
            module_command("ace_ray.models.format_probe"),
            env=module_environment(),
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not tried: vLLM did not start within {TIMEOUT_S:g} s"
    lines = done.stdout.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        found = {}
    if "refused" in found:
        what, where, fix = map(str, found["refused"])
        raise UserError(what, where=where, fix=fix)
    if "line" in found:
        return str(found["line"])
    last = next(reversed(done.stderr.strip().splitlines()), "it died without a word")
    return f"not tried: vLLM cannot be configured on this machine ({last[:300]})"


def probed(folder: str, engine: Mapping[str, Any], choice: FormatChoice) -> dict[str, Any]:
    """In the child: what was found."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.renderers import renderer_from_config

    from ace_ray.models.format import Format

    config = AsyncEngineArgs(model=folder, **engine).create_engine_config()
    try:
        renderer = renderer_from_config(config)
        form = Format(config.model_config, renderer, choice)
        tools = [_TOOL] if choice.tool_parser else None
        prompt = asyncio.run(form.render([{"role": "user", "content": "x"}], tools))
        form.read(prompt, "x", form.encode("x"))
    except UserError as error:
        return {"refused": [error.what, error.where, error.fix]}
    except PromptRefused as error:
        return {"refused": [str(error), folder, "see docs/formats.md"]}
    bound = ", decoding bound by a grammar" if "structured_outputs" in prompt.adjusted else ""
    parsers = f"reasoning {choice.reasoning_parser}, tools {choice.tool_parser or 'none'}"
    return {"line": f"{form.renderer_name} writes, {parsers} read{bound}"}


def main() -> None:
    # What vLLM prints must not end up in the answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asked = json.load(sys.stdin)
    tree = asked["choice"]
    tree["plugins"] = tuple(tuple(plugin) for plugin in tree["plugins"])
    answers.write(json.dumps(probed(asked["folder"], asked["engine"], FormatChoice(**tree))))
    answers.close()


if __name__ == "__main__":
    main()
