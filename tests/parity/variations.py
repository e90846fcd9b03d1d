"""Variations of gold and wrong outputs for every row, each of a named kind.

Deterministic: seed, row and number decide. Harmless: the official evaluator runs operations, so
only operations on literals are put in. Where quotes go, a gold text can become an operation on
names (``Paris - London``); the child refuses to run those.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from agent_variations import AGENT_KINDS
from call_variations import CALL_KINDS, NotHere, in_place, written
from special_variations import SPECIAL_KINDS
from syntax_variations import SYNTAX_KINDS
from text_variations import TEXT_KINDS
from value_variations import VALUE_KINDS

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.types import Entry

Kind = Callable[[Entry, random.Random], Any]


class Variation(NamedTuple):
    """An output (None for a missing one; for agents ``(state, process)``) and what was done."""

    kind: str
    output: Any


def variations(entry: Entry, count: int, seed: int = 0) -> Iterator[Variation]:
    """``count`` variations of one row: its kinds in an order of its own, again and again."""
    rng = random.Random(f"{seed}:{':'.join(entry.key)}")
    chosen = kinds(entry.category)
    names = list(chosen)
    while True:
        rng.shuffle(names)
        for name in names:
            try:
                output = chosen[name](entry, rng)
            except NotHere:
                continue
            if not count:
                return
            count -= 1
            yield Variation(name, output)


def kinds(category: str) -> Mapping[str, Kind]:
    """What is done to the rows of a category, by name."""
    if category.startswith("agent_"):
        return AGENT_KINDS
    return {**(SPECIAL_KINDS if category.startswith("special_") else _CALLS), **_TEXTS}


def _text_kind(change: Callable[[str, random.Random], str | None]) -> Kind:
    return lambda entry, rng: change(render_gold(entry), rng)


_VALUES = {**VALUE_KINDS, **SYNTAX_KINDS}
_CALLS: dict[str, Kind] = {
    **{f"value: {name}": in_place(change, inside=False) for name, change in _VALUES.items()},
    **{f"inner value: {name}": in_place(change, inside=True) for name, change in _VALUES.items()},
    **{f"calls: {name}": written(change) for name, change in CALL_KINDS.items()},
}
_TEXTS: dict[str, Kind] = {f"text: {name}": _text_kind(c) for name, c in TEXT_KINDS.items()}
