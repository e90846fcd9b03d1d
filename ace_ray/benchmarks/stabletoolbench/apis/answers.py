"""The result of an API call, and the observation that the agent gets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

Source = Literal["cache", "simulator", "real", "none"]

BAD_ARGUMENTS = "Tool input parse error..."
TIMEOUT = "Timeout error..."
"""Error texts are upstream's, which its status codes are read from."""
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
    """An API's answer in upstream's shape, and where it came from.

    ``origin`` is who first made an answer that came from the cache: ``recorded`` for imported
    files, else ``simulator`` or ``real``.

    ``failure`` says that this is no answer of an API, and why: ``arguments`` (no JSON within the
    bounds, or not an object where MirrorAPI's form needs one), ``simulator`` (no usable answer in
    all attempts), ``prompt`` (too long for the simulator, or refused by its template), ``real``
    (refused or failed), or ``no_backend`` (none was left to ask). A failure is never cached as an
    answer; that a simulator gave no usable one is kept for that simulator.

    ``schema_refused`` is why a simulator was asked without its schema (`Completion`).
    """

    error: str
    response: Any
    source: Source
    origin: str = ""
    failure: str = ""
    schema_refused: str = ""


def observation(answered: Answered) -> str:
    """The JSON text that the agent is shown, uncut: upstream's ``{"error", "response"}``."""
    return json.dumps({"error": answered.error, "response": answered.response})


def status_code(answered: Answered) -> int:
    """Upstream's code of an observation (0, or 5 to 12), as its agent loop reads it: an error is
    known by upstream's exact texts only, so that most errors count as 0."""
    if answered.error.startswith(_INVALID):
        return _INVALID_CODE
    return _CODES.get(answered.error, 0)
