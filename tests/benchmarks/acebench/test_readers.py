from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.categories import GENERATION, NORMAL
from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.gold import alternatives, function_name, render_gold
from ace_ray.benchmarks.acebench.native import NotJson, arguments_of, calls_of, load_json
from ace_ray.benchmarks.acebench.readers import (
    READERS,
    Compared,
    check_read,
    fenced,
    hermes,
    official,
    openai,
    read_all,
)
from ace_ray.benchmarks.acebench.score.summary import SummaryRow
from ace_ray.records import Entry

CALL = '{"name": "F", "arguments": {"a": "x", "b": [1, null]}}'
READ = "[F(a='x', b=[1, None])]"


def test_the_readers_have_names() -> None:
    assert list(READERS) == ["official", "hermes", "openai", "fenced"]
    assert read_all(CALL, ["openai", "official"]) == {"openai": READ, "official": CALL}
    assert list(read_all(CALL, ["openai", "official"])) == ["openai", "official"]


@pytest.mark.parametrize("text", ["", "[F(a=1)]", CALL, "```\nx\n```"])
def test_official_leaves_every_text(text: str) -> None:
    assert official(text) == text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (f"<tool_call>{CALL}</tool_call>", READ),
        (f"Let me see.\n<tool_call>\n{CALL}\n</tool_call>\nDone.", READ),
        (
            f"<tool_call>{CALL}</tool_call> <tool_call>{CALL}</tool_call>",
            f"[{READ[1:-1]}, {READ[1:]}",
        ),
        (f"<tool_call>{CALL}", READ),
        ('<tool_call>{"name": "a.b", "arguments": "{}"}</tool_call>', "[a.b()]"),
        ('<tool_call>{"arguments": {}, "name": "F", "id": 5}</tool_call>', "[F()]"),
        ('<tool_call>{"name": "F"}</tool_call>', "[F()]"),
        ('<tool_call>{"name": "F", "arguments": null}</tool_call>', "[F()]"),
    ],
)
def test_hermes(text: str, read: str) -> None:
    assert hermes(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "[F(a='x')]",
        CALL,
        "<tool_call></tool_call>",
        "<tool_call>",
        f"<tool_call>{CALL}</tool_call><tool_call>{{</tool_call>",
        f"<tool_call>[{CALL}]</tool_call>",
        "<tool_call>[F(a='x')]</tool_call>",
        '<tool_call>{"name": "F", "a": 1}</tool_call>',
        '<tool_call>{"name": "F", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "F", "arguments": {"a b": 1}}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "F G", "arguments": {}}</tool_call>',
    ],
)
def test_what_hermes_leaves(text: str) -> None:
    assert hermes(text) == text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (CALL, READ),
        (f"\n {CALL} ", READ),
        (f"[{CALL}]", READ),
        ('{"name": "F", "arguments": "{\\"a\\": 1}"}', "[F(a=1)]"),
        (f'{{"function": {CALL}}}', READ),
        (f'{{"type": "function", "id": "x", "function": {CALL}}}', READ),
        (f'{{"tool_calls": [{{"type": "function", "function": {CALL}}}]}}', READ),
        (f'{{"role": "assistant", "content": null, "tool_calls": [{CALL}]}}', READ),
        (f'[{CALL}, {{"function": {CALL}}}]', f"[{READ[1:-1]}, {READ[1:]}"),
        ('{"name": "F", "arguments": {"a": 1, "a": 2}}', "[F(a=2)]"),
        ('{"name": "F", "arguments": {"a": true, "b": -1.5}}', "[F(a=True, b=-1.5)]"),
    ],
)
def test_openai(text: str, read: str) -> None:
    assert openai(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[F(a='x')]",
        "[1, 2]",
        '["Missing necessary parameters (a) for the api (F)"]',
        f"The call: {CALL}",
        f"{CALL} {CALL}",
        '{"tool_calls": []}',
        '{"tool_calls": null}',
        '{"name": "F"}',
        '{"name": "F", "arguments": null}',
        '{"name": "F", "arguments": "x"}',
        '{"name": "F", "arguments": "\\"{}\\""}',
        '{"name": "F", "arguments": {"a": NaN}}',
        '{"name": "F", "arguments": {"a": 1e999}}',
        '{"name": "F", "arguments": {"from": 1}}',
        '{"name": "F", "arguments": {"a": "line\nbreak"}}',
        f'[{CALL}, "x"]',
    ],
)
def test_what_openai_leaves(text: str) -> None:
    assert openai(text) == text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("```python\n[F(a=1)]\n```", "[F(a=1)]"),
        ("```\n[F(a=1)]\n```", "[F(a=1)]"),
        ("```[F(a=1)]```", "[F(a=1)]"),
        ("``` py \r\n[F(a=1)]\r\n``` and more", "[F(a=1)]"),
        (f"Here:\n```json\n{CALL}\n```", READ),
        (f"```JSON\n[{CALL}]\n```\n```\n[G()]\n```", READ),
        ("```\n\n```", ""),
    ],
)
def test_fenced(text: str, read: str) -> None:
    assert fenced(text) == read


@pytest.mark.parametrize(
    "text",
    ["", "[F(a=1)]", "```python\n[F(a=1)]", "```bash\nls\n```\n```\n[F()]\n```", "``[F()]``"],
)
def test_what_fenced_leaves(text: str) -> None:
    assert fenced(text) == text


def wide(inner: str) -> str:
    return f'{{"name": "F", "arguments": {{"a": {inner}}}}}'


HOSTILE = [
    "[" * 1_000_000,
    "{" * 1_000_000,
    '{"a":' * 100_000,
    "[[" * 250 + "]]" * 250,
    "<tool_call>" * 100_000,
    "<tool_call>" + '{"name":' * 50_000,
    "```" * 100_001,
    "```" + " " * 200_000,
    "``` \t" * 50_000 + "x",
    "```json\n" + "[" * 300_000 + "\n```",
    '"' * 500_000,
    '{"' + "\\" * 300_001,
    wide("9" * 4_301),
    wide("9" * 100_000),
    wide("[" * 201 + "]" * 201),
    wide('"' + "x" * 200_000 + '"'),
    wide("1e" + "9" * 10_000),
    "\ud800```\ud800{",
    "\x00" * 100_000,
    '{"name": "__import__(\'os\').system", "arguments": {}}',
    '{"name": "F", "arguments": {"a=1), G(b": 1}}',
]


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_left_or_read_within_bounds(
    text: str, read: Callable[[str], str]
) -> None:
    for wrapped in (text, f"<tool_call>{text}</tool_call>", f"```\n{text}\n```"):
        found = read(wrapped)
        assert len(found) <= len(wrapped)
        assert "F(" not in found or found in wrapped


def test_a_lone_surrogate_becomes_an_escape() -> None:
    assert openai('{"name": "F", "arguments": {"a": "\\ud800"}}') == "[F(a='\\ud800')]"


def test_bounds_of_json() -> None:
    assert load_json("[" * 200 + "]" * 200)
    assert load_json("9" * 4_300) == 10**4_300 - 1
    assert load_json('"[[[[\\"' + "[" * 500 + '"').count("[") == 504
    for text in ("[" * 201 + "]" * 201, "9" * 4_301, " " * 131_073, "", "1 2", "NaN", "1e999"):
        with pytest.raises(NotJson):
            load_json(text)


def test_the_bound_on_digits_is_not_the_interpreters() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert load_json("-" + "9" * 4_300) == 1 - 10**4_300
        with pytest.raises(NotJson, match="4300 digits"):
            load_json("9" * 4_301)
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("value", [None, 1, "F", [], [[]], {}, {"name": "F", "arguments": 1}])
def test_values_that_are_no_calls(value: Any) -> None:
    with pytest.raises(NotJson):
        calls_of(value)
    with pytest.raises(NotJson):
        arguments_of([value])


def test_what_readers_gain_and_lose() -> None:
    data = {
        "function": [
            {"name": "F", "parameters": {"properties": {"a": {"type": "string"}}, "required": []}}
        ]
    }
    entry = Entry("acebench", "normal_atom_bool", "en", "i", data, {"F": {"a": "x"}})
    right, call = "[F(a='x')]", '{"name": "F", "arguments": {"a": "x"}}'
    answers = [right, call, f"```python\n{right}\n```", f"{right} ```\n[]\n```", "none"]
    names = ["official", "openai", "fenced"]
    compared = Compared(names)
    rows = [
        SummaryRow("en", entry.category, str(i), str(i), 0, "scored", check_read(entry, a, names))
        for i, a in enumerate(answers)
    ]
    assert list(compared.through(rows)) == rows
    report = compared.result()
    assert report == {
        "n": 5,
        "official": {
            "official": {"valid": 3, "gained": 0, "lost": 0},
            "openai": {"valid": 4, "gained": 1, "lost": 0},
            "fenced": {"valid": 2, "gained": 0, "lost": 1},
        },
        "strict": {
            "official": {"valid": 1, "gained": 0, "lost": 0},
            "openai": {"valid": 2, "gained": 1, "lost": 0},
            "fenced": {"valid": 2, "gained": 1, "lost": 0},
        },
    }


# --- the same verdict in every format --------------------------------------------------------


def objects(entry: Entry) -> list[dict[str, Any]]:
    return [
        {"name": function_name(entry, key), "arguments": arguments}
        for key, arguments in alternatives(entry)[0].items()
    ]


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_message(calls: list[dict[str, Any]]) -> str:
    wrapped = [
        {"type": "function", "function": {**call, "arguments": text_of(call["arguments"])}}
        for call in calls
    ]
    return text_of({"role": "assistant", "tool_calls": wrapped})


FORMATS: dict[str, tuple[str, Callable[[Entry], str]]] = {
    "hermes": (
        "hermes",
        lambda e: "\n".join(f"<tool_call>\n{text_of(c)}\n</tool_call>" for c in objects(e)),
    ),
    "openai_list": ("openai", lambda e: text_of(objects(e))),
    "openai_message": ("openai", lambda e: as_message(objects(e))),
    "fenced_json": ("fenced", lambda e: f"```json\n{text_of(objects(e))}\n```"),
    "fenced_python": ("fenced", lambda e: f"Sure:\n```python\n{render_gold(e)}\n```"),
}


def same_verdicts(entries: list[Entry], written: str) -> int:
    """Holds the read gold to the verdict of the official text; returns how many are valid."""
    reader, write = FORMATS[written]
    valid = 0
    for entry in entries:
        plain = check(entry, render_gold(entry))
        read = check(entry, READERS[reader](write(entry)))
        for rules, verdict in plain.items():
            assert read[rules].valid == verdict.valid, (entry.key, rules)
            valid += verdict.valid
    return valid


@pytest.mark.parametrize("written", FORMATS)
def test_mini_gold_in_every_format(written: str) -> None:
    normal = [entry for entry in load(MINI, categories=NORMAL)]
    assert same_verdicts(normal, written) == 2 * len(normal)


@pytest.mark.nightly
@pytest.mark.parametrize("written", FORMATS)
def test_published_gold_in_every_format(written: str, shared_data: Path) -> None:
    normal = load(shared_data, categories=NORMAL)
    assert same_verdicts(normal, written) > 1.9 * len(normal)


def test_every_reader_leaves_the_official_gold(shared_data: Path) -> None:
    for entry in load(shared_data, categories=GENERATION):
        text = render_gold(entry)
        assert set(read_all(text, READERS).values()) == {text}, entry.key
