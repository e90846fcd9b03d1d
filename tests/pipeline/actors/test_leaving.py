"""The coordinator learns which rows have ended, while others of their group go on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.pipeline.actors import engine_worker
from ace_ray.pipeline.actors.admission import AdmissionControl
from ace_ray.pipeline.actors.engine_worker import EngineWorker

QUICKLY = 0.05


def test_rows_that_ended_leave_soon_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_worker, "LEAVE_S", QUICKLY)
    told: list[list[str]] = []
    worker: Any = object.__new__(EngineWorker)
    worker._admission, worker._process, worker._ended = AdmissionControl(8), None, []
    leave = SimpleNamespace(remote=lambda process, ids, spent: told.append(ids))
    worker._coordinator = SimpleNamespace(leave=leave)

    async def work() -> None:
        async with worker._admission.entered((0, 0), 4) as admitted:
            for row in "abc":
                worker._row_ended(admitted, row, None)
            assert told == [], "one call tells of many rows"
            await asyncio.sleep(3 * QUICKLY)
            assert told == [["a", "b", "c"]], "the group has not left, one of it goes on"
            worker._row_ended(admitted, "d", None)
            worker._leave()
            await asyncio.sleep(3 * QUICKLY)
            assert told == [["a", "b", "c"], ["d"]], "nobody leaves twice"

    asyncio.run(work())
