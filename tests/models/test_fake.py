from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml
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


def test_answers_by_script() -> None:
    script = {"replies": {"weather": "<think>hm</think>[rain()]"}, "default": "[]"}
    answer = ask(script, "the weather today")
    assert (answer.text, answer.reasoning, answer.prompt_tokens) == ("[rain()]", "hm", 3)
    assert ask(script, "else").text == "[]"


def test_repeats_as_a_config_file_says() -> None:
    script = yaml.safe_load("repeat: {long: {text: 'word ', times: 3}}")
    assert ask(script, "a long one").text.split() == ["word"] * 3


def test_fails_as_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        ask({"fail": {"x": "boom"}}, "x")
    with pytest.raises(PromptTooLong, match="3 tokens, but the context holds 3"):
        ask({"max_model_len": 3}, "a b c")
    script = {"die": {"x": str(tmp_path / "marker")}}
    with pytest.raises(EngineDead):
        ask(script, "x")
    assert ask(script, "x").text == "[]"


def test_what_has_a_marker_happens_once(tmp_path: Path) -> None:
    once = {"fail_once": {"x": str(tmp_path / "once")}}
    with pytest.raises(RuntimeError, match="told to fail"):
        ask(once, "x")
    assert ask(once, "x").text == "[]"
    for _ in range(2):
        with pytest.raises(EngineDead):
            ask({"die": {"x": ""}}, "x")
    assert ask({"die": {"x": ""}}, "another").text == "[]"


def test_a_hanging_engine_answers_nobody_any_more() -> None:
    async def play() -> None:
        engine = FakeEngine({"hang": {"x": ""}})
        await engine.alive()
        assert (await chat(engine, "another")).text == "[]"
        assert await hangs(chat(engine, "x"))
        assert await hangs(chat(engine, "another"))
        assert await hangs(engine.alive())

    asyncio.run(play())


def test_an_endless_answer_keeps_nobody_else_waiting() -> None:
    async def play() -> None:
        engine = FakeEngine({"endless": ["x"]})
        assert await hangs(chat(engine, "x"))
        assert (await chat(engine, "another")).text == "[]"
        await engine.alive()

    asyncio.run(play())


@pytest.mark.parametrize(("key", "number"), [("crash", signal.SIGKILL), ("freeze", signal.SIGSTOP)])
def test_its_process_is_ended_or_stopped(tmp_path: Path, key: str, number: int) -> None:
    """The process is a forked one, and the row is no further when it stops."""
    script = {key: {"x": str(tmp_path / "marker")}}
    pid = os.fork()
    if not pid:
        ask(script, "another")
        (tmp_path / "other").touch()
        ask(script, "x")
        (tmp_path / "answered").touch()
        ask(script, "x")
        os._exit(7)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert (tmp_path / "other").exists()
    assert not (tmp_path / "answered").exists()
    if key == "crash":
        assert os.WTERMSIG(status) == number
        return
    assert os.WSTOPSIG(status) == number
    os.kill(pid, signal.SIGCONT)
    # Once told, it goes on: it was stopped the first time only.
    assert os.waitpid(pid, 0)[1] == 7 << 8


def test_a_script_is_checked() -> None:
    scripts: list[dict[str, Any]] = [{"hangs": {}}, {"hang": ["x"]}, {"repeat": {"x": "y"}}]
    for script in scripts:
        with pytest.raises(ValidationError):
            FakeEngine(script)


def test_its_delays_are_spread_and_repeat() -> None:
    async def delays(script: dict[str, Any]) -> list[float]:
        engine = FakeEngine({"delay_s": 1e-4, **script})
        return [(await chat(engine, str(number))).seconds for number in range(400)]

    assert set(asyncio.run(delays({}))) == {1e-4}
    drawn = asyncio.run(delays({"exponential": True}))
    assert len(set(drawn)) == 400
    assert 0.8e-4 < sum(drawn) / 400 < 1.2e-4
    assert drawn == asyncio.run(delays({"exponential": True}))
    slow = asyncio.run(delays({"slow": {"share": 0.03, "times": 20}}))
    assert 4 <= slow.count(2e-3) <= 24
    assert slow.count(1e-4) == 400 - slow.count(2e-3)
    both = asyncio.run(delays({"exponential": True, "slow": {"share": 0.03, "times": 20}}))
    assert 4 <= both.count(2e-3) <= 24, "at the limit, however long the others are"
