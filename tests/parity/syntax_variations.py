"""Other ways to write one value: quotes, signs, operations, names, whatever Python can say there.

The operands of an operation come from the lists here and from gold values, literals all of them.
"""

from __future__ import annotations

import random
from typing import Any

from call_variations import NotHere, Source, ValueChange

Rng = random.Random

_ATOMS = [
    "1", "0", "3", "2.5", "'a'", "'ab'", "''", "True", "None", "b'x'", "1j", "...", "[]", "[1, 2]",
    "()", "(1,)", "{}", "{'a': 1}", "{1, 2}", "'%s'", "'%d'", "'%5.2f'", "f'{1}'", "-1",
]  # fmt: skip
_OPERATORS = ["+", "-", "*", "/", "//", "%", "&", "|", "^", "@", "**", "<<", ">>"]
_COMPARISONS = ["<", "==", "!=", ">=", "in", "not in", "is"]
_EXPRESSIONS = [
    "x", "x.y", "x.y.z", "f()", "f(1)", "f(a=1)", "f(a=g(b=2))", "f.g(1, b='c')", "f(**{'a': 1})",
    "x[0]", "x['a']", "x[1:2]", "x[0][1]", "[1, 2][0]", "'ab'[0]", "f()[0]", "x[f()]", "x[a, b]",
    "lambda: 1", "lambda x: x + 1", "{1, 2}", "[a for a in b]", "{a: 1 for a in b}",
    "(a for a in b)", "{a for a in b}", "1 < 2", "a and b", "1 or 2", "1 if x else 2", "*a", "*[1]",
    "f'{x}'", "f'x'", "f''", "(yield)", "await x", "(a := 1)", "b'x'", "1j", "...", "Ellipsis",
    "None", "True", "true", "false", "null", "undefined", "NaN", "inf", "1e999", "-1e999", "0x1f",
    "0b101", "0o17", "1_000", "1e3", "1.", ".5", "007", "1__0", "00", "0xg", "'a' 'b'", "'a' f'b'",
    "b'a' 'b'", "{**a}", "{**{'a': 1}}", "[*a]", "{'a'}", "{[1]: 2}", "{{}: 1}", "{1: 2, 1: 3}",
    "(1)", "()", "(1,)", "(1, 2)", "'", '"', "'a", "a b", "1 2", "a-b", "2024-01-01", "12:30",
    "a/b", "50%", "$5", "a@b.com", "#x", "//x", "<x>", "?", "!", "`x`", "\\", "%s", "…", "中文",
    "x\u00a0y", "not x", "not not 1", "--1", "- 1", "-'a'", "+[1]", "~x", "-(1)", "-(-1)",
    "2025-Q2", "john.doe@example.com", "foo + bar", "Paris - London", "all-inclusive", "open-air",
    "max-width", "id-123", "type+1", "list - 1", "value + 1", "ast - x",
    "decode_ast + 1", "len(x) + 1", "len('a') + 1", "foo(1) + 2", "foo.bar + 1",
    "'a' + ('b' or g())", "1 / 0 + print(1)", "1 + (await x)", "1 + (yield)", "1 + (lambda: x)",
    "1 + (lambda: x)()", "1 + (a := 2)", "1 + (a := b)", "[a for a in b] + [1]", "2 ** 3", "x ** 2",
    "'a' ** 2", "1 << 2", "1 << x", "'a'.b + 'c'", "'a'.upper() + 'b'", "1 + [list][0]",
    "1 + x[list]",
    "1 + (1 < x)", "1 + (1 < 0 < x)",
    "5(3) + 1", "1 + f'{x}'", "-list + 1", "self + 1", "a-b-c",
    "3-5 days", "9-5", "24/7", "and/or", "A/B", "1-800-FLOWERS", "Ü-Bahn", "上海-北京", "C++",
    "AT&T",
    "-0", "+True", "~False", "not None", "-1j", "-x", "-(1 + 1)",
]  # fmt: skip


def _text_only(value: Any) -> str:
    if type(value) is not str:
        raise NotHere
    return value


def _quoted(value: Any, rng: Rng) -> Source:
    """The same text in another notation; whether it stays the same is the evaluators' affair."""
    text = _text_only(value)
    plain = repr(text)[1:-1]
    return Source(
        rng.choice(
            [
                '"' + text + '"',
                "'" + text + "'",
                "'''" + text + "'''",
                '"""' + text + '"""',
                "r'" + text + "'",
                "u'" + plain + "'",
                "f'" + text + "'",
                "b'" + text + "'",
                "Rb'" + text + "'",
                "“" + text + "”",
                "`" + text + "`",
                "‘" + text + "’",
                "''" + text + "''",
                '\\"' + text + '\\"',
                "'" + text,
                text + "'",
                "('" + plain + "')",
                "'" + plain + "' ''",
                "'" + plain + "\\\n'",
                "'" + plain + "\n'",
            ]
        )
    )


def _escaped(value: Any, rng: Rng) -> Source:
    text = _text_only(value)
    how = rng.randrange(5)
    if how == 0:
        return Source("'" + "".join(f"\\u{ord(c):04x}" for c in text if ord(c) < 65536) + "'")
    if how == 1:
        return Source("'" + "".join(f"\\x{ord(c):02x}" if c == " " else c for c in text) + "'")
    place = rng.randint(0, len(text))
    part = rng.choice(["\\d", "\\n", "\\t", "\\0", "\\'", "\\8", "\\N{BULLET}", "\\N{no}", "\\xg",
                       "\\u12", "\\\\", "\\ud800", "\\U0001F642", "\\U99999999"])  # fmt: skip
    return Source(f"'{text[:place]}{part}{text[place:]}'")


def _bare(value: Any, rng: Rng) -> Source:
    return Source(str(value))


def _signed(value: Any, rng: Rng) -> Source:
    return Source(rng.choice(["+", "-", "~", "not ", "--", "+-", "- "]) + repr(value))


def _neutral(value: Any, rng: Rng) -> Source:
    """An operation that makes the value of itself."""
    shown = repr(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, str, list)):
        raise NotHere
    if isinstance(value, str):
        cut = rng.randint(0, len(value))
        forms = [
            f"{value[:cut]!r} + {value[cut:]!r}",
            f"{shown} * 1",
            f"'' + {shown}",
            f"'%s' % {shown}",
            f"'%s' % ({shown},)",
            f"'' + ({shown} if 1 else 'b')",
            f"'' + [{shown}][0]",
            f"{value[:cut]!r} + f{value[cut:]!r}",
            f"'' + ('' or {shown})",
        ]
    elif isinstance(value, list):
        cut = rng.randint(0, len(value))
        forms = [f"{value[:cut]!r} + {value[cut:]!r}", f"{shown} * 1", f"1 * {shown}"]
    else:
        forms = [
            f"{shown} + 0",
            f"{shown} * 1",
            f"0 + {shown}",
            f"{value - 1!r} + 1",
            f"{shown} // 1",
            f"{shown} / 1",
            f"{shown} | 0",
            f"{shown} - 0",
            f"({shown}, 2)[0] + 0",
            f"0 + ({shown} if 1 < 2 else 3)",
            f"{shown} % 10",
        ]
    return Source(rng.choice(forms))


def _operation(value: Any, rng: Rng) -> Source:
    return Source(_any_operation(rng, 3))


def _any_operation(rng: Rng, depth: int) -> str:
    left, right = (_operand(rng, depth - 1) for _ in range(2))
    return f"{left} {rng.choice(_OPERATORS)} {right}"


def _operand(rng: Rng, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.5:
        return rng.choice(_ATOMS)
    a, b, c = (_operand(rng, depth - 1) for _ in range(3))
    return rng.choice(
        [
            f"({a} {rng.choice(_OPERATORS)} {b})", f"({rng.choice(['-', '+', '~', 'not '])}{a})",
            f"({a} if {b} else {c})", f"({a} {rng.choice(['and', 'or'])} {b})", f"({a})[{b}]",
            f"({a} {rng.choice(_COMPARISONS)} {b})", f"({a})[{b}:]",
            f"[{a}, {b}]", f"({a}, {b})", f"{{{a}: {b}}}", f"{{{a}, {b}}}", f"[*{a}, {b}]",
            f"{{**{a}, 'k': {b}}}", f"({a} < {b} == {c})", f"({a})[{b}:{c}]", f"(lambda: {a})",
        ]
    )  # fmt: skip


def _huge(value: Any, rng: Rng) -> Source:
    """Integers about as long as Python prints them, and products that are longer."""
    nines = "9" * rng.choice([4299, 4300, 4301])
    return Source(
        rng.choice(
            [
                nines,
                f"-{nines}",
                f"{nines} * 10",
                f"[{nines} * {nines}]",
                f"{nines} + 1",
                f"{nines} * {nines}",
                "0x" + "f" * 4000,
            ]
        )
    )


def _deep(value: Any, rng: Rng) -> Source:
    n = rng.choice([20, 90, 150, 198, 250])
    return Source(
        rng.choice(
            [
                "[" * n + repr(value) + "]" * n,
                "(" * n + repr(value) + ")" * n,
                "-" * n + "1",
                "{'a': " * n + "1" + "}" * n,
                "1" + " + 1" * n,
                "f(a=" * n + "1" + ")" * n,
                "x" + "[0]" * n,
                "x" + ".a" * n,
                "(1,) + " * n + "()",
                "[" * n + "1 + 1" + "]" * n,
            ]
        )
    )


SYNTAX_KINDS: dict[str, ValueChange] = {
    "quoted otherwise": _quoted,
    "with escapes": _escaped,
    "without quotes": _bare,
    "with a sign": _signed,
    "as an operation": _neutral,
    "an operation": _operation,
    "another expression": lambda v, r: Source(r.choice(_EXPRESSIONS)),
    "a huge integer": _huge,
    "nested deep": _deep,
    "a call around it": lambda v, r: Source(
        r.choice(["f(a={!r})", "f({!r})", "str({!r})"]).format(v)
    ),
    "a key in place of a value": lambda v, r: Source(f"{{{v!r}: 1}}"),
    "a comment after it": lambda v, r: Source(f"{v!r} # note\n"),
    "spaced": lambda v, r: Source(
        r.choice(["\n{!r}\n", "\t{!r}", " {!r} ", "\u00a0{!r}", "\x0c{!r}"]).format(v)
    ),
}
