"""Variations of the gold answers of BFCL: values, arguments, calls, texts, and noise in texts."""

import json
import random
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from variations import (
    AROUND,
    CHANGES,
    EXPRESSIONS,
    SYNTAX,
    VALUES,
    Calls,
    NotHere,
    Source,
    ValueChange,
    fuzzed,
    replaced,
    source,
    value_changed,
)

from ace_ray.types import Entry

Rng = random.Random
python_text = source

_PYTHON = [
    *EXPRESSIONS, "nan", "x + 1", "base * height", "math.pi * 2", "110/5.2**2", "(-8) ** 0.5",
    "-5 ** 2", "0 ** -1", "10.0 ** 400", "10 ** 5000", "1 << 10 ** 10", "1 << -1", "2 ** x",
    "os + 1", "{[]: 1}", "((1, 2), [3])", "1e400", "'\\x00'", "'\\ud800'", "'ß'", "'İ'", "r'\\d'",
    "'''x'''", "*x", "0x" + "f" * 4000, "[{}, {}]", "'it\\'s'", "{'a': {'b': {'c': 1}}, 'd': {}}",
]  # fmt: skip
_JAVA = [
    "true", "null", "5L", "3.5f", "1e3", "'c'", '"x"', "new int[]{1, 2}", "new Object[]{}", "this",
    'new String[]{"a", "b"}', "new int[][]{{1}, {2}}", "Arrays.asList(1, 2)", "List.of()",
    "new ArrayList<>(Arrays.asList(1, 2))", "new ArrayList<>()", 'Map.of("a", 1)', "Foo.class",
    'new HashMap<String, Object>() {{ put("a", 1); put("b", "x"); }}', "new HashMap<>()",
    "new Foo(1, new Bar(x), 2)", "new Foo() { int x; }", "a.b(c, d).e(f)", "x -> x + 1",
    "a ? b : c", "(int) 5", "a + b * 2", "Foo::bar", "a[0]", "!x", "-x", "(x)", "x = 5", "y += 5",
    "/* c */ 5", "5 // c\n", '"é" + x', '"""\nx\n"""', '"\\"x\\""', "1_000", "0x1F", "{1, 2}",
    "Map<String, List<Integer>>", "[1, 2]",
]  # fmt: skip
_JAVASCRIPT = [
    "true", "null", "undefined", "5n", "3.5", "1e3", "'x'", '"x"', "`a${b}c`", "''", "[1, 2]", "[]",
    "[[1, 2], [3]]", "[ [1] , [2] ]", "['a', \"b\"]", "new Array(1, 2)", "new Array([1], [2])",
    "{a: 1}", "{'a': 'b', c: [1, 2]}", "{a: {b: 1}}", "{a: 1, b: true, 'c d': 'x, y: z'}",
    "{\n a: 1\n}", "{a: [1, 2], b: [[1], [2]]}", "x => x + 1", "function(a) { return a; }", "a.b.c",
    "a?.b", "a ?? b", "...x", "f(x = 5)", "new Foo(1)", "/re/g", "a ? b : c", "-x", "(x)", "x = 5",
    "typeof x", "/* c */ 5", "5 // c\n", "'é'", "{a}", "<a/>", "[1, 2, ]", "[, 1]", "'a\"b'",
    "[true, 'x', 1.5, x]", "await x", "class {}", "this",
]  # fmt: skip
SOURCES = {"python": _PYTHON, "java": _JAVA, "javascript": _JAVASCRIPT}
_PLAIN = [
    None, True, False, 0, 1, -1, 2.5, 1.0, "", "x", " ", [], [1], ["a"], {}, {"a": 1}, (1, 2), "1",
    "True", [True], [None], [[1]], [{"a": 1}], {"a": {"b": 1}}, {"a": [1]}, 10**20, -0.0, 1e300,
    10**400, "a" * 300, [1.0, 2], ["a", 1], {1: 2}, {None: 1}, float("inf"),
]  # fmt: skip


def gold(answers: Sequence[Any], rng: Rng) -> Calls:
    """Return the calls of an answer with one of the acceptable values for each parameter."""
    calls = []
    for answer in answers:
        for name, params in answer.items():
            values = [(param, _chosen(options, rng)) for param, options in params.items()]
            pairs = [(p, value) for p, value in values if value != "" or rng.random() < 0.2]
            calls.append((name, pairs))
    return calls


def _chosen(options: Any, rng: Rng) -> Any:
    if not isinstance(options, list) or not options:
        return options
    return _plain(options[0] if rng.random() < 0.7 else rng.choice(options), rng)


def _plain(value: Any, rng: Rng) -> Any:
    if isinstance(value, dict):
        chosen = {key: _chosen(inner, rng) for key, inner in value.items()}
        return {key: inner for key, inner in chosen.items() if inner != "" or rng.random() < 0.3}
    if isinstance(value, list):
        return [_plain(item, rng) if isinstance(item, dict) else item for item in value]
    return value


def changed(calls: Calls, rng: Rng, language: str, entry: Entry) -> Calls:
    """Return the calls with one change: to a value, or to names, arguments, order and number."""
    calls = [(name, list(args)) for name, args in calls]
    values = [*VALUES.values(), *SYNTAX.values()]
    if language != "python":  # ours reads shorter values of scripts
        values = [change for name, change in VALUES.items() if name != "number very large"]
    while calls:
        try:
            if rng.random() < 0.5:
                return rng.choice(list(CHANGES.values()))(calls, entry, rng)
            change = rng.choice(values) if rng.random() < 0.6 else _any_value(language)
            return value_changed(calls, change, rng, inside=rng.random() < 0.3)
        except NotHere:
            continue
    return [(rng.choice([*(f["name"] for f in entry.data["function"]), "f"]), [])]


def _any_value(language: str) -> ValueChange:
    return lambda _, rng: rng.choice([rng.choice(_PLAIN), Source(rng.choice(SOURCES[language]))])


def json_text(calls: Calls, rng: Rng) -> str:
    items = [
        {"function": name, "parameters": {key: jsonable(value) for key, value in args}}
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


def jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [jsonable(item) for item in value]
    return str(value) if isinstance(value, (Source, bytes, complex)) else value


_XML_TYPES: dict[type, Sequence[str]] = {
    str: ["string"], bool: ["boolean"], int: ["integer"], float: ["float"], tuple: ["tuple"],
    list: ["array", "tuple"], dict: ["object", "dict"], type(None): ["null"],
}  # fmt: skip


def xml_text(calls: Calls, rng: Rng, *, verbose: bool) -> str:
    lines = ["<functions>"]
    for name, args in calls:
        lines.append(f"<function name={_attribute(name)}>")
        wrapped = verbose and rng.random() < 0.8
        lines += ["<params>"] if wrapped else []
        for key, value in args:
            types = _XML_TYPES.get(type(value), ["string", "any", "integer"])
            kind = rng.choice([*types] * 12 + ["string", "integer", "dict", "float", "boolean"])
            raw = value if isinstance(value, str) else repr(value)
            raw = raw.lower() if kind == "boolean" else raw
            typed = "" if rng.random() < 0.05 else f" type={_attribute(kind)}"
            key_text = "" if rng.random() < 0.02 else f" name={_attribute(key)}"
            if verbose:
                lines.append(f"<param{key_text} value={_attribute(raw)}{typed}/>")
            else:
                pad = rng.choice(["", "", "\n", " "])
                lines.append(f"<param{key_text}{typed}>{pad}{escape(_clean(raw))}{pad}</param>")
        lines += ["</params>"] if wrapped else []
        lines.append("</function>")
    return rng.choice(["", "", "\n", "  "]).join([*lines, "</functions>"])


def _attribute(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    return "".join(c for c in text if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff"))


def script_text(calls: Calls, language: str) -> str:
    """Write the calls as Java or JavaScript."""
    written = _java if language == "java" else _javascript

    def argument(pair: tuple[str, Any]) -> str:
        name, value = pair
        return f"{name}={written(value)}" if name not in ("", "**") else written(value)

    return (
        f"[{', '.join(name + '(' + ', '.join(map(argument, args)) + ')' for name, args in calls)}]"
    )


def _java(value: Any) -> str:
    if isinstance(value, list):
        inner = ", ".join(map(_java, value))
        form = "new ArrayList<>(Arrays.asList({}))" if len(inner) % 2 else "new Object[]{{{}}}"
        return form.format(inner)
    if isinstance(value, dict):
        puts = " ".join(f'put("{key}", {_java(inner)});' for key, inner in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    return _literal(value)


def _javascript(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_javascript, value))}]"
    if isinstance(value, dict):
        pairs = [f"{json.dumps(str(key))}: {_javascript(inner)}" for key, inner in value.items()]
        return f"{{{', '.join(pairs)}}}"
    return _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        # In the answers texts are often source already: `new Path('/x')`, `mapArea`.
        bare = value.isidentifier() or value[:4] == "new " or value[-1:] in (")", "L", "}")
        return value if bare and len(value) % 2 else json.dumps(value, ensure_ascii=False)
    return repr(value)


_WHOLE = [
    "", " ", "[]", "{}", "[{}]", "()", "None", "x", "f()", "[f()]", "f(x)", "[f]", "f(a=1)(b=2)",
    "f(a=1).g(b=2)", "f(a=1)[0]", "hello(world)", "I cannot do that.", "[[f(a=1)]]", "'f(a=1)'",
    "Error during inference: too long", "f(a=1), g(b=2)", "f(a=1)\ng(b=2)", "f(a=1); g(b=2)", "]",
    "`", "''", "[,]", "(f(a=1) for x in y)", "f(a=1) if x else g()", "lambda: f()", "a.b.c(d=1)",
    "[0].f(a=1)", "'x'.join(a=1)", "f(a=1) + g()", "(f)(a=1)", "f(*a, **b)", "\0", "\ud800",
]  # fmt: skip


def changed_text(text: str, rng: Rng) -> str:
    """Return an answer's text with one change to the text."""
    inner = text.strip("[]")
    return rng.choice([
        lambda: rng.choice(AROUND).format(text), lambda: replaced(text, rng),
        lambda: fuzzed(text, rng), lambda: inner, lambda: f"[{text}]", lambda: f"({inner},)",
        lambda: f"{{{inner}}}", lambda: text.replace("), ", ")\n"), lambda: rng.choice(_WHOLE),
        lambda: text[: rng.randint(0, len(text))], lambda: text[rng.randint(0, len(text)) :],
        lambda: f"<TOOLCALL>{text}</TOOLCALL>", lambda: f"<TOOLCALL>{text}", lambda: text.upper(),
    ])()  # fmt: skip


_NOISE = {
    "java": "abstract case class default enum int module new record switch throw var yield"
    ' @Test :: -> ?. // /* */ 5L 1_000 """ int[] <T> List<Integer>',
    "javascript": "async await case class default export function get import let new null of static"
    " typeof undefined using var => ?. ... ${ ` // /* */ 1n /x/g <div> #a",
    "python": "False None and await class def from in lambda match return yield ** := # @a 1j",
}
_TOKENS = [
    *"()[]{}<>,=:;'\"\\`.-+*#&|?!@%^~$_/ \n\t\r\0é0a9\u2028\u00a0\ufeff‘’“”…–，（）：", "日本",
    "ª", "5px", "a b", "#1", "2024-01-01", "http://a.b/c?d=e", "C:\\a", "'x", '"x', "f(", "\\u0041",
]  # fmt: skip


def noisy(text: str, rng: Rng, language: str) -> str:
    """Return the text with one to three pieces of noise: what models write around calls and into
    them, and what a grammar may read in one version and not in another."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        word = rng.choice([*_NOISE[language].split(), *_TOKENS])
        spots = [n for n, c in enumerate(text) if not c.isalnum()] or [0]
        start = rng.choice(spots) + rng.randint(0, 1)
        end = rng.choice([start, start, start + 3, *[n for n in spots if n > start][:3]])
        frames = ["{0} {1}", "{1} {0}", "{0}({1})", "{0}.{1}", "{0} = {1}", "{0};{1}", "{1};{0}"]
        frames += ["class A {{ void f() {{ {1}; }} }}", "if (a) {{ {1} }}", "{0} {{ {1} }}", "{0}"]
        forms = [f"{text[:start]}{gap}{word}{gap}{text[end:]}" for gap in ("", " ")]
        text = rng.choice([*forms, rng.choice(frames).format(word, text), changed_text(text, rng)])
    return text
