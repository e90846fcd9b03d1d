"""What of an answer a judge gets to see: bounded, and unable to pose as anything but data.

Under ace_ray's own wording the material is one line of JSON, so that nothing in it can end the data
or begin a line. Everywhere the marks with which chat templates separate turns are broken up: an
endpoint or engine may turn such text into control tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.results.details import chain

_MARKS = re.compile(r"<(?=[|/!]|\w{1,40}(?:\|)?>)|\[(?=/?[A-Z_]{3,40}\])")
_TOOL_KEYS = ("name", "arguments", "response")
_ESCAPES = {
    "<": "\\u003c",
    "[": "\\u005b",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
    "\x85": "\\u0085",
}
_IN_JSON = re.compile(rf"{_MARKS.pattern}|[\u2028\u2029\x85]|[\ud800-\udfff]")


def one_line(value: Any) -> str:
    """JSON text of one line in which no chat template finds its own marks."""
    text = json.dumps(value, ensure_ascii=False)
    return _IN_JSON.sub(lambda mark: _ESCAPES.get(mark[0]) or f"\\u{ord(mark[0]):04x}", text)


def broken_up(text: str) -> str:
    """``text`` with a space inside of what a chat template could take for its own marks."""
    text = text.encode("utf-8", "replace").decode()
    return _MARKS.sub(lambda mark: f"{mark[0]} ", text)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters and a remark; the end stays, since a verdict may hang on it."""
    if len(text) <= limit:
        return text
    head = 2 * limit // 3
    return f"{text[:head]} ... [{len(text) - limit} characters left out] ... {text[head - limit :]}"


def trace(answer: Mapping[str, Any], limit: int) -> list[dict[str, Any]]:
    """The nodes of a converted answer as a flat list within ``limit`` characters.

    Long texts are cut first, all to the same length; if there are still too many nodes, those in
    the middle are left out and counted.
    """
    steps = [_step(node) for node in chain(answer) if node.get("role") in ("tool", "assistant")]
    for each in (limit // 4, limit // 16, limit // 64):
        short: list[dict[str, Any]] = [{k: cut(v, each) for k, v in step.items()} for step in steps]
        if _size(short) <= limit:
            return short
    kept = max(1, limit * len(short) // _size(short) // 2)
    if 2 * kept >= len(short):
        return short
    return [*short[:kept], {"left_out": len(short) - 2 * kept}, *short[-kept:]]


def _step(node: Mapping[str, Any]) -> dict[str, str]:
    message = node.get("message")
    role = str(node.get("role"))
    if role == "assistant" or not isinstance(message, Mapping):
        return {"role": role, "message": _text(message)}
    return {"role": role} | {key: _text(message.get(key)) for key in _TOOL_KEYS}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""


def _size(steps: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(key) + len(str(value)) + 6 for step in steps for key, value in step.items())
