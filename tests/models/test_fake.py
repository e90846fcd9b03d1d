from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import EngineDead, PromptTooLong
from ace_ray.models.fake import FakeEngine
from ace_ray.records import Completion, Sampling


def ask(script: dict[str, Any], text: str) -> Completion:
    return asyncio.run(FakeEngine(script).chat([{"role": "user", "content": text}], Sampling()))


def test_answers_by_script() -> None:
    script = {"replies": {"weather": "<think>hm</think>[rain()]"}, "default": "[]"}
    answer = ask(script, "the weather today")
    assert (answer.text, answer.reasoning, answer.prompt_tokens) == ("[rain()]", "hm", 3)
    assert ask(script, "else").text == "[]"


def test_fails_as_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        ask({"fail": {"x": "boom"}}, "x")
    with pytest.raises(PromptTooLong, match="3 tokens, the context holds 3"):
        ask({"max_model_len": 3}, "a b c")
    script = {"die": {"x": str(tmp_path / "marker")}}
    with pytest.raises(EngineDead):
        ask(script, "x")
    assert ask(script, "x").text == "[]"
    with pytest.raises(TimeoutError):
        asyncio.run(
            asyncio.wait_for(FakeEngine({"hang": ["x"]}).chat([{"content": "x"}], Sampling()), 0.05)
        )
