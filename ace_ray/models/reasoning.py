"""Separate the reasoning of a model from its answer."""

from __future__ import annotations

import re
from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"
_SPACE = re.compile(r"\s*+")


class Split(NamedTuple):
    """Reasoning and answer. ``truncated``: the reasoning did not end, so the answer is empty."""

    reasoning: str
    answer: str
    truncated: bool


def split_think(text: str, *, opened: bool = False) -> Split:
    """Split ``<think>`` blocks at the start of ``text`` from the answer.

    Only leading blocks count, since an argument in the answer may contain the tag. ``opened``: the
    prompt ended with an open block, as some chat templates do. If ``</think>`` comes without an
    opening tag, the text before it is reasoning. Exception: a tag within a line and after a ``[``
    may be in an argument, and is part of the answer."""
    reasoning: list[str] = []
    body = text
    if not body.lstrip().startswith(OPEN) and (opened or _has_unopened_close(body)):
        body = OPEN + body
    at = _skip_space(body, 0)
    while body.startswith(OPEN, at):  # by index: copies of the rest would take quadratic time
        begin = at + len(OPEN)
        end = body.find(CLOSE, begin)
        if end < 0:
            reasoning.append(body[begin:].strip())
            return Split("\n".join(reasoning), "", truncated=True)
        reasoning.append(body[begin:end].strip())
        at = _skip_space(body, end + len(CLOSE))
    if not reasoning:
        return Split("", text, False)
    return Split("\n".join(reasoning), body[at:], truncated=False)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _has_unopened_close(text: str) -> bool:
    before, close, after = text.partition(CLOSE)
    if not close or OPEN in before:
        return False
    if "[" not in before:
        return True
    begins = before.rpartition("\n")[2].strip(" \t") == ""
    ends = after.partition("\n")[0].strip(" \t\r") == ""
    return begins or ends


def may_think(template: str, prompt: str) -> bool:
    """Return whether the answer to ``prompt`` may begin with a block of reasoning.

    The template must contain ``</think>``. If the prompt ends with this tag, reasoning is off."""
    return CLOSE in template and not closes_thinking(prompt)


def closes_thinking(prompt: str) -> bool:
    """Return whether ``prompt`` ends with a closed block of reasoning."""
    return prompt.rstrip().endswith(CLOSE)
