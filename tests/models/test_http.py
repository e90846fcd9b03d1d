"""Plain HTTP requests, against a server of this process."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest
from aiohttp import web

from ace_ray.models.http import Http, HttpRequest, Reply


async def answer(got: web.Request) -> web.StreamResponse:
    question = got.query.get("q")
    if question == "elsewhere":
        raise web.HTTPFound("http://127.0.0.1:9/")
    if question == "slow":
        await asyncio.sleep(2)
    text = "x" * 1_000_000 if question == "long" else f"{got.method} {question} {await got.text()}"
    return web.Response(text=text, headers={"X-Key": got.headers.get("Authorization", "")})


def asked(question: str, **changes: Any) -> Reply:
    async def run() -> Reply:
        app = web.Application()
        app.router.add_route("*", "/place", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        http: Http = pickle.loads(pickle.dumps(Http()))
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/place"
        given: dict[str, Any] = {"method": "GET", "url": url, "headers": {}, "body": None}
        given |= {"timeout_s": 5.0, "max_bytes": 1000, "params": {"q": question}}
        try:
            return await http.fetch(HttpRequest(**{**given, **changes}))
        finally:
            await http.close()
            await runner.cleanup()

    return asyncio.run(run())


def test_a_request_arrives_and_its_answer_is_bounded() -> None:
    reply = asked("a b", method="POST", body=b"{}", headers={"Authorization": "Bearer k"})
    assert (reply.status, reply.body) == (200, b"POST a b {}")
    assert reply.headers["X-Key"] == "Bearer k"
    assert asked("long", max_bytes=1234).body == b"x" * 1234
    assert asked("elsewhere").status == 302, "a redirect is an answer"


def test_a_server_that_is_slow_or_away_is_an_os_error() -> None:
    with pytest.raises(TimeoutError):
        asked("slow", timeout_s=0.2)
    with pytest.raises(OSError, match="Cannot connect"):
        asked("", url="http://127.0.0.1:9/")
