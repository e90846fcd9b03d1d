"""Results of API calls, observations for the agent, and a bounded reader of untrusted JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from ace_ray.util.safe_loading import check_depth

Source = Literal["cache", "simulator", "real", "none"]

BAD_ARGUMENTS = "Tool input parse error..."
# Upstream's error texts, from which it derives status codes.
TIMEOUT = "Timeout error..."
_CODES = {
    TIMEOUT: 5,
    "API not working error...": 6,
    "Unauthorized error...": 7,
    "Unsubscribed error...": 8,
    "Too many requests error...": 9,
    "Rate limit per minute error...": 10,
    "Message error...": 11,
}
_INVALID, _INVALID_CODE = "request invalid, data error", 12


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """Answer of an API in upstream's form, and its source.

    Attributes:
        origin: the backend that first gave the answer: ``recorded`` (imported files), ``simulator``
            or ``real``.
        failure: why there is no answer, or "": ``arguments`` (they are not JSON within the bounds,
            or not an object, which MirrorAPI needs), ``simulator`` (no attempt gave a usable
            answer), ``prompt`` (it was too long, or refused), ``real`` (the request was refused or
            failed, or its answer is not usable), or ``no_backend`` (only the cache is in use). The
            cache records only the failure ``simulator``, for the simulator that failed.
        schema_refused: the reason why the simulator's answer ignores the schema, or "".
    """

    error: str
    response: Any
    source: Source
    origin: str = ""
    failure: str = ""
    schema_refused: str = ""


def observation(answered: ApiAnswer) -> str:
    """Return the agent's observation, uncut: upstream's ``{"error", "response"}`` as JSON text."""
    return json.dumps({"error": answered.error, "response": answered.response})


def status_code(error: str) -> int:
    """Return upstream's status code of an observation with ``error``. Upstream's own error texts
    have the codes 5 to 12. Other errors have the code 0, like an answer without an error."""
    return _INVALID_CODE if error.startswith(_INVALID) else _CODES.get(error, 0)


def error_text(error: Any) -> str:
    """Return an answer's field ``error`` as text; "" if it is null."""
    if error is None:
        return ""
    return error if isinstance(error, str) else json.dumps(error)


def answer_text(error: Any, response: Any) -> str:
    """Return an answer as the cache stores it."""
    tree = {"error": error_text(error), "response": response}
    return json.dumps(tree, separators=(",", ":"))


MAX_DEPTH = 64
# Maximum characters of a call's arguments as JSON text.
MAX_ARGUMENTS = 32_768


class UnusableJson(ValueError):
    """The text is not JSON within the bounds."""


def parse_json(text: str, max_chars: int, *, floats: bool = False) -> Any:
    """Parse a JSON text. Raises `UnusableJson` if it is not JSON or exceeds the bounds.

    NaN, infinities and numbers that are too large for a float become strings, so that the value can
    be stored as JSON. If ``floats`` is true, such numbers stay floats, as in Python."""
    if len(text) > max_chars:
        raise UnusableJson(f"longer than {max_chars:,} characters")
    try:
        value = (_WITH_FLOATS if floats else _STORABLE).decode(text)
        check_depth(value, MAX_DEPTH)
        return value
    except (ValueError, RecursionError) as error:
        raise UnusableJson(str(error) or type(error).__name__) from None


def first_object(text: str) -> dict[str, Any] | None:
    """Return the first JSON object in ``text`` that parses; only eight opening braces are tried."""
    begin = -1
    for _ in range(8):
        begin = text.find("{", begin + 1)
        if begin < 0:
            return None
        try:
            value, _ = _STORABLE.raw_decode(text, begin)
            check_depth(value, MAX_DEPTH)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def arguments_of(arguments: str) -> Any:
    """Return a call's arguments as upstream's server reads them; objects keep their order of keys.

    Any JSON value is valid, such as ``[1]`` or ``null``. Empty text means no arguments. Raises
    `UnusableJson` for text that is not JSON or exceeds the bounds."""
    return parse_json(arguments, MAX_ARGUMENTS, floats=True) if arguments else {}


def object_arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments as a JSON object, which chat templates need.

    Raises `UnusableJson` for any other JSON value, and for text that is not JSON."""
    value = parse_json(text, MAX_ARGUMENTS)
    if not isinstance(value, dict):
        raise UnusableJson(f"arguments that are a {type(value).__name__}")
    return value


def _parse_float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits[:80]


_STORABLE = json.JSONDecoder(parse_constant=str, parse_float=_parse_float)
_WITH_FLOATS = json.JSONDecoder()
