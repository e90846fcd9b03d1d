"""The fake engine of the tests: its answers and its scripted faults."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ace_ray.errors import EngineDead, PromptTooLong
from ace_ray.models.fake import FakeEngine
from ace_ray.types import Completion, Sampling


def ask(script: dict[str, Any], text: str) -> Completion:
    return asyncio.run(FakeEngine(script).chat([{"role": "user", "content": text}], Sampling()))


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
