"""Admission of rows to an engine: one group at a time, and isolated rows first.

A script is a list of steps. A tuple calls a method of `Visitors`; a list names who must be inside.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ace_ray.pipeline.actors.admission import (
    ISOLATED_LAST,
    MOST_TRIED_FIRST,
    AdmissionControl,
    Group,
)
from ace_ray.pipeline.actors.kv_budget import KVBudget
from ace_ray.pipeline.health.isolation import OPEN
from ace_ray.types import Completion, EngineFigures


class Visitors:
    """Tasks that ask for admission."""

    def __init__(self, limit: int = 1000, **how: Any) -> None:
        self.admission = AdmissionControl(limit, **how)
        self.inside: list[str] = []
        self._groups: dict[str, Group] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, group: int = OPEN, rows: int = 1, **how: int) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._visit(name, group, rows, **how))

    async def _visit(self, name: str, group: int, rows: int, run: int = 0, **how: Any) -> None:
        async with self.admission.admission((run, group), rows, **how) as admitted:
            self._groups[name] = admitted
            self.inside.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.inside.remove(name)

    async def row_ends(self, name: str) -> None:
        self.admission.free_place(self._groups[name])

    async def go(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()

    async def cancelled(self, name: str) -> None:
        self._tasks[name].cancel()

    async def arrived(self) -> None:
        self.admission.note_arrival()

    async def end(self) -> None:
        """Let all tasks leave. Then no place is taken."""
        for _ in self._tasks:
            await self.go(*self._ends)
            await settle()
        await asyncio.wait_for(asyncio.gather(*self._tasks.values(), return_exceptions=True), 5)
        for group in (7, OPEN, 8):
            async with asyncio.timeout(5), self.admission.admission((0, group), 1):
                pass


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


SCRIPTS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "isolated groups in the order in which they asked, then open rows": (
        {},
        [
            *(("come", "inside"), ("come", "5", 5), ("come", "3", 3), ("come", "open")),
            *(("come", "4", 4), ("come", "3 too", 3), ["inside"]),
            *(("go", "inside"), ["5"], ("go", "5"), ["3", "3 too"], ("go", "3"), ["3 too"]),
            *(("go", "3 too"), ["4"], ("go", "4"), ["open"]),
        ],
    ),
    "rows enter in their order while there is room": (
        {"limit": 9},
        [
            *(("come", "a", OPEN, 4), ("come", "b", OPEN, 4), ("come", "c", OPEN, 4)),
            *(("come", "d"), ["a", "b"]),
            *(("go", "a"), ["b", "c", "d"]),
            *(("come", "huge", OPEN, 99), ("go", "b", "c"), ["d"]),
            *(("go", "d"), ["huge"], ("come", "e"), ["huge"]),
        ],
    ),
    "each row gives its place back as soon as it ends": (
        {"limit": 3},
        [
            *(("come", "three", OPEN, 3), ("come", "two", OPEN, 2), ["three"]),
            *(("row_ends", "three"), ["three"], ("row_ends", "three"), ["three", "two"]),
        ],
    ),
    "a cancelled task leaves no place and does not wait": (
        {},
        [
            *(("come", "inside"), ("come", "goes", 1), ("come", "stays", 2)),
            *(("cancelled", "goes"), ["inside"], ("cancelled", "inside"), ["stays"]),
        ],
    ),
    "rows of the loaded run go first, also those still to arrive": (
        {"run": 2, "arriving": True},
        [
            *(("come", "earlier run", {"run": 1}), ("come", "later run", {"run": 3}), []),
            *(("come", "awaited", {"run": 2}), ["awaited"]),
            *(("go", "awaited"), []),  # no row has ended
            *(("arrived",), ["earlier run"]),
            *(("go", "earlier run"), ["later run"]),
        ],
    ),
    "row that crashed an engine alone waits until another row has passed": (
        {"run": 0, "arriving": True},
        [
            *(("come", "tried", 5, {"tried": 1}), []),  # others may arrive
            *(("come", "open"), ["open"]),
            *(("come", "isolated row", 6), ("row_ends", "open"), ("go", "open"), ["tried"]),
            *(("go", "tried"), ["isolated row"]),
        ],
    ),
    "after many starts without progress open rows go first": (
        {"run": 0, "arriving": True, "starts_since_progress": ISOLATED_LAST},
        [
            *(("come", "isolated row", 5), ("come", "other isolated row", 6)),
            *(("come", "open"), ["open"]),
            *(("row_ends", "open"), ("go", "open"), ["isolated row"]),
        ],
    ),
    "after more starts the most tried row goes first": (
        {"run": 0, "arriving": True, "starts_since_progress": MOST_TRIED_FIRST},
        [
            *(("come", "once", 5, {"tried": 1}), ("come", "twice", 6, {"tried": 2})),
            *(("come", "new", 7), ("come", "open"), []),  # more may arrive
            *(("arrived",), ["twice"]),
        ],
    ),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_admission(case: str) -> None:
    how, script = SCRIPTS[case]

    async def play() -> None:
        visitors = Visitors(**how)
        for step in script:
            if isinstance(step, list):
                assert visitors.inside == step
            else:
                method, *arguments = step
                last = arguments[-1] if arguments else None
                options = arguments.pop() if isinstance(last, dict) else {}
                await getattr(visitors, method)(*arguments, **options)
                await settle()
        await visitors.end()

    asyncio.run(play())


def test_episodes_wait_until_their_contexts_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ace_ray.pipeline.actors.admission.ASK_AGAIN_S", 0.0)
    room = KVBudget(23_000)  # an episode needs 0.85 * (4,000 + 8,000) at first

    async def play() -> None:
        visitors = Visitors(room=room)
        for name in ("a", "b", "c", "d"):
            await visitors.come(name, episodes=True)
        await visitors.come("one call")
        await settle()
        assert visitors.inside == ["a", "b", "one call"]
        # Most of the first prompts is shared, so that contexts are shorter.
        contexts = [room.open(), room.open()]
        for context in contexts:
            figures = EngineFigures(2_000, 0.1, 0.1)
            context.add("", Completion("", prompt_tokens=4_000, engine=figures))
        await settle()
        assert visitors.inside == ["a", "b", "one call", "c"]
        contexts[0].add("", Completion("", prompt_tokens=9_000))
        await visitors.come("e", episodes=True)
        await settle()
        assert "e" not in visitors.inside
        await visitors.go("a")
        await settle()
        assert "d" in visitors.inside
        await visitors.end()

    asyncio.run(play())
