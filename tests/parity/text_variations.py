"""What is done to an output as a text: prose and fences around it, other formats, broken pieces."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

TextChange = Callable[[str, random.Random], str | None]
Rng = random.Random

_BEFORE = [
    "Sure, here it is:\n", "Step [1]: ", "<think>maybe [F(a=1)]?</think>\n", "<think>hm</think>",
    "<think>[", "] ", "[ ", "[]", "[x] ", "[1, 2]\n", "calls = ", "print(", "return ", " ", "\n\n",
    "\t", "\ufeff", "\u200b", "\u00a0", "```python\n", "- ", "> ", "1. ", "(", "user: ", "好的：",
    "[[", "'", '"', "# comment\n", "\\", "\x00", "\x0c", "await ", "not ", "-", "*", "lambda: ",
]  # fmt: skip
_AFTER = [
    ".", "\n", " ", "\n```", "\n\nDone [1].", ")", "]", "[", ",", ";", " # done", "\n# done",
    "[0]", "[0:1]", "()", ".x", " + []", "\\", "\x00", "\ufeff", "\u200b", "'", '"',
    " if 1 else 2", " or []", "\r\n", "\x1a", "。", "<|im_end|>", "</s>", "!", " is None",
    "\n[F(a=1)]", ", [F(a=1)]",
]  # fmt: skip
# Without a `*`, which makes a large text of a text and a number. Names and calls that get into an
# operation by chance are refused by the child.
_TOKENS = [
    "+1", "-", "(", ")", "[", "]", "{", "}", ",", "'", '"', "f'", "x", " if 1 else 2", " or 1",
    "<1", "[0]", "not ", "lambda:0", "None", "True", "1.5", "\\", " ", "=", "'%s'%", "1+", "'a'+",
    ":", ".", "\n", "\t", "\r", "\x0b", "\x00", "\x1f", "\u3000", "é", "中", "\ud83d", "🙂", "#",
    ";", "`", "!",
]  # fmt: skip


def _swap(old: str, *new: str) -> TextChange:
    return lambda text, rng: text.replace(old, rng.choice(new))


def _swap_one(old: str, *new: str) -> TextChange:
    return lambda text, rng: text.replace(old, rng.choice(new), 1)


def _inner(text: str) -> str:
    return text[1:-1]


def _cut(text: str, rng: Rng) -> str:
    return text[: rng.randint(0, len(text))]


def _fuzzed(text: str, rng: Rng) -> str:
    for _ in range(rng.randint(1, 3)):
        marks = [n + 1 for n, char in enumerate(text) if char in "=:,(["]
        near = marks and rng.random() < 0.6
        place = rng.choice(marks) if near else rng.randint(0, len(text))
        how = rng.random()
        if how < 0.6:
            text = text[:place] + rng.choice(_TOKENS) + text[place:]
        elif how < 0.8:
            text = text[:place] + text[place + 1 :]
        else:
            text = text[:place] + text[place : place + rng.randint(1, 8)] + text[place:]
    return text


def _spread(text: str, rng: Rng) -> str:
    """Blanks between the tokens."""
    for token in ",=([":
        text = text.replace(token, token + rng.choice([" ", "\n", "\n    ", "\t", ""]))
    return text


TEXT_KINDS: dict[str, TextChange] = {
    "as it is": lambda text, rng: text,
    "something before": lambda text, rng: rng.choice(_BEFORE) + text,
    "something after": lambda text, rng: text + rng.choice(_AFTER),
    "something around": lambda text, rng: rng.choice(_BEFORE) + text + rng.choice(_AFTER),
    "in a fence": lambda text, rng: f"```{rng.choice(['', 'python', 'json'])}\n{text}\n```",
    "in words": lambda text, rng: f"I will call {text} now.",
    "twice": lambda text, rng: text + rng.choice(["", "\n", ", ", " and ", "; "]) + text,
    "one list a call": lambda text, rng: text.replace("), ", ")], ["),
    "no brackets": lambda text, rng: _inner(text),
    "other brackets": lambda text, rng: rng.choice(
        [
            "({})",
            "({},)",
            "{{{}}}",
            "[[{}]]",
            "([{}])",
            "[({})]",
            "<{}>",
            "【{}】",
            "[{},]",
            "[,{}]",
            "[{}",
            "{}]",
            "[{}]]",
            "[*[{}]]",
        ]
    ).format(_inner(text)),
    "spaced": _spread,
    "no spaces": lambda text, rng: "".join(text.split()),
    "line ends": _swap(" ", "\r\n", "\n", "\r", "\x0b", "\u2028"),
    "odd spaces": _swap(" ", "\u00a0", "\u3000", "\t", "  "),
    "double quotes": _swap("'", '"', '\\"', "’", "''", "`", ""),
    "one quote changed": _swap_one("'", '"', "’", "", "''", "\\'"),
    "wide commas": _swap(",", "，", "、", ";", ",,"),
    "wide parentheses": _swap("(", "（", "[", "{"),
    "one parenthesis gone": _swap_one(")", "", "))"),
    "equals signs": _swap("=", ":", "==", " = ", "=>", ":="),
    "one equals sign": _swap_one("=", ":", "==", " = ", ""),
    "upper case": lambda text, rng: rng.choice([text.upper(), text.lower(), text.swapcase()]),
    "true and false": lambda text, rng: text.replace("True", "true").replace("False", "false"),
    "as JSON": lambda text, rng: json.dumps({"name": "f", "arguments": text}),
    "as a block": lambda text, rng: f'<tool_call>{{"name": "f", "arguments": {text}}}</tool_call>',
    "escaped": lambda text, rng: rng.choice(
        [
            repr(text),
            text.encode("unicode_escape").decode(),
            text.replace("'", "&#39;"),
            text.replace("\\", "\\\\"),
            json.dumps(text),
        ]
    ),
    "cut": _cut,
    "end only": lambda text, rng: text[rng.randint(0, len(text)) :],
    "fuzzed once": _fuzzed,
    "fuzzed twice": lambda text, rng: _fuzzed(_fuzzed(text, rng), rng),
    "fuzzed thrice": lambda text, rng: _fuzzed(_fuzzed(_fuzzed(text, rng), rng), rng),
    "nothing like it": lambda text, rng: rng.choice(
        [
            "",
            " ",
            "\n",
            "[]",
            "[[]]",
            "()",
            "{}",
            "None",
            "hello",
            "[hello]",
            "[1]",
            "['a']",
            "[f]",
            "[f()]",
            "f()",
            "[f(), g]",
            "[()]",
            "[f(),]",
            "]",
            "[",
            "][",
            "[None]",
            "[...]",
            "null",
            "0",
            "[f() for x in y]",
            "[f()] + [g()]",
            "[f(x)]",
        ]
    ),
    "missing": lambda text, rng: None,
    "very long": lambda text, rng: rng.choice(
        [
            text + " " * 70_000,
            "x" * 70_000 + text,
            text.replace("'", "'" + "a" * 70_000, 1),
            text + text * 40,
        ]
    ),
}
