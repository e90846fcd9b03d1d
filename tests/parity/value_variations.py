"""What is done to one value: other types, other contents, other orders."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from call_variations import NotHere, ValueChange, pick

Rng = random.Random
_ODD_SPACES = "\t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000\u200b"
_ODD_LETTERS = "éßıİſΣςσǅﬁＡａ１²Ⅷ中文🙂\u0301\ufeff"
_CONTROL = "\x00\x01\x07\x08\x1b\x1f\x7f\x9f"
_DROPPED = " ,./-_*^"  # what the official comparison leaves out


def _of(*types: type) -> Callable[[ValueChange], ValueChange]:
    """Applies to values of exactly these types."""

    def decorate(change: ValueChange) -> ValueChange:
        def checked(value: Any, rng: Rng) -> Any:
            if type(value) not in types:
                raise NotHere
            return change(value, rng)

        return checked

    return decorate


def _spliced(text: str, rng: Rng, part: str) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + part + text[place:]


_number, _text, _list, _object = _of(int, float), _of(str), _of(list), _of(dict)


def _without(value: list[Any], rng: Rng) -> list[Any]:
    place = pick(rng, range(len(value)))
    return [*value[:place], *value[place + 1 :]]


def _shuffled(value: list[Any], rng: Rng) -> list[Any]:
    if len(value) < 2:
        raise NotHere
    return rng.choice([value[::-1], value[1:] + value[:1]])


def _key_missing(value: dict[Any, Any], rng: Rng) -> dict[Any, Any]:
    gone = pick(rng, list(value))
    return {key: item for key, item in value.items() if key != gone}


def _key_renamed(value: dict[Any, Any], rng: Rng) -> dict[Any, Any]:
    old = pick(rng, list(value))
    fresh = rng.choice([f"{old}x", str(old).swapcase(), 1, None, (old,), b"k"])
    return {fresh if key == old else key: item for key, item in value.items()}


def _punctuated(value: str, rng: Rng) -> str:
    if rng.random() < 0.5:
        return value.translate(str.maketrans("", "", _DROPPED))
    return _spliced(value, rng, rng.choice(_DROPPED))


def _as_number(value: str, rng: Rng) -> Any:
    return int(value) if value.isascii() and value.isdigit() else rng.choice([0, 1, 2.5])


VALUE_KINDS: dict[str, ValueChange] = {
    "number off": _number(lambda v, r: v + r.choice([1, -1, 10, 1000])),
    "number with a fraction": _number(lambda v, r: v + 0.5),
    "number as float": _of(int)(lambda v, r: float(v)),
    "number as integer": _of(float)(lambda v, r: int(v)),
    "number negated": _number(lambda v, r: -v),
    "number as text": _number(lambda v, r: r.choice(["{}", "{} kg", " {}", "{}.0"]).format(v)),
    "number as boolean": _number(lambda v, r: r.choice([True, False])),
    "number very large": _number(lambda v, r: 10 ** r.choice([30, 400, 4200])),
    "boolean flipped": _of(bool)(lambda v, r: not v),
    "boolean as text": _of(bool)(lambda v, r: r.choice(["true", "false", "True", "False", "yes"])),
    "boolean as number": _of(bool)(lambda v, r: r.choice([0, 1, 1.0, 2])),
    "true or false in words": lambda v, r: r.choice(["true", "false"]),
    "text longer": _text(lambda v, r: r.choice(["the {} today", "{}{}", "{}x"]).format(v, v)),
    "text shorter": _text(lambda v, r: pick(r, [v[1:], v[:-1], v[: len(v) // 2]])),
    "another text": _text(lambda v, r: r.choice(["", "x", "none", "...", v[::-1]])),
    "text in another case": _text(lambda v, r: r.choice([v.upper(), v.lower(), v.title()])),
    "text punctuated": _text(_punctuated),
    "text with odd spaces": _text(lambda v, r: _spliced(v, r, r.choice(_ODD_SPACES))),
    "text with odd letters": _text(lambda v, r: _spliced(v, r, r.choice(_ODD_LETTERS))),
    "text with quotes": _text(lambda v, r: _spliced(v, r, r.choice(["'", '"', "’", "\\", "''"]))),
    "text with brackets": _text(lambda v, r: _spliced(v, r, r.choice(["[", "]", "[1]", "(", "}"]))),
    "text with a control character": _text(lambda v, r: _spliced(v, r, r.choice(_CONTROL))),
    "text with a lone surrogate": _text(lambda v, r: _spliced(v, r, r.choice("\ud800\udfff"))),
    "text as number": _text(_as_number),
    "text as list": _text(lambda v, r: r.choice([[v], list(v), v.split()])),
    "list reordered": _list(_shuffled),
    "list shorter": _list(_without),
    "list longer": _list(lambda v, r: [*v, r.choice([*v, "x", 1, None, [], {}])]),
    "list as tuple": _list(lambda v, r: tuple(v)),
    "list as text": _list(lambda v, r: r.choice([str(v), ", ".join(map(str, v))])),
    "list as object": _list(lambda v, r: r.choice([dict(enumerate(v)), {"items": v}, {}])),
    "list of one's elements": _list(lambda v, r: pick(r, v)),
    "object with a key less": _object(_key_missing),
    "object with a key more": _object(lambda v, r: {**v, r.choice(["more", "", 1]): 1}),
    "object with another key": _object(_key_renamed),
    "object in another order": _object(lambda v, r: dict(r.sample(list(v.items()), len(v)))),
    "object as list": _object(
        lambda v, r: r.choice([list(v), list(v.values()), [v], [*v.items()]])
    ),
    "object as text": _object(lambda v, r: str(v)),
    "any as none": lambda v, r: None,
    "any in a list": lambda v, r: r.choice([[v], [v, v], [[v]]]),
    "any in a tuple": lambda v, r: (v,),
    "any in an object": lambda v, r: {r.choice(["value", "a"]): v},
    "any as text": lambda v, r: str(v),
    "any empty": lambda v, r: r.choice(["", [], {}, (), 0, False]),
    "any of another kind": lambda v, r: r.choice(
        [1, 2.5, "x", True, None, ["x"], {"x": 1}, b"x", 2j]
    ),
}
