"""Which of BFCL's answers hold calls that nobody read, and what they would be worth."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.decode import decode
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.gold import gold_of
from ace_ray.benchmarks.diagnosis import second_reading
from ace_ray.benchmarks.results import SecondReading
from ace_ray.types import Completion, Entry, Episode, ToolAnswer


@cache
def bfcl(mode: str) -> BFCL:
    return BFCL.from_options({"data": "mini", "mode": mode})


def entry(category: str) -> Entry:
    return next(e for e in bfcl("prompt").dataset() if e.category == category)


def answered(mode: str, text: str) -> Episode:
    """The episode of an answer in which the run's parser, if there is one, read no call."""
    tools = ToolAnswer(text) if mode == "native" else None
    episode = Episode(messages=[{"role": "user", "content": "q"}])
    episode.record(Completion(text, tools=tools))
    if tools is not None:
        episode.state = {"turns": [[Answer(text, ()).as_json()]], "ended": ""}
    return episode


def fenced(mode: str, one: Entry) -> str:
    """The gold calls as a model writes them in a fenced block, with the names that it is shown."""
    gold = gold_of(one, {})
    assert gold
    dots = "_" if mode == "native" else "."
    calls = [
        {"name": name.replace(".", dots), "arguments": args}
        for call in decode(gold.right.output)
        for name, args in call.items()
    ]
    return f"I call it.\n```json\n{json.dumps(calls[0] if len(calls) == 1 else calls)}\n```"


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("category", ["simple_python", "parallel_multiple", "live_multiple"])
def test_right_calls_in_a_fenced_block(mode: str, category: str) -> None:
    one, benchmark = entry(category), bfcl(mode)
    episode = answered(mode, fenced(mode, one))
    verdicts = benchmark.verdicts(one, episode)
    assert not any(verdict.valid for verdict in verdicts.values())
    found = second_reading(benchmark, one, episode)
    assert found == SecondReading("fenced_json", "answer", 1)


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_wrong_calls_in_a_native_format_stay_wrong(mode: str) -> None:
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    found = second_reading(bfcl(mode), entry("simple_python"), answered(mode, text))
    assert found == SecondReading("hermes", "answer", 1)


def test_a_call_where_none_was_right_is_wrong() -> None:
    text = '```json\n{"name": "f", "arguments": {}}\n```'
    one, episode = entry("irrelevance"), answered("native", text)
    assert bfcl("native").verdicts(one, episode)["official"].valid
    assert second_reading(bfcl("native"), one, episode) == SecondReading("fenced_json", "answer", 1)


def test_what_was_read_is_not_read_again() -> None:
    one = entry("simple_python")
    gold = gold_of(one, {})
    assert gold
    assert second_reading(bfcl("prompt"), one, gold.right) is None
    wrong = Episode(output='[f(x="```json {}```")]')
    assert second_reading(bfcl("prompt"), one, wrong) is None
    native = answered("native", "```json\n{}\n```")
    native.state = {"turns": [[{"content": "", "calls": [["f", "{}"]]}]], "ended": ""}
    assert second_reading(bfcl("native"), one, native) is None


def test_a_failed_inference_has_no_answer() -> None:
    episode = answered("native", '```json\n{"name": "f", "arguments": {}}\n```')
    episode.state["ended"] = "inference"
    assert second_reading(bfcl("native"), entry("simple_python"), episode) is None


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_of_a_conversation_the_answers_are_counted(mode: str) -> None:
    one = entry("multi_turn_base")
    text = '```json\n{"name": "ls", "arguments": {}}\n```'
    read: Any = "[ls()]" if mode == "prompt" else {"content": text, "calls": [["ls", "{}"]]}
    lost: Any = text if mode == "prompt" else {"content": text, "calls": []}
    done: Any = "Done." if mode == "prompt" else {"content": "Done.", "calls": []}
    episode = Episode(state={"turns": [[read, done], [lost], [lost]], "ended": ""})
    found = second_reading(bfcl(mode), one, episode)
    assert found == SecondReading("fenced_json", "answer", 2)
