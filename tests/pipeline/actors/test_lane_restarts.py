"""A lane in which weights cannot be swapped gets through, however the blocks of a dead process come
back.

Plain Python: the real admission control, candidate and coordinator; the process, and how Ray
repeats what it has not handed on, are played.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ace_ray.pipeline.actors.admission import AdmissionControl
from ace_ray.pipeline.actors.candidate import Candidate
from ace_ray.pipeline.health.isolation import OPEN
from ace_ray.pipeline.monitoring.timing import Clock
from tests.pipeline.actors.lane_engines import WHO, Ended, Engines

RUNS, ROWS_OF_A_RUN = 4, 3

Row = tuple[int, str]


class Lane:
    """One worker, again and again. ``slowness``: steps of the event loop until a row that has ended
    is with a checker; what has not come there dies with the process."""

    def __init__(self, engines: Engines, order: random.Random, slowness: int) -> None:
        self.engines, self.order, self.slowness = engines, order, slowness
        self.candidate = engines.candidate(*range(1, RUNS + 1))
        self.coordinator = engines.handle.coordinator
        self.pending: list[Row] = [
            (run, f"{run}-{row}") for run in range(RUNS) for row in range(ROWS_OF_A_RUN)
        ]
        self.evaluated: list[tuple[Row, int]] = []
        """Each with the run whose weights the engine had."""
        self.starts = 1

    def to_the_end(self, most: int) -> None:
        while self.pending:
            asyncio.run(self.life())
            if self.pending:
                self.starts += 1
                assert self.starts <= most, f"{len(self.pending)} rows left: {self.pending}"
                self.begin()

    def begin(self) -> None:
        begun = self.coordinator.starting(WHO, 0)
        assert begun is not None, self.coordinator.read().failure
        self.candidate = Candidate(self.engines.job, WHO, Clock(), begun.run)
        self.coordinator.ready(WHO, {})
        self.admission = AdmissionControl(
            8,
            run=begun.run,
            starts_since_progress=begun.starts_since_progress,
            arriving=begun.replaces,
        )

    async def life(self) -> None:
        """Until all is done, or the process ends itself."""
        if self.starts == 1:
            self.coordinator.ready(WHO, {})
            self.admission = AdmissionControl(8, run=0)
        blocks = list(self.pending)
        if self.starts > 1:
            self.order.shuffle(blocks)
        tasks = []
        for block in blocks:
            tasks.append(asyncio.create_task(self.row(block)))
            for _ in range(self.order.randrange(4)):
                await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.2, self.admission.arrived)
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in pending:
            task.cancel()
        for task in done:
            if (error := task.exception()) and not isinstance(error, EndedHere):
                raise error

    async def row(self, block: Row) -> None:
        run, name = block
        async with self.admission.entered((run, OPEN), 1) as admitted:
            try:
                await self.candidate.hold(run)
            except Ended as error:
                # asyncio would end the loop for a BaseException.
                raise EndedHere(str(error)) from None
            self.evaluated.append((block, self.candidate.run))
            self.admission.row_ended(admitted)
            self.coordinator.leave(WHO, [name])
        for _ in range(self.slowness):
            await asyncio.sleep(0.001)
        self.coordinator.isolated("checker", [name])
        self.coordinator.rows([(run, "toy", "en", "scored", {"official": 1}, 1, 1)])
        self.pending.remove(block)


class EndedHere(Exception):
    """The process is gone."""


@pytest.mark.nightly
@pytest.mark.parametrize("slowness", [0, 3, 30, 300])
@pytest.mark.parametrize("seed", range(3))
def test_one_engine_for_each_checkpoint(
    seed: int,
    slowness: int,
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines = Engines(tmp_path, make_checkpoint, monkeypatch)
    lane = Lane(engines, random.Random(seed), slowness)
    lane.coordinator.unswappable("a swap has failed")
    lane.to_the_end(most=RUNS)
    assert {run for (run, _), _ in lane.evaluated} == set(range(RUNS))
    assert all(run == held for (run, _), held in lane.evaluated)
    assert len(lane.evaluated) == RUNS * ROWS_OF_A_RUN, "nothing was done twice"
