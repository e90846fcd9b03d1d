"""Parts of a worker: preparations, reports of rows, time limits, and calls of a service."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.models.fake import FakeEngine
from ace_ray.pipeline.actors import service
from ace_ray.pipeline.actors.in_flight import RowReporter, Shared
from ace_ray.pipeline.end_time import RowTimes
from ace_ray.pipeline.health.isolation import shared_id
from ace_ray.pipeline.monitoring.tally import RowReport
from ace_ray.types import Sampling


class Reports(RowReporter):
    """Keeps what it sends."""

    def __init__(self, *, stopped: bool = False) -> None:
        super().__init__(self._keep)
        self.sent: list[RowReport] = []
        self._stopped = stopped

    def _keep(self, report: RowReport) -> asyncio.Future[bool]:
        self.sent.append(report)
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(not self._stopped)
        return answer


def row(row_id: str) -> dict[str, Any]:
    return {"row_id": row_id, "run": 0, "shares": 3, "sample": 0, "repeat": 0}


SHARED = shared_id(row("a"))


def test_rows_of_a_block_share_one_preparation() -> None:
    async def play() -> None:
        reports, shared = Reports(), Shared()
        prepared, may_end = list[str](), asyncio.Event()

        async def prepare() -> EpisodeContext:
            prepared.append("once")
            await may_end.wait()
            return EpisodeContext(RoleModel(FakeEngine({}), Sampling()))

        def wait(row_id: str) -> asyncio.Task[tuple[EpisodeContext, bool]]:
            return asyncio.ensure_future(reports.wait_for_preparation(row(row_id), shared, prepare))

        rows = [wait("a"), wait("b")]
        await asyncio.sleep(0.01)
        assert reports.sent == [RowReport(entered=[SHARED])], "its rows are not in flight"
        may_end.set()
        ends = [*await asyncio.gather(*rows), await wait("c")]
        assert [first for _, first in ends] == [True, False, False]
        assert prepared == ["once"]
        assert [report.entered or report.prepared for report in reports.sent] == [
            *([SHARED], [SHARED], ["a"], ["b"], ["c"])
        ]

    asyncio.run(play())


@pytest.mark.parametrize("goes_on", [True, False])
def test_rows_that_cannot_end_in_their_runs_share_do_not_start(monkeypatch, goes_on) -> None:
    """Runs 0 and 1 share 300 s. A row takes 100 s."""
    later, cancelled, clock = list[tuple[float, Any]](), list[int](), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    loop = type("Loop", (), {"call_later": lambda _, seconds, call: later.append((seconds, call))})
    monkeypatch.setattr(asyncio, "get_running_loop", loop)

    def cancel(run: int) -> bool:
        cancelled.append(run)
        return not goes_on

    assert RowTimes(None, (0,), cancel).can_end(0, "agent")
    times = RowTimes(1300.0, (0, 1), cancel)
    times.add("agent", 100.0)
    assert times.can_end(0, "agent")
    clock[0] += 51
    assert not times.can_end(0, "agent"), "its share ends after 150 s"
    ((seconds, call),) = later
    assert seconds == 150.0
    call()
    assert cancelled == [0]
    assert [wait for wait, _ in later[1:]] == [150.0] * goes_on
    clock[0] = 1150.0
    assert times.can_end(1, "agent")
    assert len(later) == 1 + goes_on, "no run follows run 1"


def test_call_without_an_answer_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOST_S", 0.5)
    calls: list[Any] = []

    async def hang(requests: Any) -> None:
        calls.append(requests)
        await asyncio.Event().wait()

    async def ask() -> None:
        await service.ServiceClient(SimpleNamespace(answer=SimpleNamespace(remote=hang)))("get", 1)

    with pytest.raises(service.ServiceLost, match=r"no answer within 0.5 s"):
        asyncio.run(ask())
    assert calls == [[("get", (1,))]]
