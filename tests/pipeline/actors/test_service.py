"""Calls of a benchmark's service."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.pipeline.actors import service as service_module
from ace_ray.pipeline.actors.service import ServiceClient, ServiceLost


def test_call_without_an_answer_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "LOST_S", 0.5)
    calls: list[Any] = []

    async def hang(requests: Any) -> None:
        calls.append(requests)
        await asyncio.Event().wait()

    async def ask() -> None:
        await ServiceClient(SimpleNamespace(answer=SimpleNamespace(remote=hang)))("get", 1)

    with pytest.raises(ServiceLost, match=r"no answer within 0.5 s"):
        asyncio.run(ask())
    assert calls == [[("get", (1,))]]
