"""What a simulator is sent.

Models of the MirrorAPI family were trained on one form (upstream's ``server/main_mirrorapi.py`` and
``server/main_mirrorapi_cache.py``), which is kept to the letter; its system text is upstream's and
read from the user's checkout. Any other model gets our own wording.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ace_ray.benchmarks.dataset import assigned_text, python_source
from ace_ray.benchmarks.stabletoolbench.apis.answers import ApiLike
from ace_ray.errors import UserError

Form = Literal["mirror", "mirror_cache", "own"]
PROMPTS_FILE = "server/system_prompts.py"
_VARIABLE = "SFT_SYSTEM"
_MAX_TEXT, _MAX_PARAMETERS = 1000, 40

OWN_SYSTEM = """\
You play the server of a web API. You are given the API's documentation and one request, and you \
reply with what the API would return.

Reply with exactly one JSON object and nothing else:
{"error": "", "response": <the API's payload>}

- "error" is an empty text when the request can be served. When it cannot (an argument that is \
required is missing, or one has an impossible value), it says why in one sentence, and "response" \
is an empty text.
- "response" is what the API would return: realistic, in keeping with the documentation and the \
arguments, and short (at most about 150 words).
- Where earlier replies of this API are shown, keep to their form. Do not copy their content when \
the request differs."""


@dataclass(frozen=True, slots=True)
class SystemText:
    """A simulator's system message and whose wording it is."""

    text: str
    source: Literal["own", "upstream"]


def form_of(model: str) -> Form:
    """The form for a model of that name; a path counts by its last part."""
    name = model.rstrip("/").rpartition("/")[2].lower().replace("-", "").replace("_", "")
    if "mirrorapi" not in name:
        return "own"
    return "mirror_cache" if "mirrorapicache" in name else "mirror"


def system_text(form: Form, upstream: str | None) -> SystemText:
    """The system message of a form; upstream's own for MirrorAPI where its checkout is given.

    Raises `UserError`: the checkout does not hold that text.
    """
    if form == "own" or upstream is None:
        return SystemText(OWN_SYSTEM, "own")
    root = Path(upstream)
    text = assigned_text(python_source(root, PROMPTS_FILE), _VARIABLE)
    if text is None:
        raise UserError(
            f"assigns no text to {_VARIABLE}",
            where=str(root / PROMPTS_FILE),
            fix="give a checkout of THUNLP-MT/StableToolBench that has the MirrorAPI servers",
        )
    return SystemText(text, "upstream")


def messages(
    form: Form,
    system: SystemText,
    api: ApiLike,
    arguments: Mapping[str, Any],
    examples: Sequence[tuple[str, str]] = (),
) -> list[dict[str, Any]]:
    """The chat that asks for one answer. ``examples`` are for our own form only."""
    if form == "own":
        user = _own(api, arguments, examples)
    else:
        user = _mirror(api, arguments, api.std_api if form == "mirror_cache" else api.api)
    return [{"role": "system", "content": system.text}, {"role": "user", "content": user}]


def _mirror(api: ApiLike, arguments: Mapping[str, Any], api_name: str) -> str:
    document = {
        "api_name": api_name,
        "api_description": api.api_description,
        "required_parameters": [dict(parameter) for parameter in api.required],
        "optional_parameters": [dict(parameter) for parameter in api.optional],
        "tool_description": api.tool_description,
        "tool_name": api.std_tool.split("_for_")[0],
        "tool_category": api.std_category,
    }
    request = {name: value for name, value in arguments.items() if name != "toolbench_key"}
    return f"API doc:\n{document}\n\nRequest:\n{request}"


def _own(api: ApiLike, arguments: Mapping[str, Any], examples: Sequence[tuple[str, str]]) -> str:
    document = {
        "tool": api.tool[:_MAX_TEXT],
        "tool_description": (api.tool_description or "")[:_MAX_TEXT],
        "api": api.api[:_MAX_TEXT],
        "description": (api.api_description or "")[:_MAX_TEXT],
        "required_parameters": _parameters(api.required),
        "optional_parameters": _parameters(api.optional),
    }
    if api.template:
        template = api.template if isinstance(api.template, str) else json.dumps(api.template)
        document["shape_of_the_payload"] = template[:_MAX_TEXT]
    parts = [f"Documentation:\n{json.dumps(document, ensure_ascii=False)}"]
    if examples:
        shown = "\n".join(f"{said}\n-> {answer}"[: 2 * _MAX_TEXT] for said, answer in examples)
        parts.append(f"Earlier replies:\n{shown}")
    parts.append(f"Request:\n{json.dumps(arguments, ensure_ascii=False)}")
    return "\n\n".join(parts)


def _parameters(parameters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    fields = ("name", "type", "description", "default")
    return [
        {name: str(parameter.get(name, ""))[:_MAX_TEXT] for name in fields}
        for parameter in parameters[:_MAX_PARAMETERS]
    ]
