"""What a swap asks of vLLM, on an engine that answers as it is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import EngineDead
from ace_ray.models.vllm_engine import RESETS, VLLMEngine


class AsyncLLM:
    """Empties its cache at the ``nth`` time it is asked."""

    def __init__(self, nth: int) -> None:
        self.nth = nth
        self.asked: list[Any] = []

    async def collective_rpc(self, name: str, args: tuple[str, ...]) -> None:
        self.asked.append((name, *args))

    async def reset_prefix_cache(self, *, reset_connector: bool = False) -> bool:
        self.asked.append(reset_connector)
        return len(self.asked) - 1 >= self.nth


def swap(nth: int) -> list[Any]:
    engine = VLLMEngine.__new__(VLLMEngine)
    engine._engine = llm = AsyncLLM(nth)
    engine._adapters = False
    asyncio.run(engine.swap(Path("/c/step_2")))
    return llm.asked


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        return

    monkeypatch.setattr("asyncio.sleep", sleep)


def test_caches_are_emptied_connectors_too() -> None:
    assert swap(1) == [("swap_weights", "/c/step_2"), True]


def test_a_cache_that_is_in_use_is_asked_again() -> None:
    assert swap(3)[1:] == [True] * 3


def test_one_that_is_not_emptied_ends_the_engine() -> None:
    """Answers would come from what the weights before have computed."""
    with pytest.raises(EngineDead, match="the cache of the previous weights could not be cleared"):
        swap(RESETS + 1)
