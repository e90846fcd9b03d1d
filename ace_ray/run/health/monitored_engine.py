"""An engine, and since when it owes a sign of life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ace_ray.errors import RequestFailed
from ace_ray.models.probe import Logprobs
from ace_ray.records import Completion, Messages, Sampling, Tools
from ace_ray.run.monitoring.timing import Clock

ALIVE_S = 30.0
"""Seconds within which a working engine answers between two steps."""


class MonitoredEngine:
    """The candidate's engine, and since when it owes a sign of life.

    Answers are such signs. Where none comes for a while, since all are long, the engine is asked
    whether it still works.
    """

    def __init__(self, engine: Any, ask_after_s: float, clock: Clock) -> None:
        self._engine, self._ask_after_s, self._clock = engine, ask_after_s, clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking: asyncio.Task[None] | None = None
        self._owed = 0
        self._heard_at = 0.0
        self.max_model_len: int = engine.max_model_len
        self.version: str = engine.version
        self.device: str = engine.device

    async def chat(self, messages: Messages, sampling: Sampling, tools: Tools = None) -> Completion:
        with self._owing():
            answer: Completion = await self._engine.chat(messages, sampling, tools)
        return answer

    async def token_logprobs(self, messages: Messages, text: str) -> list[float]:
        """`ace_ray.models.vllm_engine.VLLMEngine.token_logprobs`."""
        with self._owing():
            said: list[float] = await self._engine.token_logprobs(messages, text)
        return said

    @contextmanager
    def _owing(self) -> Iterator[None]:
        self._loop = asyncio.get_running_loop()
        if not self._owed:
            self._heard_at = time.monotonic()
        self._owed += 1
        try:
            with self._clock.call():
                yield
        except RequestFailed:
            self._heard_at = time.monotonic()  # an answer, too
            raise
        finally:
            self._owed -= 1
        self._heard_at = time.monotonic()

    async def swap(self, folder: Path) -> None:
        """Other weights; `ace_ray.models.vllm_engine.VLLMEngine.swap`."""
        await self._engine.swap(folder)

    async def logprobs(self) -> Logprobs:
        said: Logprobs = await self._engine.logprobs()
        return said

    def reference(self, folders: Sequence[Path]) -> list[Logprobs]:
        said: list[Logprobs] = self._engine.reference(folders)
        return said

    def processes(self) -> list[Any]:
        """The engine cores, children of this process."""
        found: list[Any] = self._engine.processes()
        return found

    async def works(self) -> bool:
        """Whether the engine gives a sign of life now."""
        with suppress(Exception):
            await asyncio.wait_for(self._engine.alive(), ALIVE_S)
            return True
        return False

    def busy_since(self) -> float | None:
        """When the engine was last heard of (`time.monotonic`), while it owes answers; else None.

        Called from another thread, since the loop of the engine may be what hangs."""
        if not self._owed or self._loop is None:
            return None
        if time.monotonic() - self._heard_at > self._ask_after_s and self._asking is None:
            self._loop.call_soon_threadsafe(self._ask)
        return self._heard_at

    def _ask(self) -> None:
        async def ask() -> None:
            with suppress(Exception):  # the calls themselves meet what is wrong
                await self._engine.alive()
                self._heard_at = time.monotonic()
            self._asking = None

        if self._asking is None:
            self._asking = asyncio.ensure_future(ask())
