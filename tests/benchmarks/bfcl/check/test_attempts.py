"""Attempted calls that no decoder reads, and words that only mention calls."""

from __future__ import annotations

import json

import pytest

from ace_ray.benchmarks.bfcl.check.single import attempts_call, check_single
from ace_ray.benchmarks.bfcl.decode.calls import Answer

CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}
DOCUMENT = {"name": "get_weather", "parameters": {"type": "dict", "properties": {}}}


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n<tool_call name="f" arguments={"a": 1}/>\n</tool_call>',
        "<function=get_weather>\n<parameter=city>Paris",
        "[TOOL_CALLS]get_weather{",
        "<|channel|>commentary to=functions.get_weather <|message|>{",
        "Action: get_weather\nAction Input: Paris",
        json.dumps(CALL)[:-1],
        json.dumps(json.dumps({"tool_calls": [CALL]})),
        '<|im_start|>\n{"arguments": {"city": "Paris"}, "name": "get_weather"}',
    ],
)
def test_markup_and_json_of_calls_are_attempts_anywhere(text: str) -> None:
    assert attempts_call(text)
    assert attempts_call(f"I will look it up.\n{text}")


@pytest.mark.parametrize(
    "text",
    [
        "[f(a=1, b=]",
        "get_weather(city='Par",
        "get\\_weather(city='Paris');",
        "[{'get_weather': {'city': 'Paris'}}]",
        'get_weather\n{"city": "Paris"}',
        "```python\n[get_weather(city='Paris')]\n```\nThis asks for the weather.",
        "Here is the call:\n\n[get_weather(city='Paris')]",
        "get_weather(city='Paris')\n\nThis asks for the weather.",
    ],
)
def test_calls_at_the_beginning_are_attempts(text: str) -> None:
    assert attempts_call(text)


@pytest.mark.parametrize(
    "text",
    [
        "get_weather(city='Paris') would give the weather, not the time.",
        "get_weather(city) is not what you need (it gives the weather).",
        "No function fits. If there were one, a call could be\n`get_time(city='Paris')`",
        "I would put it between <tool_call> tags, but there is nothing to call.",
        f"What I was offered is {json.dumps(DOCUMENT)}, which does not help.",
        "```python\ndef area(a, b):\n    return a * b\n```",
        '<function_call> {"name": "no_function", "arguments": {}}',
        "out_of_domain(user_query='Who wrote it?');",
    ],
)
def test_words_that_mention_calls_are_a_refusal(text: str) -> None:
    assert not attempts_call(text)
    verdicts = check_single("irrelevance", (), None, Answer(text, ()))
    assert verdicts["strict"].valid


def test_hostile_texts_end_at_once() -> None:
    for piece in ("[", "f(", "`", "'", '{"name":', "<|x|>", "<tool_call>\n", "Action:\n", "\\'"):
        attempts_call(piece * 200_000)
