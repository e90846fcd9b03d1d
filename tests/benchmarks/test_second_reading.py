"""The second reading of one episode, and how it is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.diagnosis import (
    Answers,
    answer_texts,
    second_reading,
    texts_of,
)
from ace_ray.benchmarks.results import SecondReading
from ace_ray.types import Entry, Episode, Verdict

FENCED = '```json\n{"name": "f", "arguments": {"a": 1}}\n```'


class Toy(Benchmark):
    """``[f(a=1)]`` is right."""

    name = "toy"

    def entries(self) -> list[Entry]:
        return [Entry(id="x", prompt="call f")]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict(episode.output == "[f(a=1)]", "no_call")

    def unread(self, entry: Entry, episode: Episode) -> Answers:
        return () if episode.output.startswith("[") else [answer_texts(episode, episode.output)]


class Talk(Toy):
    def unread(self, entry: Entry, episode: Episode) -> Answers:
        return [texts_of(message) for message in episode.messages]


class Plain(Benchmark):
    name = "plain"
    entries = Toy.entries
    check = Toy.check


(ENTRY,) = Toy().dataset()


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def read(output: str, benchmark: Benchmark | None = None, **more: Any) -> SecondReading | None:
    return second_reading(benchmark or Toy(), ENTRY, Episode(output=output, **more))


def test_calls_that_were_not_read_are_found() -> None:
    assert read(FENCED) == SecondReading("fenced_json", "answer", 1)


def test_what_was_read_or_holds_no_call_is_not_read_again() -> None:
    assert read("[f(a=2)]") is None
    assert read("I do not know.") is None
    assert read(FENCED, Plain()) is None, "a benchmark of texts has no second reading"


def test_the_answers_of_an_episode_are_counted_under_the_most_frequent_reader() -> None:
    hermes = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    messages = [said(FENCED), said("Done."), said(hermes), said(FENCED)]
    found = read("", Talk(), messages=messages)
    assert found == SecondReading("fenced_json", "answer", 3)


def test_reasoning_that_never_ended_may_hold_the_answer() -> None:
    found = read("", reasoning=FENCED, reasoning_truncated=True)
    assert found == SecondReading("fenced_json", "reasoning", 1)
    assert read("", reasoning=FENCED) is None, "what was only thought is no answer"
    assert read("No.", reasoning=FENCED) is None


def test_a_message_is_read_as_the_model_wrote_it() -> None:
    message = {**said(""), "text": "t", "raw": f"<think>{FENCED}</think>the rest"}
    assert texts_of(message) == ["t", "the rest"]
    assert texts_of(said("only")) == ["only"]
    assert texts_of({"content": None, "text": 1, "raw": None}) == []
    never = {**said(""), "reasoning": FENCED, "raw": f"<think>{FENCED}"}
    assert texts_of(never) == []
    other = {**said(""), "reasoning": FENCED, "raw": f"[THINK]{FENCED}[/THINK]the rest"}
    assert texts_of(other) == ["[/THINK]the rest"]
    found = read("", messages=[never], reasoning=FENCED, reasoning_truncated=True)
    assert found is not None
    assert found.where == "reasoning"
    raw = {**said("f(a=1)"), "raw": '[TOOL_CALLS]f{"a": 1}'}
    assert answer_texts(Episode(messages=[raw]), "f") == ["f", "f(a=1)", raw["raw"]]
    assert answer_texts(Episode(messages=[{"role": "user", "content": FENCED}]), "f") == ["f"]
    found = read("cut off: ", messages=[{**said("x"), "raw": raw["raw"]}])
    assert found == SecondReading("mistral", "answer", 1)


def test_a_stored_second_reading_comes_back() -> None:
    found = SecondReading("hermes", "reasoning", 7)
    assert SecondReading.of_json(json.loads(found.as_json())) == found


@pytest.mark.parametrize(
    "change",
    [{"reader": "x" * 41}, {"reader": "<b>"}, {"where": ["answer"]}, {"answers": True}],
)
def test_a_damaged_one_is_refused(change: dict[str, Any]) -> None:
    intact = {"reader": "hermes", "where": "answer", "answers": 1}
    assert SecondReading.of_json(intact)
    with pytest.raises(ValueError, match=r"names|counts"):
        SecondReading.of_json({**intact, **change})
    with pytest.raises(ValueError, match="no object"):
        SecondReading.of_json([intact])
