"""Separate a model's reasoning from its answer, before anything is scored."""

from __future__ import annotations

import re
from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"
_SPACE = re.compile(r"\s*+")


class Split(NamedTuple):
    """``truncated``: the reasoning never ended, so there is no answer."""

    reasoning: str
    answer: str
    truncated: bool


def split_think(text: str, *, opened: bool = False) -> Split:
    """Take ``<think>`` blocks at the start of ``text`` out of it.

    Only leading blocks count: a tag inside an answer's string argument is part of the answer.
    ``opened`` says that the prompt itself ended in an open block, as some chat templates do. A
    closing tag without an opening one is read the same way when it begins or ends its line, as
    models write it, or when no ``[`` stands before it; else it may be inside an answer's argument.
    """
    reasoning: list[str] = []
    rest = text
    if not rest.lstrip().startswith(OPEN) and (opened or _closes_unopened(rest)):
        rest = OPEN + rest
    at = _behind_space(rest, 0)
    while rest.startswith(OPEN, at):  # by places: copies of what is left would be quadratic
        begin = at + len(OPEN)
        end = rest.find(CLOSE, begin)
        if end < 0:
            reasoning.append(rest[begin:].strip())
            return Split("\n".join(reasoning), "", truncated=True)
        reasoning.append(rest[begin:end].strip())
        at = _behind_space(rest, end + len(CLOSE))
    if not reasoning:
        return Split("", text, False)
    return Split("\n".join(reasoning), rest[at:], truncated=False)


def _behind_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _closes_unopened(text: str) -> bool:
    before, close, after = text.partition(CLOSE)
    if not close or OPEN in before:
        return False
    if "[" not in before:
        return True
    begins = before.rpartition("\n")[2].strip(" \t") == ""
    ends = after.partition("\n")[0].strip(" \t\r") == ""
    return begins or ends


def may_think(template: str, prompt: str) -> bool:
    """Whether the answer to ``prompt``, written by the chat ``template``, may begin with a block of
    reasoning: such templates know its end, and write an empty block where thinking is off."""
    return CLOSE in template and not closes_thinking(prompt)


def closes_thinking(prompt: str) -> bool:
    """Whether ``prompt`` ends in a closed block of reasoning, so that the answer begins at once."""
    return prompt.rstrip().endswith(CLOSE)
