"""Which of ACEBench's answers hold calls that nobody read, and what they would be worth."""

from __future__ import annotations

import json
from functools import cache

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.benchmarks.acebench.native import UNREADABLE, tool_names
from ace_ray.benchmarks.acebench.outputs import NO_OUTPUT
from ace_ray.benchmarks.diagnosis import second_reading
from ace_ray.benchmarks.results import SecondReading
from ace_ray.parsing.literals import parse_calls
from ace_ray.types import Completion, Entry, Episode, ToolAnswer

FENCED = '```json\n{"name": "f", "arguments": {}}\n```'


@cache
def acebench(mode: str = "prompt") -> ACEBench:
    return ACEBench.from_options({"data": "mini", "mode": mode, "languages": ["en"]})


def entry(category: str) -> Entry:
    return next(e for e in acebench().dataset() if e.category == category)


def answered(mode: str, text: str) -> Episode:
    episode = Episode()
    episode.record(Completion(text, tools=ToolAnswer(text) if mode == "native" else None))
    return episode


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize(
    "category",
    ["normal_atom_list", "normal_single_turn_parallel_function", "normal_multi_turn_user_adjust"],
)
def test_right_calls_in_another_format(mode: str, category: str) -> None:
    one = entry(category)
    shown = {published: tool for tool, published in tool_names(one.data["function"]).items()}
    calls = [
        {"name": shown[call.name] if mode == "native" else call.name, "arguments": call.args}
        for call in parse_calls(render_gold(one))
    ]
    text = "\n".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)
    episode, benchmark = answered(mode, text), acebench(mode)
    assert not any(verdict.valid for verdict in benchmark.verdicts(one, episode).values())
    found = second_reading(benchmark, one, episode)
    assert found == SecondReading("hermes", "answer", 1)
    assert episode.output == text


def test_a_call_in_place_of_a_refusal_stays_wrong() -> None:
    found = second_reading(acebench(), entry("special_irrelevant"), answered("prompt", FENCED))
    assert found == SecondReading("fenced_json", "answer", 1)


@pytest.mark.parametrize(
    "output",
    [
        "[f(a=1)]",
        "Sure: [f(a=1)] is it.",
        "[f(a=b)]",
        f"[f(a=open('x') + 1)] {FENCED}",
        f"[f(a=1)] {FENCED}",
        UNREADABLE,
        "No.",
    ],
)
def test_what_was_read_or_holds_none_is_not_read_again(output: str) -> None:
    assert second_reading(acebench(), entry("normal_atom_bool"), Episode(output=output)) is None


def test_a_missing_answer_is_none() -> None:
    episode = Episode(output=FENCED, state=NO_OUTPUT)
    assert second_reading(acebench(), entry("normal_atom_bool"), episode) is None


def test_of_an_agents_episode_the_messages_are_counted() -> None:
    steps = [
        {"speaker": "agent", "text": FENCED},
        {"speaker": "execution", "text": "no", "errors": ["not_a_call"]},
        {"speaker": "agent", "text": FENCED},
        {"speaker": "user", "text": FENCED},
        {"speaker": "agent", "text": FENCED},
        {"speaker": "execution", "text": "[]", "calls": [{"name": "f", "arguments": {}}]},
        {"speaker": "agent", "text": "finish conversation"},
    ]
    one = entry("agent_multi_turn")
    found = second_reading(acebench(), one, Episode(state={"steps": steps}))
    assert found == SecondReading("fenced_json", "answer", 2)
    for state in (None, {}, {"steps": None}, {"steps": [1, {"speaker": "agent"}]}):
        assert second_reading(acebench(), one, Episode(state=state)) is None
