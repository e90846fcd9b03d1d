"""Variations of the gold answer of an ACEBench row, each of a named kind.

Deterministic: the seed, the row and the number decide. Harmless: the official evaluator runs
operations, so only operations on literals are put in. Where quotes go, a gold text can become an
operation on names (``Paris - London``); the child process refuses to run it.
"""

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.gold import (
    LIMITS,
    alternatives,
    function_name,
    gold_state,
    mangled_state,
    render_gold,
)
from ace_ray.types import Entry

Rng = random.Random
Kind = Callable[[Entry, Rng], Any]
Args = list[tuple[str, Any]]
"""Keywords and values. The keyword ``""`` stands for a positional argument, ``**`` for a spread."""
Calls = list[tuple[str, Args]]
ValueChange = Callable[[Any, Rng], Any]


class NotHere(Exception):
    """This kind of variation does not apply to this row."""


class Source:
    """A value that is written as the given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def variations(entry: Entry, count: int, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield ``count`` variations of one row: kind and output, which is None for a missing one.

    An agent's output is ``(state, process)``. Kinds come in a random order, again and again.
    """
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
            yield name, output


def kinds(category: str) -> Mapping[str, Kind]:
    """Return the kinds of variation of a category's rows, by name."""
    if category.startswith("agent_"):
        return AGENT_KINDS
    return {**(SPECIAL_KINDS if category.startswith("special_") else _CALLS), **_TEXTS}


def pick(rng: Rng, items: Sequence[Any]) -> Any:
    if not items:
        raise NotHere
    return rng.choice(items)


# Values: other types, contents and orders.

_ODD = (
    "\t\n\r\x0b\x1c\x85\xa0\u2028\u3000\u200béßİςﬁＡ１²中🙂\u0301\ufeff\x00\x1b\x7f\ud800'\"’\\[](}"
)
_DROPPED = " ,./-_*^"  # the official comparison leaves these out


def _of(*types: type) -> Callable[[ValueChange], ValueChange]:
    """Limit a change to values of exactly these types."""

    def only(value: Any) -> Any:
        if type(value) not in types:
            raise NotHere
        return value

    return lambda change: lambda value, rng: change(only(value), rng)


_text, _list, _object = _of(str), _of(list), _of(dict)


def _number(change: ValueChange) -> ValueChange:
    return _of(int, float)(lambda v, r: change(pick(r, [v] if abs(v) < 1e18 else []), r))


def spliced(text: str, rng: Rng, part: str) -> str:
    index = rng.randint(0, len(text))
    return text[:index] + part + text[index:]


def _key_changed(value: dict[Any, Any], rng: Rng) -> dict[Any, Any]:
    old = pick(rng, list(value))
    fresh = rng.choice([f"{old}x", str(old).swapcase(), 1, None, (old,), b"k"])
    result = {(fresh if key == old else key): item for key, item in value.items()}
    return rng.choice([result, {k: v for k, v in value.items() if k != old}, {**value, "more": 1}])


def _quoted(text: Any, rng: Rng) -> Source:
    """The same text in another notation, which may or may not stay the same text."""
    plain = repr(text)[1:-1]
    return Source(
        rng.choice([
            '"{}"', "'{}'", "'''{}'''", "r'{}'", "f'{}'", "b'{}'", "“{}”", "`{}`", "''{}''",
            '\\"{}\\"', "'{}", "{}'", "('{}')", "'{}' ''", "'{}\\\n'", "'{}\n'", "'\\d{}'",
            "'\\N{{BULLET}}{}'", "'\\N{{no}}{}'", "'{}\\xg'", "'{}\\u12'", "'\\ud800{}'", "'\\0{}'",
        ]).format(rng.choice([text, plain]))
    )  # fmt: skip


EXPRESSIONS = [
    "x", "x.y.z", "f()", "f(1)", "f(a=g(b=2))", "f.g(1, b='c')", "f(**{'a': 1})", "x[0]", "x['a']",
    "x[1:2]", "[1, 2][0]", "'ab'[0]", "f()[0]", "x[f()]", "lambda x: x + 1", "{1, 2}",
    "[a for a in b]", "{a: 1 for a in b}", "(a for a in b)", "1 < 2", "a and b", "1 if x else 2",
    "*[1]", "f'{x}'", "f''", "(yield)", "await x", "(a := 1)", "b'x'", "1j", "...", "None", "true",
    "null", "NaN", "inf", "1e999", "-1e999", "0x1f", "1_000", "1e3", "1.", "007", "1__0", "'a' 'b'",
    "'a' f'b'", "b'a' 'b'", "{**{'a': 1}}", "[*a]", "{[1]: 2}", "{1: 2, 1: 3}", "(1,)", "()", "'",
    "'a", "a b", "a-b", "2024-01-01", "12:30", "50%", "a@b.com", "#x", "//x", "<x>", "?", "`x`",
    "\\", "…", "中文", "x\u00a0y", "not x", "--1", "-'a'", "+[1]", "~x", "-(-1)", "j@x.com",
    "Paris - London", "all-inclusive", "type+1", "value + 1", "ast - x", "len('a') + 1",
    "foo.bar + 1", "'a' + ('b' or g())", "1 / 0 + print(1)", "1 + (yield)", "1 + (lambda: x)()",
    "1 + (a := b)", "[a for a in b] + [1]", "2 ** 3", "x ** 2", "'a' ** 2", "1 << x",
    "'a'.upper() + 'b'", "1 + [list][0]", "1 + (1 < x)", "5(3) + 1", "-list + 1", "self + 1",
    "3-5 days", "and/or", "A/B", "上海-北京", "C++", "-0", "not None", "-1j", "-(1 + 1)",
]  # fmt: skip


def _neutral(value: Any, rng: Rng) -> Source:
    """An operation whose result is the value, in most cases."""
    empty = {str: "''", list: "[]", int: "0", float: "0"}.get(type(value))
    forms = ["{0} * 1", "{0} + {1}", "({0}, 2)[0] + {1}", "{1} + ({0} if 1 < 2 else 3)"]
    of_texts = ["'%s' % {0}", "'%s' % ({0},)", "'' + ('' or {0})", "'' + f'{0}'"]
    of_numbers = ["{0} // 1", "{0} / 1", "{0} | 0", "{0} - 0", "{0} % 10"]
    if empty is None:
        raise NotHere
    forms += of_texts if empty == "''" else of_numbers if empty == "0" else []
    return Source(rng.choice(forms).format(repr(value), empty))


def _large(value: Any, rng: Rng) -> Source:
    """Integers about as long as Python prints them, longer products, deep nesting."""
    n, nines = rng.choice([20, 90, 198, 250]), "9" * rng.choice([4299, 4300, 4301])
    return Source(
        rng.choice([
            nines, f"-{nines}", f"{nines} * 10", f"[{nines} * {nines}]", "0x" + "f" * 4000,
            "[" * n + repr(value) + "]" * n, "-" * n + "1", "{'a': " * n + "1" + "}" * n,
            "1" + " + 1" * n, "f(a=" * n + "1" + ")" * n, "x" + "[0]" * n,
        ])
    )  # fmt: skip


def _formatted(*forms: str) -> ValueChange:
    return lambda value, rng: Source(rng.choice(forms).format(repr(value)))


VALUES: dict[str, ValueChange] = {
    "number off": _number(lambda v, r: r.choice([v + 1, v + 1000, -v, v + 0.5])),
    "number of another type": _number(lambda v, r: r.choice([float(v), int(v), bool(v)])),
    "number as text": _number(lambda v, r: r.choice(["{}", "{} kg", " {}", "{}.0"]).format(v)),
    "number very large": _number(lambda v, r: 10 ** r.choice([30, 400, 4200])),
    "boolean flipped": _of(bool)(lambda v, r: not v),
    "boolean otherwise": _of(bool)(lambda v, r: r.choice(["true", "False", "yes", 0, 1, 1.0, 2])),
    "text longer": _text(lambda v, r: r.choice(["the {} today", "{}{}", "{}x"]).format(v, v)),
    "text shorter": _text(lambda v, r: pick(r, [v[1:], v[:-1], v[: len(v) // 2]])),
    "another text": _text(lambda v, r: r.choice(["", "x", "none", "...", v[::-1]])),
    "text in another case": _text(lambda v, r: r.choice([v.upper(), v.lower(), v.title()])),
    "text punctuated": _text(lambda v, r: spliced(v, r, r.choice(_DROPPED))),
    "text without punctuation": _text(lambda v, r: v.translate(dict.fromkeys(map(ord, _DROPPED)))),
    "text with odd characters": _text(lambda v, r: spliced(v, r, r.choice(_ODD))),
    "text as number": _text(lambda v, r: int(v) if v.isascii() and v.isdigit() else 2.5),
    "text as list": _text(lambda v, r: r.choice([[v], list(v), v.split()])),
    "list reordered": _list(lambda v, r: r.choice([v[::-1], v[1:] + v[:1]])),
    "list shorter": _list(lambda v, r: r.choice([v[1:], v[:-1]])),
    "list longer": _list(lambda v, r: [*v, r.choice([*v, "x", 1, None, [], {}])]),
    "list as something else": _list(
        lambda v, r: r.choice([tuple(v), str(v), dict(enumerate(v)), {}, *v[:1]])
    ),
    "object with other keys": _object(_key_changed),
    "object in another order": _object(lambda v, r: dict(r.sample(list(v.items()), len(v)))),
    "object as something else": _object(lambda v, r: r.choice([list(v), [v], str(v)])),
    "any as none": lambda v, r: None,
    "any nested": lambda v, r: r.choice([[v], [v, v], [[v]], (v,), {"value": v}]),
    "any as text": lambda v, r: str(v),
    "any empty": lambda v, r: r.choice(["", [], {}, (), 0, False]),
    "any of another type": lambda v, r: r.choice([1, 2.5, "x", True, ["x"], {"x": 1}, b"x", 2j]),
}  # fmt: skip
SYNTAX: dict[str, ValueChange] = {
    "text quoted otherwise": _text(_quoted),
    "without quotes": lambda v, r: Source(str(v)),
    "with a sign": _formatted("+{}", "-{}", "~{}", "not {}", "--{}", "- {}"),
    "as an operation": _neutral,
    "another expression": lambda v, r: Source(r.choice(EXPRESSIONS)),
    "large": _large,
    "wrapped": _formatted("f(a={})", "str({})", "{{{}: 1}}", "{} # note\n"),
    "spaced": _formatted("\n{}\n", "\t{}", " {} ", "\u00a0{}", "\x0c{}"),
}  # fmt: skip


def _inside(value: Any, change: ValueChange, rng: Rng) -> Any:
    """Change one value within a list or an object."""
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = list(range(len(value)))
    rng.shuffle(keys)
    for key in keys:
        deeper = isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.6
        try:
            changed = _inside(value[key], change, rng) if deeper else change(value[key], rng)
        except NotHere:
            continue
        duplicate = value.copy()
        duplicate[key] = changed
        return duplicate
    raise NotHere


def value_changed(calls: Calls, change: ValueChange, rng: Rng, *, inside: bool) -> Calls:
    """Change one argument; ``inside``: one value in a list or an object."""
    positions = [(args, n) for _, args in calls for n in range(len(args))]
    rng.shuffle(positions)
    for args, n in positions:
        key, value = args[n]
        try:
            args[n] = (key, _inside(value, change, rng) if inside else change(value, rng))
        except NotHere:
            continue
        return calls
    raise NotHere


# Calls: names, arguments, order, number.


def gold(entry: Entry, alternative: int = 0) -> Calls:
    """Return the calls of a gold answer, lists that may be changed."""
    answer = alternatives(entry)[alternative]
    return [(function_name(entry, key), list(args.items())) for key, args in answer.items()]


def source(calls: Calls) -> str:
    return "[" + ", ".join(f"{name}({', '.join(map(_argument, a))})" for name, a in calls) + "]"


def _argument(pair: tuple[str, Any]) -> str:
    key, value = pair
    return f"**{value!r}" if key == "**" else f"{key}={value!r}" if key else repr(value)


def _fullwidth(name: str) -> str:
    """The name in letters that Python reads as the plain ones."""
    return "".join(chr(ord(c) + 0xFEE0) if c.isascii() and c.isalpha() else c for c in name)


def _renamed(calls: Calls, entry: Entry, rng: Rng) -> Calls:
    name, args = pick(rng, calls)
    names = [
        name + "x", name[:-1] or "x", name.swapcase(), f"{name}_1", f"api.{name}", f"f().{name}",
        "f()", f"{name}[0]", "查询", f"{name} ", f"_{name}", _fullwidth(name),
        name.rstrip("0123456789").removesuffix("_"), *(f["name"] for f in entry.data["function"]),
    ]  # fmt: skip
    calls[calls.index((name, args))] = (rng.choice(names), args)
    return calls


Change = Callable[[Calls, Entry, Rng], Calls]
ArgsChange = Callable[[Args, Any, Rng], Args]
"""Gets the arguments of one call in any order, and the properties of the function's schema."""


def _on_args(change: ArgsChange) -> Change:
    def vary(calls: Calls, entry: Entry, rng: Rng) -> Calls:
        index = int(pick(rng, [n for n, (_, args) in enumerate(calls) if args]))
        name, args = calls[index]
        schema: Any = next((f for f in entry.data["function"] if f["name"] == name), {})
        mixed = args if rng.random() < 0.5 else rng.sample(args, len(args))
        calls[index] = (name, change(mixed, schema.get("parameters", {}), rng))
        return calls

    return vary


def _odd_key(key: str, rng: Rng) -> str:
    return rng.choice([f"{key}x", key.swapcase(), _fullwidth(key), f"{key} ", "class", f"'{key}'"])


CHANGES: dict[str, Change] = {
    "gold": lambda c, e, r: c,
    "one missing": lambda c, e, r: r.choice([c[1:], c[:-1]]),
    "one twice": lambda c, e, r: r.choice([[*c, *c[:1]], [*c[-1:], *c]]),
    "reversed": lambda c, e, r: c[::-1],
    "one in place of all": lambda c, e, r: [pick(r, c)] * len(c),
    "renamed": _renamed,
    "arguments in another order": _on_args(lambda a, s, r: a[::-1]),
    "argument missing": _on_args(lambda a, s, r: a[1:]),
    "optional arguments missing": _on_args(
        lambda a, s, r: [(key, value) for key, value in a if key in s.get("required", [])]
    ),
    "argument added": _on_args(
        lambda a, s, r: [*a, (r.choice([*s.get("properties", {}), "unknown"]), r.choice([1, "x"]))]
    ),
    "argument renamed": _on_args(lambda a, s, r: [(_odd_key(a[0][0], r), a[0][1]), *a[1:]]),
    "argument repeated": _on_args(lambda a, s, r: [*a, (a[0][0], r.choice([a[0][1], "x", None]))]),
    "arguments positional": _on_args(lambda a, s, r: [("", value) for _, value in a]),
    "positional argument added": _on_args(
        lambda a, s, r: r.choice([[("", 1), *a], [*a, ("", 1)], [("", Source("*[1]")), *a]])
    ),
    "arguments spread": _on_args(lambda a, s, r: [("**", dict(a))]),
}


def _written(change: Change) -> Kind:
    return lambda entry, rng: source(change(gold(entry), entry, rng))


def _with_value(change: ValueChange, *, inside: bool) -> Kind:
    return lambda e, rng: source(value_changed(gold(e), change, rng, inside=inside))


_ALL_VALUES = {**VALUES, **SYNTAX}
_CALLS: dict[str, Kind] = {
    **{f"value: {name}": _with_value(c, inside=False) for name, c in _ALL_VALUES.items()},
    **{f"inner value: {name}": _with_value(c, inside=True) for name, c in _ALL_VALUES.items()},
    **{f"calls: {name}": _written(change) for name, change in CHANGES.items()},
    "calls: alternative": lambda e, r: source(gold(e, pick(r, range(1, len(alternatives(e)))))),
}

# Texts: prose and fences, other formats, broken pieces.

AROUND = [
    "Sure:\n{}", "Step [1]: {}", "<think>maybe [F(a=1)]?</think>\n{}", "<think>[{}", "] {}", "[]{}",
    "[x] {}", "calls = {}", "print({})", "return {}", " {}", "\ufeff{}", "\u200b{}", "\u00a0{}",
    "```python\n{}\n```", "```{}```", "- {}", "1. {}", "({})", "好的：{}", "[[{}", "'{}'", '"{}',
    "# comment\n{}", "\\{}", "\x00{}", "await {}", "not {}", "*{}", "lambda: {}", "{}.", "{}\n",
    "{}\n\nDone [1].", "{}]", "{}[", "{},", "{};", "{} # done", "{}[0]", "{}[0:1]", "{}()", "{}.x",
    "{} + []", "{}\\", "{} if 1 else 2", "{}\r\n", "{}。", "{}<|im_end|>", "{} is None",
    "{}\n[F(a=1)]", "{}, [F(a=1)]", "I will call {} now.", "[{}]", "([{}])", "【{}】", "[*{}]",
    "{{{}}}", '<tool_call>{{"name": "f", "arguments": {}}}</tool_call>', "{0}{0}", "{0} and {0}",
]  # fmt: skip
# Without a `*`, which makes a large text of a text and a number.
_TOKENS = [
    *"-()[]{},'\"x\\ =:.\n\t\r\x0b\x00\u3000é中🙂#;`!", "+1", "f'", " if 1 else 2", " or 1", "<1",
    "[0]", "not ", "lambda:0", "None", "1.5", "'%s'%", "'a'+", "\ud83d",
]  # fmt: skip
_REPLACED = [
    (" ", "\r\n"), (" ", "\n"), (" ", "\x0b"), (" ", "\u2028"), (" ", "\u00a0"), (" ", "\u3000"),
    (" ", ""), ("'", '"'), ("'", '\\"'), ("'", "’"), ("'", "''"), ("'", "`"), ("'", ""),
    (",", "，"), (",", ";"), (",", ",,"), ("(", "（"), ("(", "["), (")", ""), (")", "))"),
    ("=", ":"), ("=", "=="), ("=", " = "), ("=", "=>"), ("=", ":="), ("True", "true"),
    ("), ", ")], ["), ("False", "false"), ("\\", "\\\\"), ("(", "(\n    "),
]  # fmt: skip
_NOTHING = [
    "", "\n", "[]", "[[]]", "()", "{}", "None", "hello", "[hello]", "[1]", "['a']", "[f]", "[f()]",
    "f()", "[f(), g]", "[()]", "[f(),]", "]", "][", "[...]", "null", "[f() for x in y]", "[f(x)]",
]  # fmt: skip


def fuzzed(text: str, rng: Rng) -> str:
    for _ in range(rng.randint(1, 4)):
        marks = [n + 1 for n, char in enumerate(text) if char in "=:,(["]
        near = marks and rng.random() < 0.6
        index = rng.choice(marks) if near else rng.randint(0, len(text))
        how = rng.random()
        if how < 0.6:
            text = text[:index] + rng.choice(_TOKENS) + text[index:]
        elif how < 0.8:
            text = text[:index] + text[index + 1 :]
        else:
            text = text[:index] + text[index : index + rng.randint(1, 8)] + text[index:]
    return text


def replaced(text: str, rng: Rng) -> str:
    old, new = rng.choice(_REPLACED)
    return text.replace(old, new, rng.choice([1, -1]))


TEXT_KINDS: dict[str, Callable[[str, Rng], str | None]] = {
    "something around": lambda t, r: r.choice(AROUND).format(t),
    "other brackets": lambda t, r: r.choice(
        ["{}", "({})", "({},)", "{{{}}}", "[[{}]]", "[({})]", "[{},]", "[,{}]", "[{}", "[{}]]"]
    ).format(t[1:-1]),
    "replaced": lambda t, r: replaced(replaced(t, r) if r.random() < 0.5 else t, r),
    "written otherwise": lambda t, r: r.choice([t.upper(), t.lower(), json.dumps(t), repr(t)]),
    "cut": lambda t, r: t[: r.randint(0, len(t))],
    "end only": lambda t, r: t[r.randint(0, len(t)) :],
    "fuzzed": fuzzed,
    "nothing like it": lambda t, r: r.choice(_NOTHING),
    "missing": lambda t, r: None,
    "very long": lambda t, r: r.choice(
        [t + " " * 70_000, "x" * 70_000 + t, t.replace("'", "'" + "a" * 70_000, 1), t + t * 40]
    ),
}  # fmt: skip


def _text_kind(change: Callable[[str, Rng], str | None]) -> Kind:
    return lambda entry, rng: change(render_gold(entry), rng)


_TEXTS: dict[str, Kind] = {f"text: {name}": _text_kind(c) for name, c in TEXT_KINDS.items()}

# The message of a special row.

_PHRASES = ["Missing necessary parameters", "There is incorrect value"]
_PHRASES += ["the limitations of the function"]
_MESSAGES = [
    "{gold}", "{bare}", "{odd_name}", "{odd_phrase}", "{phrase}: {names}", "{everything}",
    "{limits}", "{limits} {gold}", "{phrase} {question}", "{call}", "{call} {gold}",
    "<think>{gold}</think>{call}", "\x00{gold}", "\ud800{gold}", "\ufeff{gold}",
]  # fmt: skip


def _message(template: str) -> Kind:
    def vary(entry: Entry, rng: Rng) -> str:
        text, gold_names = render_gold(entry), entry.gold if isinstance(entry.gold, dict) else {}
        names = [str(part) for name, parts in gold_names.items() for part in (name, *parts)]
        name = rng.choice(names or ["x"])
        phrase = next(phrase for phrase in _PHRASES if phrase in text)
        odd = ["", f"{name}x", name[1:], name.upper(), name.replace("_", " "), f"`{name}`"]
        near = [phrase.lower(), phrase.upper(), phrase.replace(" ", "\n"), phrase[1:], ""]
        return template.format(
            gold=text, bare=text.strip('["]'), limits=LIMITS, question=entry.data["question"],
            odd_name=text.replace(name, rng.choice(odd)), phrase=rng.choice(_PHRASES),
            odd_phrase=text.replace(phrase, rng.choice([*near, *_PHRASES])),
            names=", ".join(rng.sample(names, rng.randint(0, len(names)))),
            call=f"[{entry.data['function'][0]['name']}(a='x', b=1)]",
            everything=" ".join([*_PHRASES, str(entry.data["function"])]),
        )  # fmt: skip

    return vary


SPECIAL_KINDS: dict[str, Kind] = {f"message: {t!a}": _message(t) for t in _MESSAGES}

# The end state and the process of an agent row.

_ODD_VALUES = [1, 1.0, True, "1", 0, None, "x", [], {}, [1], {"a": 1}, 500, "500.0", -1, 3]
_CLASSES = ["Other", "BaseApi", "BaseAPI", "MessageApi", "ReminderApi", "Reminderpi", "Travel"]


def _slots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of every value in ``value``."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from _slots(inner)


def _state(entry: Entry, rng: Rng) -> Any:
    """An end state: the gold one with up to two changes to values and one to classes, or none."""
    state = copy.deepcopy(rng.choice([gold_state(entry), entry.gold["ground_truth"]]))
    for _ in range(rng.choice([0, 0, 1, 1, 1, 2])):
        container, key = rng.choice(list(_slots(state)))
        old, near = container[key], [rng.choice(_ODD_VALUES)]
        if isinstance(old, dict):
            near += [dict(reversed(old.items())), dict([*old.items()][1:]), {**old, "wifi": 1}]
        elif isinstance(old, list):
            near += [old[1:], old[::-1], [*old, *near]]
        elif isinstance(old, str):
            near += [f"{old} ", old.upper(), old[:-1], f"{old}\x00", "\ud800"]
        elif old is not None:
            near += [float(old), int(old), bool(old), str(old), old + 1]
        container[key] = rng.choice(near)
    if rng.random() < 0.7:
        return state
    part = rng.choice([c for c in state if isinstance(c, dict) and c] or [{"BaseApi": {}}])
    remainder = [c for c in state if c != part]
    name = rng.choice([*_CLASSES, next(iter(part)).lower()])
    odd: list[Any] = [None, [], {}, "BaseApi", 1, {**part, "More": {}}]
    odd += [dict.fromkeys(part), {name: {}}]
    replacements = [[], {}, "", "ab", 5, [[]], [{}], part, [{key: {} for key in part}], state[::-1]]
    renamed = {name: next(iter(part.values()))}
    choices = [remainder, [*state, part], [renamed, *remainder], [*remainder, rng.choice(odd)]]
    return rng.choice([*choices, rng.choice(replacements)])


def _process(entry: Entry, rng: Rng) -> Any:
    """A process: one of the gold ones with one change, or none."""
    milestones = entry.gold["mile_stone"]
    path = list(rng.choice(milestones) if isinstance(milestones[0], list) else milestones)
    index = rng.randint(0, len(path))
    step = path[index] if index < len(path) else "[foo()]"
    near: list[Any] = [f" {step}", f"{step}\u3000", step[:-1], step.replace("'", '"'), None]
    near += [[step], {}]
    altered = [*path[:index], rng.choice(near), *path[index + 1 :]]
    changed = [path[1:], path[:index], altered, altered, [*path[:index], step, *path[index:]]]
    changed += [rng.sample(path, len(path)), ["Hello", *path]]
    return rng.choice([path, *changed, rng.choice([[], {}, {"a": 1}, "[f()]", 5, "", [[]]])])


def _agent(state: Callable[[Entry, Rng], Any]) -> Kind:
    return lambda entry, rng: (json.loads(json.dumps(state(entry, rng))), _process(entry, rng))


# The process counts where the state is wrong.
AGENT_KINDS: dict[str, Kind] = {
    "gold state": _agent(lambda entry, rng: gold_state(entry)),
    "state": _agent(_state),
    "process": _agent(lambda entry, rng: rng.choice([[], mangled_state(entry)])),
}
