"""The fake engine of the tests: its answers and its scripted faults."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ace_ray.errors import EngineDead, PromptTooLong
from ace_ray.models.fake import FakeEngine
from ace_ray.types import Completion, Sampling


def chat(engine: FakeEngine, text: str) -> Coroutine[Any, Any, Completion]:
    return engine.chat([{"role": "user", "content": text}], Sampling())


def ask(script: dict[str, Any], text: str) -> Completion:
    return asyncio.run(chat(FakeEngine(script), text))


async def hangs(work: Coroutine[Any, Any, Any]) -> bool:
    try:
        await asyncio.wait_for(work, 0.05)
    except TimeoutError:
        return True
    return False


def test_answers_and_failures_follow_the_script(tmp_path: Path) -> None:
    script = {"replies": {"weather": "<think>hm</think>[rain()]"}, "default": "[]"}
    answer = ask(script, "the weather today")
    assert (answer.text, answer.reasoning, answer.prompt_tokens) == ("[rain()]", "hm", 3)
    assert ask(script, "else").text == "[]"
    assert ask({"repeat": {"long": {"text": "word ", "times": 3}}}, "long").text == "word " * 3
    with pytest.raises(RuntimeError, match="boom"):
        ask({"fail": {"x": "boom"}}, "x")
    with pytest.raises(PromptTooLong, match="3 tokens, but the context holds 3"):
        ask({"max_model_len": 3}, "a b c")
    # Once with a marker file, each time without.
    once = {"fail_once": {"x": str(tmp_path / "once")}, "die": {"y": ""}}
    with pytest.raises(RuntimeError, match="told to fail"):
        ask(once, "x")
    assert ask(once, "x").text == "[]"
    for _ in range(2):
        with pytest.raises(EngineDead):
            ask(once, "y")
    scripts: list[dict[str, Any]] = [{"hangs": {}}, {"hang": ["x"]}, {"repeat": {"x": "y"}}]
    for script in scripts:
        with pytest.raises(ValidationError):
            FakeEngine(script)


def test_a_hanging_engine_answers_nobody_and_an_endless_answer_blocks_nobody() -> None:
    async def play() -> None:
        engine = FakeEngine({"hang": {"x": ""}, "endless": ["z"]})
        assert await hangs(chat(engine, "z"))
        await engine.alive()
        assert (await chat(engine, "another")).text == "[]"
        assert await hangs(chat(engine, "x"))
        assert await hangs(chat(engine, "another"))
        assert await hangs(engine.alive())

    asyncio.run(play())


def test_its_delays_are_spread_and_repeat() -> None:
    async def delays(script: dict[str, Any]) -> list[float]:
        engine = FakeEngine({"delay_s": 1e-4, **script})
        return [(await chat(engine, str(number))).seconds for number in range(400)]

    slow = {"slow": {"share": 0.03, "times": 20}}
    assert set(asyncio.run(delays({}))) == {1e-4}
    drawn = asyncio.run(delays({"exponential": True}))
    assert len(set(drawn)) == 400
    assert 0.8e-4 < sum(drawn) / 400 < 1.2e-4
    assert drawn == asyncio.run(delays({"exponential": True}))
    both = asyncio.run(delays({"exponential": True, **slow}))
    assert 4 <= both.count(2e-3) <= 24, "at the limit, however long the others are"
