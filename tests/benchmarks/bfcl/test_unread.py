"""Answers with calls that the run's parser did not read are found by a second reading."""

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

CALL = '```json\n{"name": "f", "arguments": {}}\n```'


@cache
def bfcl(mode: str) -> BFCL:
    return BFCL.from_options({"data": "mini", "mode": mode})


def entry(category: str) -> Entry:
    return next(e for e in bfcl("prompt").dataset() if e.category == category)


def answered(mode: str, text: str, **state: Any) -> Episode:
    """Make the episode of an answer in which the run's parser read no call."""
    tools = ToolAnswer(text) if mode == "native" else None
    episode = Episode(messages=[{"role": "user", "content": "q"}])
    episode.record(Completion(text, tools=tools))
    if tools is not None:
        episode.state = {"turns": [[Answer(text, ()).as_json()]], "ended": "", **state}
    return episode


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_right_calls_in_a_fenced_block_are_found(mode: str) -> None:
    dots = "_" if mode == "native" else "."
    for category in ("simple_python", "parallel_multiple"):
        one = entry(category)
        gold = gold_of(one, {})
        assert gold
        calls = [
            {"name": name.replace(".", dots), "arguments": args}
            for call in decode(gold.right.output)
            for name, args in call.items()
        ]
        text = f"I call it.\n```json\n{json.dumps(calls[0] if len(calls) == 1 else calls)}\n```"
        episode = answered(mode, text)
        assert not any(v.valid for v in bfcl(mode).verdicts(one, episode).values())
        found = second_reading(bfcl(mode), one, episode)
        assert found == SecondReading("fenced_json", "answer", 1)


def test_a_call_where_none_was_right_is_found_too() -> None:
    one, episode = entry("irrelevance"), answered("native", CALL)
    assert bfcl("native").verdicts(one, episode)["official"].valid
    assert second_reading(bfcl("native"), one, episode) == SecondReading("fenced_json", "answer", 1)


def test_answers_that_were_read_or_failed_are_not_read_again() -> None:
    one = entry("simple_python")
    gold = gold_of(one, {})
    assert gold
    assert second_reading(bfcl("prompt"), one, gold.right) is None
    wrong = Episode(output='[f(x="```json {}```")]')
    assert second_reading(bfcl("prompt"), one, wrong) is None
    turns = [[{"content": "", "calls": [["f", "{}"]]}]]
    for state in ({"turns": turns}, {"ended": "inference"}):
        assert second_reading(bfcl("native"), one, answered("native", CALL, **state)) is None


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_unread_answers_of_a_conversation_are_counted(mode: str) -> None:
    read: Any = "[ls()]" if mode == "prompt" else {"content": CALL, "calls": [["ls", "{}"]]}
    lost: Any = CALL if mode == "prompt" else {"content": CALL, "calls": []}
    done: Any = "Done." if mode == "prompt" else {"content": "Done.", "calls": []}
    episode = Episode(state={"turns": [[read, done], [lost], [lost]], "ended": ""})
    found = second_reading(bfcl(mode), entry("multi_turn_base"), episode)
    assert found == SecondReading("fenced_json", "answer", 2)
