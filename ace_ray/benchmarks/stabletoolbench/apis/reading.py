"""What a simulator's answer says: ``{"error": text, "response": anything}``, read with tolerance.

The model is not trusted: its text is bounded before it is looked at, and nothing in it is executed.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.values import (
    MAX_DEPTH,
    Unusable,
    first_object,
    load,
    nesting,
)

MAX_CHARS = 65_536
_FENCED = re.compile(r"```(?:json|JSON)?+(.*?)```", re.DOTALL)
_ERROR = re.compile(r'"error"\s*+:\s*+"([^"]*+)"\s*+,\s*+"response"\s*+:\s*+"')


def read_answer(text: str, *, loose: bool = False) -> tuple[str, Any] | None:
    """(error, response) of a simulator's answer, None where it has none.

    Taken are the whole text, the first fenced block, or the first object in it. The object needs
    an error or a response that is not empty. ``loose``: as upstream's MirrorAPI servers do, a text
    that is no JSON still counts where it begins an error and a response in quotes; the response is
    then the rest of the text.
    """
    if len(text) > MAX_CHARS or nesting(text) > MAX_DEPTH:
        return None
    text = text.strip()
    fenced = _FENCED.search(text)
    for candidate in (text, fenced[1].strip() if fenced else ""):
        try:
            return _said(load(candidate, MAX_CHARS))
        except Unusable:
            continue
    found = first_object(text)
    if found is not None and ("error" in found or "response" in found):
        return _said(found)
    match = _ERROR.search(text) if loose else None
    return _said({"error": match[1], "response": text[match.end() :]}) if match else None


def _said(value: Any) -> tuple[str, Any] | None:
    if not isinstance(value, dict):
        return None
    error, response = value.get("error"), value.get("response")
    error = "" if error is None else error if isinstance(error, str) else json.dumps(error)
    if not error.strip() and response in (None, ""):
        return None
    return error, "" if response is None else response
