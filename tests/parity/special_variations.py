"""What is done to the message of a special row."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from typing import Any

from call_variations import NotHere

from ace_ray.benchmarks.acebench.gold import LIMITS, render_gold
from ace_ray.types import Entry

Rng = random.Random
SpecialKind = Callable[[Entry, Rng], str]
_PHRASES = [
    "Missing necessary parameters", "There is incorrect value", "the limitations of the function",
]  # fmt: skip


def _named(entry: Entry) -> list[str]:
    """What the message has to name: functions and parameters, or values."""
    if not isinstance(entry.gold, dict):
        raise NotHere
    return [str(part) for name, parts in entry.gold.items() for part in (name, *parts)]


def _one_named(change: Callable[[str, Rng], str]) -> SpecialKind:
    def vary(entry: Entry, rng: Rng) -> str:
        part = rng.choice(_named(entry))
        return render_gold(entry).replace(part, change(part, rng))

    return vary


def _phrase(change: Callable[[str, Rng], str]) -> SpecialKind:
    def vary(entry: Entry, rng: Rng) -> str:
        text = render_gold(entry)
        for phrase in _PHRASES:
            text = text.replace(phrase, change(phrase, rng))
        return text

    return vary


def _everything(entry: Entry, rng: Rng) -> str:
    """All phrases and all names of the row."""
    functions: Any = entry.data["function"]
    return " ".join([*_PHRASES, str(functions), str(entry.data["question"])])


def _names_only(entry: Entry, rng: Rng) -> str:
    names = _named(entry)
    return f"{rng.choice(_PHRASES)}: {', '.join(rng.sample(names, rng.randint(0, len(names))))}"


def _call(entry: Entry, rng: Rng) -> str:
    return f"[{entry.data['function'][0]['name']}(a='x', b=1)]"


SPECIAL_KINDS: dict[str, SpecialKind] = {
    "message: gold": lambda entry, rng: render_gold(entry),
    "message: bare": lambda entry, rng: render_gold(entry).strip('["]'),
    "message: a name missing": _one_named(lambda part, rng: ""),
    "message: a name altered": _one_named(
        lambda part, rng: rng.choice(
            [
                f"{part}x",
                part[1:],
                part[:-1],
                part.upper(),
                part.replace("_", " "),
                "x",
                unicodedata.normalize("NFD", part),
            ]
        )
    ),
    "message: a name twice": _one_named(lambda part, rng: f"{part}, {part}"),
    "message: a name in quotes": _one_named(lambda part, rng: f"`{part}`"),
    "message: phrase altered": _phrase(
        lambda phrase, rng: rng.choice(
            [
                phrase.lower(),
                phrase.upper(),
                phrase.replace(" ", "  "),
                phrase.replace(" ", "\n"),
                phrase.replace(" ", "\u00a0"),
                phrase[1:],
                phrase[:-1],
                "",
            ]
        )
    ),
    "message: another phrase": _phrase(lambda phrase, rng: rng.choice(_PHRASES)),
    "message: phrases and names": _names_only,
    "message: everything at once": _everything,
    "message: refusal": lambda entry, rng: LIMITS,
    "message: refusal and gold": lambda entry, rng: f"{LIMITS} {render_gold(entry)}",
    "message: question back": lambda entry, rng: f"{rng.choice(_PHRASES)} {entry.data['question']}",
    "message: a call": _call,
    "message: a call beside": lambda entry, rng: f"{_call(entry, rng)} {render_gold(entry)}",
    "message: in thought": lambda entry, rng: (
        f"<think>{render_gold(entry)}</think>{_call(entry, rng)}"
    ),
    "message: odd characters": lambda entry, rng: (
        rng.choice(["\x00", "\x1b", "\ud800", "\ufeff"]) + render_gold(entry)
    ),
}
