"""What is done to the gold answers of BFCL: to values, to arguments, to calls, to texts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

Rng = random.Random
Args = list[tuple[str, Any]]
"""Names and values. The name ``""`` stands for a positional argument, ``**`` for a spread."""
Calls = list[tuple[str, Args]]


class Source:
    """A value that is written as the given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


_SOURCES = [
    "true", "false", "null", "None", "True", "nan", "x", "a.b", "x.y.z", "'a' 'b'", "b'x'", "1j",
    "...", "{1, 2}", "lambda: 1", "f'{1}'", "f''", "1 if 2 else 3", "1 < 2", "not True", "+5", "~5",
    "-5", "--5", "-'a'", "- 2.5", "+x", "4 + 1", "2 * 3.5", "'a' + 'b'", "1 / 0", "7 // 2", "7 % 4",
    "1 - 'a'", "[1] + [2]", "(1, 2) + (3,)", "'%s' % 5", "10 & 3", "x + 1", "base * height",
    "sqrt(2) + 1", "math.pi * 2", "2 * np.pi", "len([1]) + 1", "value + 1", "os + 1", "2 ** 3",
    "5 * 10**(-12)", "110/5.2**2", "(-8) ** 0.5", "-(3 + 4) * 2", "-5 ** 2", "0 ** -1",
    "10.0 ** 400", "10 ** 5000", "9 ** 9 ** 9", "1 << 10 ** 10", "1 << -1", "7 >> 1",
    "2 ** x", "1 + (2 or f())",
    "1 << 2", "[i for i in [1]]", "g()", "g(1)", "g(x=1)", "a.g(x=1, y=g(z=2))", "g(1, x=2)",
    "x[0]", "x[1:2]", "'abc'[0]", "x['a']", "x[g(1)]", "{'a': x}", "{**x}", "{[]: 1}", "{x: 1}",
    "(1,)", "()", "(1, 2)", "((1, 2), [3])", "[]", "[[]]", "{}", "''", "' '", "'-'", "0", "1",
    "1.0",
    "0x10", "1_000", "1e3", "1e400", "00", "007", "1.", ".5", "'\\n'", "'\\x00'", "'\\ud800'",
    "'é'", "'ß'", "'İ'", "'Σ'", "'a\\tb'", "r'\\d'", "u'x'", "'''x'''", "*x", "(yield)", "await x",
    "x := 1", "0x" + "f" * 4000, "9" * 400, "[{'a': 1}]", "[{}, {}]", "'it\\'s'", '"it\'s"',
    "{'a': {'b': 1}}", "{'a': {}}", "{'a': {'b': {'c': 1}}, 'd': {}}", "[{'x': {'y': 1}}]",
]  # fmt: skip
_JAVA = [
    "true", "false", "null", "5", "-5", "5L", "5l", "3.5", "3.5f", "3F", "1e3", "1e-3f", '"x"',
    "'c'",
    '""', "new int[]{1, 2}", "new int[] { 1 ,2 }", 'new String[]{"a", "b"}', "new String[]{}",
    "new int[5]", "new int[][]{{1}, {2}}", "new ArrayList<>()", "new ArrayList<Integer>()",
    'new ArrayList<>(Arrays.asList("a", "b"))', "new ArrayList<String>(Arrays.asList(1, 2, 3))",
    "Arrays.asList(1, 2)", "List.of(1)", 'new ArrayList<String>() {{ add("a"); add("b"); }}',
    "new HashMap<>()", 'new HashMap<String, Object>() {{ put("a", 1); put("b", "x"); }}',
    'Map.of("a", 1)', "new Foo(1, new Bar(x), 2)", "new Foo() { int x; }", "a.b.c", "Foo.class",
    "a.b(c, d).e(f)", "x -> x + 1", "(a, b) -> { return a; }", "a ? b : c", "(int) 5", "a + b * 2",
    "Foo::bar", "a[0]", "!x", "-x", "(x)", "x = 5", "y += 5", "/* c */ 5", "5 // c\n", '"é" + x',
    '"""\nx\n"""', "'\\n'", '"\\"x\\""', "1_000", "0x1F", "switch (x) { default -> 1; }",
    "new int[]{1, 2}[0]", "this", "super.x", "Map<String, List<Integer>>", "{1, 2}", "[1, 2]",
]  # fmt: skip
_JAVASCRIPT = [
    "true", "false", "null", "undefined", "5", "-5", "5n", "3.5", "1e3", "'x'", '"x"', "`x`",
    "`a${b}c`", "''", "[1, 2]", "[]", "[[1, 2], [3]]", "[[]]", "[ [1] , [2] ]", "['a', \"b\"]",
    "new Array(1, 2)", "new Array([1], [2])", "new Array()", "{}", "{a: 1}",
    "{'a': 'b', c: [1, 2]}",
    "{a: {b: 1}}", "{a: 1, b: true, 'c d': 'x, y: z'}", "{\n a: 1\n}", "{a: [1, 2], b: [[1], [2]]}",
    "x => x + 1", "function(a) { return a; }", "async () => 1", "a.b.c", "a?.b", "a ?? b", "...x",
    "f(x = 5)", "new Foo(1)", "/re/g", "a ? b : c", "-x", "!x", "(x)", "x = 5", "y += 5",
    "typeof x",
    "/* c */ 5", "5 // c\n", "'é'", "{[a]: 1}", "{a}", "{a() {}}", "<a/>", "[1, 2, ]", "[, 1]",
    "[true, 'x', 1.5, x]", "'a\"b'", "\"a'b\"", "[\n1,\n2]", "await x", "class {}", "this",
]  # fmt: skip
_PLAIN = [
    None, True, False, 0, 1, -1, 2.5, 1.0, "", "x", " ", [], [1], ["a"], {}, {"a": 1}, (1, 2), "1",
    "True", [True], [None], [[1]], [{"a": 1}], {"a": {"b": 1}}, {"a": [1]}, 10**20, -0.0, 1e300,
    10**400, "a" * 300, [1.0, 2], ["a", 1], {1: 2}, {None: 1}, float("inf"),
]  # fmt: skip


def gold(answers: Sequence[Any], rng: Rng) -> Calls:
    """The calls of an answer with one of the acceptable values for each parameter, often the
    first."""
    calls = []
    for answer in answers:
        for name, params in answer.items():
            args = []
            for param, options in params.items():
                value = _chosen(options, rng)
                if value != "" or rng.random() < 0.2:
                    args.append((param, value))
            calls.append((name, args))
    return calls


def _chosen(options: Any, rng: Rng) -> Any:
    if not isinstance(options, list) or not options:
        return options
    value = options[0] if rng.random() < 0.7 else rng.choice(options)
    return _plain(value, rng)


def _plain(value: Any, rng: Rng) -> Any:
    if isinstance(value, dict):
        chosen = {key: _chosen(inner, rng) for key, inner in value.items()}
        return {key: inner for key, inner in chosen.items() if inner != "" or rng.random() < 0.3}
    if isinstance(value, list):
        return [_plain(item, rng) if isinstance(item, dict) else item for item in value]
    return value


def changed_value(value: Any, rng: Rng, language: str = "python") -> Any:
    """Another value: near the given one, or any."""
    if rng.random() < 0.35:
        sources = {"java": _JAVA, "javascript": _JAVASCRIPT}.get(language, _SOURCES)
        return rng.choice(_PLAIN) if rng.random() < 0.3 else Source(rng.choice(sources))
    near: dict[type, Callable[[Any], Any]] = {
        str: lambda v: _near_text(v, rng),
        bool: lambda v: rng.choice([not v, int(v), str(v), str(v).lower(), Source(str(v).lower())]),
        int: lambda v: rng.choice(
            [v + 1, -v, v * 1e-3 if v < 10**9 else 1.0, float(v % 10**9), str(v), bool(v), [v]]
        ),
        float: lambda v: rng.choice(
            [v + 0.5, -v, int(v) if abs(v) < 1e18 else 0, str(v), v * 1.0000001, (v,)]
        ),
        list: lambda v: _near_list(v, rng, language),
        tuple: lambda v: list(v),
        dict: lambda v: _near_dict(v, rng, language),
    }
    change = near.get(type(value))
    return rng.choice(_PLAIN) if change is None or value != value else change(value)


def _near_text(text: str, rng: Rng) -> Any:
    spot = rng.randint(0, len(text))
    return rng.choice([
        text.upper(), text.lower(), text.title(), f" {text} ", text + ".", text.replace(" ", ""),
        text.replace(" ", "_"), text.replace("-", "/"), text + "\t", text + "\n", f"'{text}'",
        f'"{text}"', text[:-1], text + "x", text[:spot] + rng.choice(",./-_*^ '\"()\t\n{}[]<>&;:\\")
        + text[spot:], [text], (text,), {"a": text}, text.replace("'", '"'), Source(text), None,
        text.encode("utf-8", "replace"), text + "é", text[::-1],
    ])  # fmt: skip


def _near_list(items: list[Any], rng: Rng, language: str) -> Any:
    other = list(items)
    kind = rng.randrange(9)
    if kind == 0:
        return tuple(items)
    if kind == 1:
        rng.shuffle(other)
    elif kind == 2:
        other += rng.choice([["x"], [1], items[:1], [{}], [""]])
    elif kind == 3 and other:
        other.pop(rng.randrange(len(other)))
    elif kind == 4:
        return {str(n): item for n, item in enumerate(items)}
    elif kind == 5:
        return items[0] if items else None
    elif kind == 6:
        return set(items) if all(isinstance(i, (str, int)) for i in items) and items else [items]
    elif other:
        place = rng.randrange(len(other))
        other[place] = changed_value(other[place], rng, language)
    return other


def _near_dict(pairs: dict[Any, Any], rng: Rng, language: str) -> Any:
    other = dict(pairs)
    kind = rng.randrange(7)
    key = rng.choice(list(other)) if other else None
    if kind == 0:
        other[rng.choice(["extra", "a b", "é", 5])] = rng.choice([1, "x", None, [1]])
    elif kind == 1 and other:
        del other[key]
    elif kind == 2:
        return list(pairs.items())
    elif kind == 3:
        return [pairs]
    elif kind == 4:
        return dict(reversed(other.items()))
    elif other:
        other[key] = changed_value(other[key], rng, language)
    return other


def changed(calls: Calls, rng: Rng, language: str, names: Sequence[str]) -> Calls:
    """The calls with one thing changed; ``names`` are those of all functions of the entry."""
    calls = [(name, list(args)) for name, args in calls]
    if not calls:
        return [(rng.choice([*names, "f"]), [])]
    place = rng.randrange(len(calls))
    name, args = calls[place]
    where = rng.randrange(len(args)) if args else 0
    kind = rng.randrange(24)
    if kind < 9 and args:
        args[where] = (args[where][0], changed_value(args[where][1], rng, language))
    elif kind == 9 and args:
        del args[where]
    elif kind == 10:
        args.insert(where, (rng.choice(["extra", "x", "self", "é"]), rng.choice(_PLAIN)))
    elif kind == 11 and args:
        args[where] = (rng.choice([args[where][0].upper(), args[where][0] + "_"]), args[where][1])
    elif kind == 12:
        renamed = [name.replace(".", "_"), name.upper(), name + "x", name.split(".")[-1], "f"]
        calls[place] = (rng.choice([*renamed, *names, f"a.{name}"]), args)
    elif kind == 13:
        rng.shuffle(args)
    elif kind == 14:
        rng.shuffle(calls)
    elif kind == 15:
        calls.insert(rng.randrange(len(calls) + 1), (name, list(args)))
    elif kind == 16:
        del calls[place]
    elif kind == 17 and args:
        args.append(args[where])
    elif kind == 18 and args:
        args[:] = [("", value) for _, value in args]
    elif kind == 19 and args:
        args[0] = ("", args[0][1])
    elif kind == 20:
        args.append(("**", rng.choice([{"a": 1}, {}, Source("x")])))
    elif kind == 21:
        args.clear()
    elif kind == 22:
        args.insert(0, ("", rng.choice([1, Source("x"), Source("a.b"), Source("*x"), "s"])))
    elif kind == 23 and len(calls) > 1:
        calls[place] = (name, list(calls[place - 1][1]))
    return calls


def python_text(calls: Calls) -> str:
    return (
        "[" + ", ".join(f"{name}({', '.join(map(_keyword, args))})" for name, args in calls) + "]"
    )


def _keyword(pair: tuple[str, Any]) -> str:
    name, value = pair
    text = _bounded_repr(value)
    return f"**{text}" if name == "**" else f"{name}={text}" if name else text


def _bounded_repr(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:
        return hex(value)


def json_text(calls: Calls, rng: Rng) -> str:
    items = [
        {"function": name, "parameters": {key: _jsonable(value) for key, value in args}}
        for name, args in calls
    ]
    text = json.dumps(items, indent=rng.choice([None, None, 2]), ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.15:
        text = rng.choice([
            text.replace('"function"', '"name"'), text.replace("true", "True"), text[1:-1],
            text.replace('"parameters": {', '"parameters": [{').replace("}}", "}]}"),
            f"Here: {text} and [{{}}]", f"[1] {text}", text.replace('"parameters"', '"p"', 1),
            text + text, f"[{text}]", text.replace("1", "NaN"), text.replace("}", "} ", 2),
        ])  # fmt: skip
    return text


def _jsonable(value: Any) -> Any:
    if isinstance(value, Source):
        return value.text
    if isinstance(value, (bytes, complex)):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_jsonable(item) for item in value]
    return value


_XML_KINDS: dict[type, Sequence[str]] = {
    str: ["string"], bool: ["boolean"], int: ["integer"], float: ["float"], list: ["array",
    "tuple"],
    dict: ["object", "dict"], tuple: ["tuple"], type(None): ["null"],
}  # fmt: skip


def xml_text(calls: Calls, rng: Rng, *, verbose: bool) -> str:
    lines = ["<functions>"]
    for name, args in calls:
        lines.append(f"<function name={_attribute(name)}>")
        wrapped = verbose and rng.random() < 0.8
        lines += ["<params>"] if wrapped else []
        for key, value in args:
            kinds = _XML_KINDS.get(type(value), ["string", "any", "integer"])
            kind = rng.choice([*kinds] * 12 + ["string", "integer", "dict", "float", "boolean"])
            raw = value if isinstance(value, str) else _bounded_repr(value)
            if kind == "boolean":
                raw = raw.lower()
            typed = "" if rng.random() < 0.05 else f" type={_attribute(kind)}"
            named = "" if rng.random() < 0.02 else f" name={_attribute(key)}"
            if verbose:
                lines.append(f"<param{named} value={_attribute(raw)}{typed}/>")
            else:
                pad = rng.choice(["", "", "\n", " "])
                lines.append(f"<param{named}{typed}>{pad}{escape(_clean(raw))}{pad}</param>")
        lines += ["</params>"] if wrapped else []
        lines.append("</function>")
    return rng.choice(["", "", "\n", "  "]).join([*lines, "</functions>"])


def _attribute(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    return "".join(c for c in text if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff"))


def java_text(calls: Calls) -> str:
    return (
        "["
        + ", ".join(f"{n}({', '.join(_assigned(a, _java) for a in args)})" for n, args in calls)
        + "]"
    )


def javascript_text(calls: Calls) -> str:
    return (
        "["
        + ", ".join(f"{n}({', '.join(_assigned(a, _js) for a in args)})" for n, args in calls)
        + "]"
    )


def _assigned(pair: tuple[str, Any], written: Callable[[Any], str]) -> str:
    name, value = pair
    return f"{name}={written(value)}" if name not in ("", "**") else written(value)


def _java(value: Any) -> str:
    if isinstance(value, list):
        inner = ", ".join(map(_java, value))
        return (
            f"new ArrayList<>(Arrays.asList({inner}))"
            if len(inner) % 2
            else f"new Object[]{{{inner}}}"
        )
    if isinstance(value, dict):
        puts = " ".join(f'put("{key}", {_java(inner)});' for key, inner in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    return _script(value)


def _js(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_js, value))}]"
    if isinstance(value, dict):
        pairs = [f"{json.dumps(str(key))}: {_js(inner)}" for key, inner in value.items()]
        return f"{{{', '.join(pairs)}}}"
    return _script(value)


def _script(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        # In the answers texts are often source already: `new Path('/x')`, `mapArea`.
        bare = value.isidentifier() or value[:4] == "new " or value[-1:] in (")", "L", "}")
        return value if bare and len(value) % 2 else json.dumps(value, ensure_ascii=False)
    return _bounded_repr(value)


_CHARS = "()[]{}<>,=:;'\"\\`.-+*#&|?!@%^~ \n\t\0é0aL\ud800"


def changed_text(text: str, rng: Rng) -> str:
    """An answer's text with one thing done to the text."""
    spot = rng.randint(0, len(text))
    end = rng.randint(spot, min(len(text), spot + 12))
    token = rng.choice([*_CHARS, "//", "/*", "]]", "\\u", "'''"])
    return rng.choice([
        lambda: f"```\n{text}\n```", lambda: f"```python\n{text}\n```",
        lambda: f"```json\n{text}```",
        lambda: f"`{text}`", lambda: f"Sure! {text}", lambda: f"{text} I hope this helps.",
        lambda: text.strip("[]"), lambda: f"[{text}]", lambda: f"'{text}'", lambda: f'"{text}"',
        lambda: f"({text.strip('[]')},)", lambda: f"{{{text.strip('[]')}}}",
        lambda: text.replace("), ", ");\n"),
        lambda: text.replace("), ", ")\n"), lambda: text.replace(" ", ""),
        lambda: text.replace("'", '"'),
        lambda: text.replace("=", ":"), lambda: text.replace("=", " = "), lambda: text[:spot],
        lambda: text[spot:], lambda: text[:spot] + text[end:],
        lambda: text[:spot] + token + text[spot:],
        lambda: text[:spot] + token + text[end:],
        lambda: text[:spot] + text[spot:end] * 2 + text[end:],
        lambda: text.replace(", ", ",\n  "), lambda: f"\n\n{text} \n", lambda: text + text,
        lambda: f"<TOOLCALL>{text}</TOOLCALL>", lambda: f"<TOOLCALL>{text}",
        lambda: f"{text}  # done",
        lambda: f"[{text}, {text}]", lambda: text.replace("True", "true").replace("None", "null"),
        lambda: rng.choice(_WHOLE), lambda: text.replace("(", "( ", 1), lambda: f"result = {text}",
        lambda: f"<tool_call>\n{text}\n</tool_call>", lambda: text[:spot] + text[spot:].upper(),
    ])()  # fmt: skip


_WHOLE = [
    "", " ", "[]", "{}", "[{}]", "()", "None", "x", "f()", "[f()]", "f(x)", "[f]", "f(a=1)(b=2)",
    "f(a=1).g(b=2)", "f(a=1)[0]", "hello(world)", "I cannot do that.", "[[f(a=1)]]", "'f(a=1)'",
    "Error during inference: too long", "f(a=1), g(b=2)", "f(a=1)\ng(b=2)", "f(a=1); g(b=2)",
    "[", "]",
    "`", "''", "[,]", "(f(a=1) for x in y)", "f(a=1) if x else g()", "lambda: f()", "a.b.c(d=1)",
    "[0].f(a=1)", "'x'.join(a=1)", "f(a=1) + g()", "(f)(a=1)", "f(*a, **b)", "x.f(a=1)", "\0",
    "\ud800",
]  # fmt: skip
