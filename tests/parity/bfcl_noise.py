# ruff: noqa: E501, SIM905
"""Noise in the text of an answer: what models write around calls and into them, and what a grammar
may read in one version and not in another."""

from __future__ import annotations

import random
from collections.abc import Sequence

Rng = random.Random

_RESERVED = {
    "java": (
        "abstract assert boolean break byte case catch char class const continue default do double"
        " else enum exports extends final finally float for goto if implements import instanceof"
        " int interface long module native new non-sealed null open opens package permits private"
        " protected provides public record requires return sealed short static strictfp super"
        " switch synchronized this throw throws to transient transitive true try uses var void"
        " volatile when while with yield _"
    ).split(),
    "javascript": (
        "abstract arguments as async await boolean break byte case catch char class const continue"
        " debugger default delete do double else enum eval export extends false final finally float"
        " for from function get goto if implements import in instanceof int interface let long meta"
        " native new null of package private protected public return set short static super switch"
        " synchronized target this throw throws transient true try typeof undefined using var void"
        " volatile while with yield"
    ).split(),
    "python": (
        "False None True and as assert async await break class continue def del elif else except"
        " finally for from global if import in is lambda nonlocal not or pass raise return try"
        " while with yield match case type print"
    ).split(),
}
_STATEMENTS = {
    "java": [
        "int x = 5;", "return {};", "Object r = {};", "var r = {};", "if (a) {{ {}; }}",
        "for (;;) {};", "while (true) {{ {}; }}", "try {{ {}; }} finally {{ }}", "new Thread(() ->"
        " {}).start();", "class A {{ void f() {{ {}; }} }}", "import a.b.C; {};", "@Test {}",
        "public static void main(String[] args) {{ {}; }}", "System.out.println({});", "{}.get();",
        "{{ {} }}", "synchronized (x) {{ {}; }}", "switch (x) {{ case 1: {}; }}", "label: {}",
        "throw {};", "assert {};", "package a; {}", "yield {};", "switch (x) {{ case 1 -> {}; }}",
        "record A(int x) {{}} {};", "sealed interface B permits C {{}}", "x instanceof Foo f && {}",
        '"""\n {}\n"""', "module m {{ requires a; }}", "String s = STR.\"\\{{{}}}\";", "{} ->",
    ],
    "javascript": [
        "const r = {};", "let r = {};", "var r = {}", "return {};", "await {};", "(async () => {{"
        " await {}; }})()", "if (a) {}", "for (const x of y) {};", "while (1) {{ {} }}", "do {} while (0)",
        "try {{ {} }} catch {{ }}", "function f() {{ {} }}", "class A {{ m() {{ {} }} }}",
        "class A {{ #p = {}; static {{ {} }} }}", "import a from 'b'; {}", "export default {}",
        "export {{ {} }}", "console.log({});", "{}.then(x => x);", "new {}", "typeof {}", "void {};",
        "delete {}", "yield {}", "throw {};", "debugger; {}", "label: {}", "with (x) {}", "async {}",
        "`${{{}}}`", "{}`x`", "a ?? {}", "a?.b; {}", "x ||= {}", "using x = {};", "case {}: 1",
        "switch (x) {{ case 1: {} }}", "/{}/v", "import x from 'y' with {{ type: 'json' }}; {}",
        "import.meta; {}", "<div>{{{}}}</div>", "<a.b c={{{}}} />", "@dec class A {{}} {}", "get {}",
        "static {}", "of {}", "{} instanceof A", "({}, {})", "{}, {}", "!{}", "#!x\n{}", "<!-- {}",
    ],
    "python": [
        "return {}", "result = {}", "print({})", "await {}", "if x: {}", "x = {}; y", "lambda: {}",
        "import a\n{}", "async def f(): {}", "with f() as g: {}", "for x in y: {}", "{}.get('x')",
        "({})", "{} # done", "not {}", "{} if x else y", "*{}", "**{}", "@a\n{}", "match x: {}",
    ],
}  # fmt: skip
_AROUND = [
    "Here is the call: {}", "{} This calls the function.", "Sure!\n\n{}\n", "I'll use {} for this.",
    "```java\n{}\n```", "```javascript\n{}\n```", "```js\n{}```", "```python\n{}\n```",
    "```json\n{}\n```", "```\n{}\n```", "**{}**", "- {}", "1. {}", "> {}", "`{}`", "<code>{}</code>",
    "<tool_call>{}</tool_call>", "<|python_tag|>{}", "<think>hm</think>\n{}", "{}\n\n{}", "{}</s>",
    "Action: {}", "{}\nObservation: 5", '{{"call": "{}"}}', "[{}]", "[[{}]]", "({})", "{{{}}}",
    "'{}'", '"{}"', "“{}”", "\ufeff{}", "{}\u200b", "\u00a0{}", "{}\r\n", "\t{}", "# {}",
    "functions.{}", "{};", "{};;", ";{}", "{},", "{}.", "{}!", "{}?", "$ {}", "{} \\", "/{}/", "{}//",
    "//{}", "/*{}*/", "/* a */ {} // b", "{}/*", "<!--{}-->", "#{}", "x = {}", "x: {}", "{} = x",
    "[{}, {}]", "[{}; {}]", "[{}\n{}]", "{}: {}", "F;{}", "{};F", "var/{}", "a/{}/b", "{} {}",
]  # fmt: skip
_TOKENS = [
    *"()[]{}<>,=:;'\"\\`.-+*#&|?!@%^~$_/ \n\t\r\0é0a9\u2028\u00a0\ufeff‘’“”…–，（）：",
    "//", "/*", "*/", "/**/", "// x\n", "# x\n", "=>", "->", "::", "...", "?.", "??", "**", "===",
    "!=", "<=", ">>>", "&&", "||", "++", "--", "+=", "??=", "${", "`", "'''", '"""', "\\u0041",
    "\\u{41}", "\\x41", "\\n", "\\", "0x", "0b1", "0o7", "1e", "1_0", "1n", "1L", "1f", ".5", "5.",
    "08", "#a", "#", "@a", "<a>", "</a>", "<>", "\ud800", "日本", "😀", "℘", "K", "ª",
]  # fmt: skip
_BARE = [
    "undefined", "NaN", "Infinity", "-", "+", "/", "//", "a/b", "a b", "a,b", "5px", "10%", "$x", "#1",
    "@x", "2024-01-01", "12:30", "v1.2.3", "x@y.z", "http://a.b/c?d=e", "C:\\a\\b", "./a", "<a>", "a|b",
    "*", "?", "!", "~", "^", "é", "日本", "“x”", "‘x’", "'x”", "«x»", "''x''", '""x""', "'x", '"x',
    "`x", "\\", "...", "[", "]", "{", "}", "(", ")", "[1,", "{a:", "{a: }", "[,]", "f(", "=> 1",
    "async x => 1", "function() {}", "new", "new X", "class {}", "/x/", "/[/]/g", "1..2", "0x", "1n",
    "?.x", "x?.[0]", "x!", "x as y", "<T>x", "{...a}", "a => {b}", "var x", "int x", "return x",
]  # fmt: skip
_QUOTES = [("'", "’"), ("'", "‘"), ('"', "“"), ('"', "”"), ('"', "'"), ("'", '"'), ('"', "`"),
           ('"', '\\"'), ("'", "\\'"), ('"', '""'), ('"', "«"), ("(", "（"), (",", "，"), ("=", "＝"),
           ("=", ": "), ("=", "=="), ("=", " := "), (" ", "\u00a0"), (",", ";"), (", ", " "),
           ("true", "True"), ("null", "None"), ("new ", ""), ("(", " ("), (".", "::"), ("-", "–")]  # fmt: skip


def noisy(text: str, rng: Rng, language: str) -> str:
    """The text with one to three things of noise; of any length, any characters."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = _once(text, rng, language)
    return text


def _once(text: str, rng: Rng, language: str) -> str:
    kind = rng.randrange(11)
    word = rng.choice(_RESERVED[language])
    if kind == 0:
        return _filled(rng.choice(_STATEMENTS[language]), text)
    if kind == 1:
        return rng.choice(_AROUND).replace("{{", "{").replace("}}", "}").replace("{}", text)
    if kind == 2:
        return _between_words(text, rng, [word, f" {word} ", f"{word};", f"{word} ", f";{word}"])
    if kind == 3:
        return _value(text, rng, word)
    if kind == 4:
        return _value(text, rng, rng.choice(_BARE))
    if kind == 5:
        return _between_words(text, rng, _TOKENS)
    if kind == 6:
        old, new = rng.choice(_QUOTES)
        return text.replace(old, new, rng.choice([1, 1, 2, -1]))
    if kind == 7:
        start = rng.randint(0, len(text))
        return rng.choice([text[:start], text[start:], text[: -rng.randint(1, 4)]])
    if kind == 8:
        start = rng.randint(0, len(text))
        end = start + rng.randint(1, 6)
        token: str = rng.choice(["", *_TOKENS])
        return text[:start] + token + text[end:]
    if kind == 9:
        return rng.choice([f"{word}", f"F;{word}", f"{word};F", f"{word} {text}", f"{text} {word}",
                           f"{text};{word}", f"{word};{text}", f"{word}({text})", f"{word}/{text}",
                           f"{word}.{text}", f"{word} = {text}", f"{word}: {text}"])  # fmt: skip
    name, bracket, rest = text.partition("(")
    return rng.choice([f"{word}{bracket}{rest}", f"{name}.{word}{bracket}{rest}",
                       f"{name}?.{bracket}{rest}", f"{name}<T>{bracket}{rest}", f"{name}[{word}]",
                       f"{name} {word}{bracket}{rest}", f"new {text}", f"{name}#{bracket}{rest}",
                       f"{name}{bracket}{bracket}{rest})", f"{name}{bracket}{word}={rest}"])  # fmt: skip


def _filled(template: str, text: str) -> str:
    return template.replace("{{", "\0").replace("}}", "\1").replace("{}", text).replace(
        "\0", "{").replace("\1", "}")  # fmt: skip


def _between_words(text: str, rng: Rng, added: Sequence[str]) -> str:
    """Something between two characters, mostly next to one that is no letter."""
    spots = [n for n, c in enumerate(text) if not c.isalnum()] or [0]
    spot = (
        rng.choice(spots) + rng.randint(0, 1) if rng.random() < 0.8 else rng.randint(0, len(text))
    )
    return text[:spot] + rng.choice(added) + text[spot:]


def _value(text: str, rng: Rng, value: str) -> str:
    """A bare word or the like in place of what stands behind one ``=``."""
    spots = [n + 1 for n, c in enumerate(text) if c == "="]
    if not spots:
        return f"{text}{value}"
    spot = rng.choice(spots)
    ends = [n for n in range(spot, len(text)) if text[n] in ",)"]
    end = rng.choice(ends[:3]) if ends else len(text)
    return text[:spot] + value + text[end:]
