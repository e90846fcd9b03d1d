"""The result of an API call, the observation that the agent gets, and JSON of others within bounds
of length and depth."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from ace_ray.util.safe_loading import check_depth

Source = Literal["cache", "simulator", "real", "none"]

BAD_ARGUMENTS = "Tool input parse error..."
# Error texts are upstream's, which its status codes are read from.
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
_INVALID = "request invalid, data error"
_INVALID_CODE = 12


@dataclass(frozen=True, slots=True)
class Answered:
    """An API's answer in upstream's shape, and its source.

    Attributes:
        origin: the first maker of a cached answer: ``recorded`` (imported files), ``simulator`` or
            ``real``.
        failure: the reason why an API did not answer, "" if it did: ``arguments`` (not JSON within
            the bounds, or not an object in MirrorAPI's form), ``simulator`` (no usable answer in
            all attempts), ``prompt`` (too long, or refused by the template), ``real`` (refused or
            failed), ``no_backend``. Only ``simulator`` is recorded, for that simulator alone.
        schema_refused: why a simulator was asked without its schema (`Completion`).
    """

    error: str
    response: Any
    source: Source
    origin: str = ""
    failure: str = ""
    schema_refused: str = ""


def observation(answered: Answered) -> str:
    """Return the JSON text that the agent is shown, uncut: upstream's ``{"error", "response"}``."""
    return json.dumps({"error": answered.error, "response": answered.response})


def status_code(answered: Answered) -> int:
    """Return upstream's code of an observation (0, or 5 to 12). Only upstream's exact error texts
    have a code, so most errors count as 0."""
    if answered.error.startswith(_INVALID):
        return _INVALID_CODE
    return _CODES.get(answered.error, 0)


MAX_DEPTH = 64
# Longest JSON text of a call's arguments, in characters.
MAX_ARGUMENTS = 32_768


class Unusable(ValueError):
    """The text is not JSON within the bounds."""


def load(text: str, max_chars: int, *, floats: bool = False) -> Any:
    """Return the value of a JSON text. Raises `Unusable` for other text and beyond the bounds.

    NaN, infinities and numbers that are too large for a float become their text, so that all that
    is stored stays JSON. ``floats`` makes floats of them, as Python does.
    """
    if len(text) > max_chars:
        raise Unusable(f"longer than {max_chars:,} characters")
    try:
        value = _decoder(floats).decode(text)
        check_depth(value, MAX_DEPTH)
        return value
    except (ValueError, RecursionError) as error:
        raise Unusable(str(error) or type(error).__name__) from None


def first_object(text: str) -> dict[str, Any] | None:
    """Return the first JSON object in ``text`` that parses, among its first eight braces."""
    begin = -1
    for _ in range(8):
        begin = text.find("{", begin + 1)
        if begin < 0:
            return None
        try:
            value, _ = _decoder(False).raw_decode(text, begin)
            check_depth(value, MAX_DEPTH)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def arguments_of(arguments: Mapping[str, Any] | str) -> Any:
    """Return what upstream's server reads from a call's arguments, objects in the order given.

    Any JSON value has a key, ``[1]`` and ``null`` too. An empty text means no arguments. Raises
    `Unusable` for text that is not JSON, and beyond the bounds.
    """
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(dict(arguments))
        except (TypeError, ValueError, RecursionError) as error:
            raise Unusable(str(error)) from None
    return load(arguments, MAX_ARGUMENTS, floats=True) if arguments else {}


def shown_arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments as chat templates take them: an object of JSON values.

    Raises `Unusable` for anything else.
    """
    value = load(text, MAX_ARGUMENTS)
    if not isinstance(value, dict):
        raise Unusable(f"arguments that are a {type(value).__name__}")
    return value


def _finite(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits[:80]


@cache
def _decoder(floats: bool) -> json.JSONDecoder:
    if floats:
        return json.JSONDecoder()
    return json.JSONDecoder(parse_constant=str, parse_float=_finite)
