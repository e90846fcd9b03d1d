"""Which answers of real APIs are good enough to be used, kept and shown.

``official`` is upstream's ``check_result`` (``server/main.py``): an answer counts by what its text
contains, so that one that mentions "parameter" or the number 500 is thrown away. ``fixed`` goes by
the HTTP status.
"""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.answers import TIMEOUT, Rules

_ACCEPTED = "got an unexpected keyword argument"
_REFUSED = (
    "rate limit",
    "time out",
    "timed out",
    "does not exist",
    "404",
    "504",
    "500",
    "internal error",
    "authoriz",
    "authenticat",
    "unsubscribe",
    "blocked",
    "401",
    "403",
    "credential",
    "disabled for your subscription",
    "invalid consumer key",
    "parameter",
    "parse",
    "is not defined",
)
"""In any case. "API doesn't exists" is looked for by upstream too, in text made lower-case, where
only its last comparison (below) can find it."""
_REFUSED_AS_IS = ("Service Not Found", "ACCESS_DENIED", "status_code=50", "status_code=429")
_NO_API = "{'message': \"API doesn't exists\"}"
_ABOUT_ARGUMENTS = (400, 422)
_BY_STATUS = {
    401: "Unauthorized error...",
    402: "Unsubscribed error...",
    403: "Unauthorized error...",
    404: "API not working error...",
    408: TIMEOUT,
    429: "Too many requests error...",
    504: TIMEOUT,
}


def accepts(status: int, error: str, response: Any, rules: Rules) -> bool:
    """Whether an answer is used; otherwise the next backend is asked.

    ``fixed`` takes success, and what an API says of the arguments (400, 422).
    """
    if rules == "fixed":
        return status in _ABOUT_ARGUMENTS or not error
    if error:
        return False
    text = str(response)
    lower = text.lower()
    if _ACCEPTED in lower:
        return True
    if any(part in lower for part in _REFUSED) or any(part in text for part in _REFUSED_AS_IS):
        return False
    return bool(text) and text != _NO_API


def error_of_status(status: int) -> str:
    """The error text, in upstream's words, for an HTTP status; "" for success."""
    if 200 <= status < 300:
        return ""
    return _BY_STATUS.get(status, "Message error...")
