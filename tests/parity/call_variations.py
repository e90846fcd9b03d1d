"""What is done to the calls of a gold answer: names, arguments, order, number."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.gold import alternatives, function_name
from ace_ray.types import Entry

Args = list[tuple[str, Any]]
"""Keywords and values. The keyword ``""`` stands for a positional argument, ``**`` for a spread."""
Calls = list[tuple[str, Args]]
Change = Callable[[Calls, Entry, random.Random], Calls]
ValueChange = Callable[[Any, random.Random], Any]


class NotHere(Exception):
    """This kind of variation does not apply to this row."""


class Source:
    """A value that is written as the given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def pick(rng: random.Random, items: Sequence[Any]) -> Any:
    """One of the items. Raises `NotHere` when there is none."""
    if not items:
        raise NotHere
    return rng.choice(items)


def gold(entry: Entry, alternative: int = 0) -> Calls:
    """The calls of a gold answer, lists that may be changed."""
    answer = alternatives(entry)[alternative]
    return [(function_name(entry, key), list(args.items())) for key, args in answer.items()]


def source(calls: Calls) -> str:
    return "[" + ", ".join(f"{name}({', '.join(map(_argument, a))})" for name, a in calls) + "]"


def _argument(pair: tuple[str, Any]) -> str:
    key, value = pair
    if key == "**":
        return f"**{value!r}"
    return f"{key}={value!r}" if key else repr(value)


def written(change: Change) -> Callable[[Entry, random.Random], str]:
    """The variation that ``change`` makes of a row, as an output."""
    return lambda entry, rng: source(change(gold(entry), entry, rng))


def in_place(change: ValueChange, *, inside: bool) -> Callable[[Entry, random.Random], str]:
    """The variation with one argument changed; ``inside``: one value in a list or an object."""

    def vary(entry: Entry, rng: random.Random) -> str:
        calls = gold(entry)
        places = [(args, n) for _, args in calls for n in range(len(args))]
        rng.shuffle(places)
        for args, n in places:
            key, value = args[n]
            try:
                args[n] = (key, _inside(value, change, rng) if inside else change(value, rng))
            except NotHere:
                continue
            return source(calls)
        raise NotHere

    return vary


def _inside(value: Any, change: ValueChange, rng: random.Random) -> Any:
    places: list[Any] = []
    if isinstance(value, dict):
        places = list(value)
    elif isinstance(value, list):
        places = list(range(len(value)))
    rng.shuffle(places)
    for place in places:
        deeper = isinstance(value[place], (dict, list)) and value[place] and rng.random() < 0.6
        try:
            changed = _inside(value[place], change, rng) if deeper else change(value[place], rng)
        except NotHere:
            continue
        copy = value.copy()
        copy[place] = changed
        return copy
    raise NotHere


def _at(calls: Calls, rng: random.Random, *, with_args: bool = False) -> int:
    places = [n for n, (_, args) in enumerate(calls) if args or not with_args]
    return int(pick(rng, places))


def _several(calls: Calls) -> None:
    if len(calls) < 2:
        raise NotHere


def _other_alternative(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
    return gold(entry, pick(rng, range(1, len(alternatives(entry)))))


def _dropped(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
    del calls[_at(calls, rng)]
    return calls


def _doubled(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
    calls.insert(rng.randint(0, len(calls)), rng.choice(calls))
    return calls


def _reversed(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
    _several(calls)
    return calls[::-1]


def _copied_over(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
    """One call in place of another of the same name: one good call for two gold ones."""
    pairs = [(a, b) for a in range(len(calls)) for b in range(len(calls))]
    one, other = pick(rng, [(a, b) for a, b in pairs if a != b and calls[a][0] == calls[b][0]])
    calls[one] = calls[other]
    return calls


def _swapped(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
    _several(calls)
    (a, first), (b, second), *rest = rng.sample(calls, len(calls))
    return [(a, second), (b, first), *rest]


def _renamed(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
    place = _at(calls, rng)
    name, args = calls[place]
    names = [
        name + "x", name[:-1] or "x", name.swapcase(), name + "_1", name + "_12", f"api.{name}",
        f"f().{name}", f"'s'.{name}", "f()", "(lambda: 1)", f"{name}[0]", f"{name}.run", "查询",
        f"{name} ", name[:1] + "-" + name[1:], f"_{name}", _fullwidth(name),
        name.rstrip("0123456789").removesuffix("_"),
    ]  # fmt: skip
    calls[place] = (rng.choice(names), args)
    return calls


def _other_function(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
    place = _at(calls, rng)
    names = [f["name"] for f in entry.data["function"] if f["name"] != calls[place][0]]
    calls[place] = (pick(rng, names), calls[place][1])
    return calls


def _fullwidth(name: str) -> str:
    """The name in letters that Python reads as the plain ones."""
    return "".join(chr(ord(c) + 0xFEE0) if c.isascii() and c.isalpha() else c for c in name)


def _on_args(change: Callable[[Args, Any, random.Random], Args], *, some: bool = True) -> Change:
    def vary(calls: Calls, entry: Entry, rng: random.Random) -> Calls:
        place = _at(calls, rng, with_args=some)
        name, args = calls[place]
        schemas = [f for f in entry.data["function"] if f["name"] == name]
        calls[place] = (name, change(args, schemas[0] if schemas else {}, rng))
        return calls

    return vary


def _unoffered(args: Args, schema: Any, rng: random.Random) -> Args:
    """A parameter of the function that the gold answer does not give."""
    properties = schema.get("parameters", {}).get("properties", {})
    name = pick(rng, [key for key in properties if key not in dict(args)])
    return [*args, (name, rng.choice(["x", 1, True, ["x"], {"a": 1}]))]


def _optional(args: Args, schema: Any, rng: random.Random) -> Args:
    required = schema.get("parameters", {}).get("required", [])
    if all(key in required for key, _ in args):
        raise NotHere
    return [(key, value) for key, value in args if key in required]


def _rekeyed(args: Args, schema: Any, rng: random.Random) -> Args:
    n = rng.randrange(len(args))
    key = args[n][0]
    fresh = rng.choice([key + "x", key.swapcase(), _fullwidth(key), f"{key} ", "class", f"'{key}'"])
    return [*args[:n], (fresh, args[n][1]), *args[n + 1 :]]


def _repeated(args: Args, schema: Any, rng: random.Random) -> Args:
    key, value = rng.choice(args)
    extra = (key, rng.choice([value, "x", None, 1]))
    return [extra, *args] if rng.random() < 0.5 else [*args, extra]


CALL_KINDS: dict[str, Change] = {
    "gold": lambda calls, entry, rng: calls,
    "another alternative": _other_alternative,
    "one missing": _dropped,
    "one twice": _doubled,
    "reversed": _reversed,
    "one in place of another": _copied_over,
    "arguments swapped": _swapped,
    "renamed": _renamed,
    "another candidate function": _other_function,
    "argument missing": _on_args(lambda a, s, r: r.sample(a, len(a) - 1)),
    "optional arguments missing": _on_args(_optional),
    "no arguments": _on_args(lambda a, s, r: []),
    "arguments in another order": _on_args(lambda a, s, r: r.sample(a, len(a))),
    "argument unknown": _on_args(lambda a, s, r: [*a, ("unknown", 1)], some=False),
    "argument that gold lacks": _on_args(_unoffered, some=False),
    "argument renamed": _on_args(_rekeyed),
    "argument repeated": _on_args(_repeated),
    "first argument positional": _on_args(lambda a, s, r: [("", a[0][1]), *a[1:]]),
    "arguments positional": _on_args(lambda a, s, r: [("", value) for _, value in a]),
    "extra positional argument": _on_args(lambda a, s, r: [("", 1), *a], some=False),
    "positional after keyword": _on_args(lambda a, s, r: [*a, ("", 1)]),
    "starred argument": _on_args(lambda a, s, r: [("", Source("*[1]")), *a], some=False),
    "arguments spread": _on_args(lambda a, s, r: [("**", dict(a))]),
    "spread beside": _on_args(lambda a, s, r: [*a, ("**", {"more": 1})], some=False),
}
