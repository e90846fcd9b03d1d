"""A run played on a virtual clock: the real worker loop, admission control, coordinator and
isolation of rows, without Ray and engines. What Ray Data does is played: a worker holds some
blocks, a dead one's come back, and a block whose call has returned is with a checker after a
while."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from ace_ray.pipeline.actors import engine_worker
from ace_ray.pipeline.actors.admission import AdmissionControl
from ace_ray.pipeline.actors.coordinator import Coordinator, Start
from ace_ray.pipeline.actors.engine_worker import EngineWorker
from ace_ray.pipeline.health.isolation import IsolatedRow, ended_columns, shared_id
from ace_ray.pipeline.health.processes import Kind, ProcessInfo

Row = dict[str, Any]


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock goes to the next timer when nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False
        if not self._ready and timers:  # type: ignore[attr-defined]
            self._now = max(self._now, timers[0].when())
        super()._run_once()  # type: ignore[misc]


class Handle:
    """A `Coordinator` as its actor's handle."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._coordinator, name)

        def remote(*args: Any, **kwargs: Any) -> asyncio.Future[Any]:
            done = asyncio.get_running_loop().create_future()
            done.set_result(method(*args, **kwargs))
            return done

        return SimpleNamespace(remote=remote)


class Worker(EngineWorker):
    """The real one, but for its engine and its end."""

    def __init__(self, run: PlayedRun, process: ProcessInfo, begun: Start) -> None:
        async def hold(run: int) -> None:
            pass

        self._run, self._coordinator, self._process = run, Handle(run.coordinator), process
        self._tasks, self._waiting, self._preparing, self._ended = {}, set(), {}, []
        self._stopping, self._loop = False, None
        self._admission = AdmissionControl(
            run.most,
            run=begun.run,
            starts_since_progress=begun.starts_since_progress,
            arriving=begun.replaces,
        )
        self._asks_isolated = begun.replaces or begun.isolated
        self._decided = set()
        self._group_size = max(1, run.most // 8)
        self._candidate: Any = SimpleNamespace(hold=hold)
        self._clock: Any = SimpleNamespace(read=dict)
        self.dead: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def _show_that_it_works(self) -> None:
        if not self._admission.passed:
            await asyncio.sleep(0.05)

    async def _row(self, row: Row, attempt: int, shared: Any) -> Row:
        if row["shares"] >= 0:
            name = shared_id(row)
            work: Any = partial(self._work, name)
            await self._prepared(row, shared, work)
        await self._work(row["row_id"])
        self._tasks.pop(row["row_id"], None)
        return {**row, "status": "scored", "attempts": attempt}

    async def _work(self, name: str) -> None:
        seconds = self._run.seconds()
        if name in self._run.killers:
            await asyncio.sleep(seconds / 2)
            self._die(name)
            await asyncio.Future()
        await asyncio.sleep(seconds)

    def _die(self, why: str) -> None:  # type: ignore[override]
        if not self.dead.done():
            held = self._at_work()
            self._run.engines.update(self._run.killers & set(held))
            self._run.coordinator.dying(self._process, why, held)
            self._coordinator = Handle(Coordinator([]))  # nothing that it says from now on arrives
            self.dead.set_result(None)

    def _ended_row(self, row: Row, isolated_row: IsolatedRow, shared: bool) -> Row:
        attempts = row["attempt"] + isolated_row.unstored - 1
        ended = ended_columns(isolated_row, "engine", shared=shared)
        return {**row, **ended, "attempts": attempts}


class PlayedRun:
    """One pass of a run on one worker.

    Args:
        rows: in the order in which they are planned.
        killers: ids of rows, and of what rows share, that kill their engine each time.
        most: rows at work at a time.
        size: rows of a block.
        shuffled: whether the blocks of a dead worker come back in any order.
    """

    def __init__(
        self,
        rows: list[Row],
        killers: set[str],
        *,
        most: int,
        size: int,
        seed: int,
        shuffled: bool,
        earlier: Mapping[Kind, Mapping[str, IsolatedRow]] | None = None,
    ) -> None:
        self.coordinator = Coordinator([], earlier, had_success=True)
        self.killers, self.most = killers, most
        self.engines = Counter[str]()
        """Killer -> engines that died with it at work."""
        self.stored: dict[str, Row] = {}
        self.starts = 0
        self.failure = ""
        self._random, self._shuffled = random.Random(seed), shuffled
        self._calls = max(4, 8 * most // size)
        self._planned = deque(blocks(rows, size))
        self._left = len(rows)

    def seconds(self) -> float:
        return self._random.expovariate(1 / 5) + 0.01

    async def play(self) -> None:
        held: list[list[Row]] = []
        while self._left:
            process = ProcessInfo("engine", "actor", "host", "node", self.starts, 1.0)
            begun = self.coordinator.starting(process)
            if begun is None:
                self.failure = self.coordinator.read().failure
                return
            self.starts += 1
            await asyncio.sleep(30)
            self.coordinator.ready(process, {})
            if self._shuffled:
                self._random.shuffle(held)
            await self._life(Worker(self, process, begun), held)

    async def _life(self, worker: Worker, held: list[list[Row]]) -> None:
        running: dict[str, tuple[list[Row], asyncio.Task[Any]]] = {}
        while self._left and not worker.dead.done():
            while len(held) < self._calls and self._planned:
                held.append(self._planned.popleft())
            for block in held:
                if block[0]["row_id"] not in running:
                    table: Any = SimpleNamespace(to_pylist=lambda b=block: [dict(r) for r in b])
                    running[block[0]["row_id"]] = block, asyncio.ensure_future(worker(table))
            calls = [call for _, call in running.values()]
            # Blocks that have returned are on their way for a while.
            await asyncio.wait(
                [worker.dead, *calls], return_when=asyncio.FIRST_COMPLETED, timeout=60
            )
            for name, (block, call) in list(running.items()):
                if call.done():
                    del running[name]
                    held.remove(block)
                    asyncio.get_running_loop().call_later(0.5, self._checked, call.result())
        for _, call in running.values():
            call.cancel()
        rest = [*worker._tasks.values(), *worker._preparing.values()]
        for task in rest:
            task.cancel()
        calls = [call for _, call in running.values()]
        await asyncio.gather(*calls, *rest, return_exceptions=True)

    def _checked(self, rows: list[Row]) -> None:
        self.coordinator.isolated("checker", [row["row_id"] for row in rows])
        self.coordinator.rows(
            [(0, "b", "en", row["status"], {"official": 1}, 1, 1) for row in rows]
        )
        for row in rows:
            assert row["row_id"] not in self.stored
            self.stored[row["row_id"]] = row
            self._left -= 1


def blocks(rows: list[Row], size: int) -> list[list[Row]]:
    """Those that share something together, the others as they come."""
    alone = [row for row in rows if row["shares"] < 0]
    shared: dict[int, list[Row]] = {}
    for row in rows:
        if row["shares"] >= 0:
            shared.setdefault(row["shares"], []).append(row)
    return [*shared.values(), *(alone[at : at + size] for at in range(0, len(alone), size))]


def row_id(number: int) -> str:
    return f"{number:05}"


def played(
    count: int, killers: set[int], *, sharing: int = 0, **how: Any
) -> tuple[PlayedRun, PlayedRun | None]:
    """A run of ``count`` rows and, where rows were set aside, the pass after it.

    With ``sharing`` so many rows one after another share something, and ``killers`` are numbers of
    what is shared."""

    def one_pass(rows: list[Row], **more: Any) -> PlayedRun:
        loop = VirtualLoop()
        try:
            run = PlayedRun(rows, names, **{**how, **more})
            loop.run_until_complete(run.play())
            return run
        finally:
            loop.close()

    rows = [
        {
            **{"row_id": row_id(n), "run": 0, "attempt": 1, "entry": n, "sample": 0, "repeat": 0},
            "shares": n // sharing if sharing else -1,
        }
        for n in range(count)
    ]
    names = {shared_id(rows[n * sharing]) if sharing else row_id(n) for n in killers}
    first = one_pass(rows)
    aside = [
        {**row, "attempt": first.stored[str(row["row_id"])]["attempts"] + 1}
        for row in rows
        if first.stored.get(str(row["row_id"]), {}).get("status") == "infra_error"
    ]
    if first.failure or not aside:
        return first, None
    return first, one_pass(aside, size=1, earlier=first.coordinator.read().isolated)


def without_arrow(patch: Callable[[Any, str, Any], None]) -> None:
    """Records stay lists: their tables are no concern here."""
    table = SimpleNamespace(from_pylist=lambda rows, schema: rows)
    patch(engine_worker, "pa", SimpleNamespace(Table=table))
