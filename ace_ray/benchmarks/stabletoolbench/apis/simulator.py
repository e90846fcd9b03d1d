"""Simulate an API with a model: build the prompt and read the answer.

MirrorAPI models get exactly the prompt on which they were trained (upstream's
``server/main_mirrorapi.py`` and ``server/main_mirrorapi_cache.py``). Its system text is read from
the user's checkout. Other models get ace_ray's prompt (the form ``own``).

The model is not trusted: its text is bounded before it is parsed, and nothing in it is executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.dataset import assigned_text, parse_python
from ace_ray.benchmarks.stabletoolbench.apis import answers
from ace_ray.benchmarks.stabletoolbench.apis.answers import ApiAnswer
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.errors import PromptRefused, PromptTooLong, UserError
from ace_ray.types import Sampling, digest

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


_EMPTY = {"type": "string", "const": ""}


def _reply(error: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"error": error, "response": response},
        "required": ["error", "response"],
        "additionalProperties": False,
    }


_PAYLOADS = [
    # Objects come first: xgrammar allows no escapes in strings of bounded length.
    {"type": "object"},
    {"type": "array"},
    {"type": "string", "minLength": 1, "maxLength": 1200},
]
# Schema of the reply that `OWN_SYSTEM` asks for and `read_answer` reads.
SCHEMA: dict[str, Any] = {
    "type": "object",  # some endpoints require this at the root
    "anyOf": [
        _reply(_EMPTY, {"anyOf": _PAYLOADS}),
        _reply({"type": "string", "minLength": 1, "maxLength": 300}, _EMPTY),
    ],
}
SCHEMA_SHA256 = digest(SCHEMA)


def form_of(model: str) -> Form:
    """Return the prompt form for a model's name or path: "own" unless it is a MirrorAPI model."""
    name = model.rstrip("/").rpartition("/")[2].lower().replace("-", "").replace("_", "")
    if "mirrorapi" not in name:
        return "own"
    return "mirror_cache" if "mirrorapicache" in name else "mirror"


def mirror_system(upstream: Path) -> str:
    """Read MirrorAPI's system message from the checkout ``upstream``. Raises `UserError` if the
    checkout lacks the message."""
    text = assigned_text(parse_python(upstream, PROMPTS_FILE), _VARIABLE)
    if text is None:
        problem = f"does not assign a string to {_VARIABLE}"
        fix = "give a checkout of THUNLP-MT/StableToolBench that has the MirrorAPI servers"
        raise UserError(problem, where=str(upstream / PROMPTS_FILE), fix=fix)
    return text


def request_text(
    form: Form, api: Api, arguments: Any, examples: Sequence[Sequence[str]] = ()
) -> str:
    """Return the message that asks for one answer; only the form ``own`` shows ``examples``."""
    if form == "own":
        return _own_request(api, arguments, examples)
    document = {
        "api_name": api.std_api if form == "mirror_cache" else api.doc["api"],
        "api_description": api.doc["description"],
        "required_parameters": api.doc["required"],
        "optional_parameters": api.doc["optional"],
        "tool_description": api.doc["tool_description"],
        "tool_name": api.std_tool.split("_for_")[0],
        "tool_category": api.std_category,
    }
    request = {name: value for name, value in arguments.items() if name != "toolbench_key"}
    return f"API doc:\n{document}\n\nRequest:\n{request}"


def _own_request(api: Api, arguments: Any, examples: Sequence[Sequence[str]]) -> str:
    doc = api.doc
    document = {
        **{key: doc[key][:_MAX_TEXT] for key in ("tool", "tool_description", "api", "description")},
        "required_parameters": _parameters(doc["required"]),
        "optional_parameters": _parameters(doc["optional"]),
    }
    if template := doc["template"]:
        text = template if isinstance(template, str) else json.dumps(template)
        document["shape_of_the_payload"] = text[:_MAX_TEXT]
    parts = [f"Documentation:\n{json.dumps(document, ensure_ascii=False)}"]
    if examples:
        replies = [f"{request}\n-> {answer}"[: 2 * _MAX_TEXT] for request, answer in examples]
        parts.append("\n".join(["Earlier replies:", *replies]))
    parts.append(f"Request:\n{json.dumps(arguments, ensure_ascii=False)}")
    return "\n\n".join(parts)


def _parameters(parameters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: str(value)[:_MAX_TEXT] for name, value in parameter.items()}
        for parameter in parameters[:_MAX_PARAMETERS]
    ]


MAX_CHARS = 65_536
_FENCED = re.compile(r"```(?:json|JSON)?+(.*?)```", re.DOTALL)
_ERROR = re.compile(r'"error"\s*+:\s*+"([^"]*+)"\s*+,\s*+"response"\s*+:\s*+"')


def read_answer(text: str, *, loose: bool = False) -> tuple[str, Any] | None:
    """Return (error, response) from a simulator's text, or None if it has no answer.

    The answer is a JSON object: the complete text, the first fenced block, or the first object in
    the text. Its error or its response must not be empty. If ``loose`` is true, the beginning of an
    object is enough, as for upstream's MirrorAPI servers. The rest of the text is the response."""
    if len(text) > MAX_CHARS:
        return None
    text = text.strip()
    fenced = _FENCED.search(text)
    for candidate in (text, fenced[1].strip() if fenced else ""):
        try:
            return _error_and_response(answers.parse_json(candidate, MAX_CHARS))
        except answers.UnusableJson:
            continue
    answer = answers.first_object(text)
    if answer is not None and ("error" in answer or "response" in answer):
        return _error_and_response(answer)
    if loose and (match := _ERROR.search(text)):
        return _error_and_response({"error": match[1], "response": text[match.end() :]})
    return None


def _error_and_response(value: Any) -> tuple[str, Any] | None:
    if not isinstance(value, dict):
        return None
    error, response = answers.error_text(value.get("error")), value.get("response")
    response = "" if response is None else response
    return (error, response) if error.strip() or response != "" else None


ATTEMPTS = 3
# Temperature of retries in place of 0: greedy decoding would repeat the unusable answer.
RETRY_TEMPERATURE = 0.5
# Default sampling of answers.
SAMPLING = Sampling(temperature=0.1, max_tokens=1024, seed=42)
# Maximum tokens in MirrorAPI's own servers, which have the same temperature and seed.
MIRROR_TOKENS = 2048
FAILED = "The API server failed to answer."


class Simulator:
    """Asks a model for an API's answer, up to `ATTEMPTS` times.

    Errors of the model are raised. But if the model refuses a prompt, only the API call fails: the
    agent's arguments in the prompt may be the reason."""

    def __init__(self, model: RoleModel, form: Form, system: str) -> None:
        self._model, self._form, self._system = model, form, system
        # MirrorAPI needs no schema: it was trained to answer in its own form.
        self._schema = SCHEMA if form == "own" else None
        self.takes_examples = form == "own"

    def identity(self) -> dict[str, Any]:
        """Return model, sampling, form and prompt, which can change an answer (JSON values)."""
        sampling = self._model.sampling
        source = "own" if self._system == OWN_SYSTEM else "upstream"
        return {
            **self._model.identity,
            "form": self._form,
            "system": {"source": source, "sha256": digest(self._system)},
            "temperature": sampling.temperature,
            "seed": sampling.seed,
            "attempts": ATTEMPTS,
            "retry_temperature": sampling.temperature or RETRY_TEMPERATURE,
            **({"schema_sha256": SCHEMA_SHA256} if self._schema else {}),
        }

    @property
    def simulator_id(self) -> str:
        """Key of this simulator's answers in the cache."""
        return digest(self.identity())[:16]

    async def answer(
        self, api: Api, arguments: Any, examples: Sequence[Sequence[str]] = ()
    ) -> ApiAnswer:
        """Return the model's answer. Return a failure if no attempt gave a usable answer, if the
        model refused the prompt, or if the form is MirrorAPI's and ``arguments`` not a mapping."""
        if self._form != "own" and not isinstance(arguments, Mapping):
            return ApiAnswer(answers.BAD_ARGUMENTS, "", "none", failure="arguments")
        failure, refused = "simulator", ""
        for attempt in range(ATTEMPTS):
            sampling = self._model.sampling
            if attempt:
                temperature = sampling.temperature or RETRY_TEMPERATURE
                sampling = replace(sampling, seed=sampling.seed + attempt, temperature=temperature)
            request = request_text(self._form, api, arguments, examples)
            chat = [
                {"role": "system", "content": self._system},
                {"role": "user", "content": request},
            ]
            try:
                completion = await self._model.ask(chat, sampling, schema=self._schema)
            except (PromptTooLong, PromptRefused):
                failure = "prompt"
                if not examples:
                    break
                examples = ()
                continue
            failure, refused = "simulator", completion.schema_refused
            answer = read_answer(completion.text, loose=self._form != "own")
            if answer is not None:
                # Use the value that a later run will read from the cache.
                error, response = json.loads(json.dumps(answer))
                return ApiAnswer(
                    error, response, "simulator", origin="simulator", schema_refused=refused
                )
        return ApiAnswer(FAILED, "", "simulator", failure=failure, schema_refused=refused)
