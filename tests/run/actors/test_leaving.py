"""The board learns which rows have ended, while others of their party go on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.run.actors import engine_worker
from ace_ray.run.actors.admission import Gate
from ace_ray.run.actors.engine_worker import EngineWorker

QUICKLY = 0.05


def test_rows_that_ended_leave_soon_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_worker, "LEAVE_S", QUICKLY)
    told: list[list[str]] = []
    worker: Any = object.__new__(EngineWorker)
    worker._gate, worker._who, worker._ended = Gate(8), None, []
    leave = SimpleNamespace(remote=lambda who, ids: told.append(ids))
    worker._board = SimpleNamespace(leave=leave)

    async def work() -> None:
        async with worker._gate.entered((0, 0), 4) as party:
            for row in "abc":
                worker._row_ended(party, row, None)
            assert told == [], "one call tells of many rows"
            await asyncio.sleep(3 * QUICKLY)
            assert told == [["a", "b", "c"]], "the party has not left, one of it goes on"
            worker._row_ended(party, "d", None)
            worker._leave()
            await asyncio.sleep(3 * QUICKLY)
            assert told == [["a", "b", "c"], ["d"]], "nobody leaves twice"

    asyncio.run(work())
