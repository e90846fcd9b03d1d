"""An episode's handle to its `Toolbox`, wherever that lives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.sandbox.protocol import Session


class Embedder(Protocol):
    """Vectors of texts, in order. Raises `RowError`."""

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]: ...


class Sandbox:
    """Open while `open`'s block is. ``embed`` is for vector memory alone."""

    def __init__(self, session: Session, embed: Embedder | None = None) -> None:
        self._session, self._embed = session, embed

    @classmethod
    @asynccontextmanager
    async def open(
        cls, context: EpisodeContext, embed: Embedder | None = None
    ) -> AsyncIterator[Sandbox]:
        async with context.sandbox() as session:
            yield cls(session, embed)

    async def step(self, calls: list[str]) -> list[str]:
        """The results of the calls of one step, as a model is shown them."""
        if self._embed is not None:
            await self._teach(await self._call("texts", texts=calls))
        return list(await self._call("step", texts=calls))

    async def dump(self) -> str:
        """What a prompt shows of a memory."""
        return str(await self._call("dump"))

    async def snapshot(self) -> dict[str, Any]:
        """A memory as JSON values."""
        return dict(await self._call("snapshot"))

    async def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Put a snapshot back."""
        if self._embed is not None:
            stores = [part["store"] for part in snapshot.values()]
            await self._teach([text for store in stores for text in store.values()])
        await self._call("restore", snapshot=dict(snapshot))

    async def _teach(self, texts: Sequence[str]) -> None:
        if texts and self._embed is not None:
            found = await self._embed(texts)
            await self._call("vectors", vectors=dict(zip(texts, found, strict=True)))

    async def _call(self, name: str, **arguments: Any) -> Any:
        return (await self._session.call(name, arguments)).value
