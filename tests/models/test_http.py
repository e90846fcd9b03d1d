"""Plain HTTP requests, against a server of this process."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from ace_ray.models.http import Http, HttpRequest, Reply


def request(url: str, **changes: Any) -> HttpRequest:
    given: dict[str, Any] = {"method": "GET", "headers": {}, "body": None}
    given |= {"timeout_s": 5.0, "max_bytes": 1000}
    return HttpRequest(url=url, **{**given, **changes})


def asked(answer: Callable[[web.Request], Awaitable[web.StreamResponse]], **changes: Any) -> Reply:
    async def run() -> Reply:
        app = web.Application()
        app.router.add_route("*", "/place", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        http: Http = pickle.loads(pickle.dumps(Http()))
        try:
            return await http.fetch(request(f"http://127.0.0.1:{port}/place", **changes))
        finally:
            await http.close()
            await runner.cleanup()

    return asyncio.run(run())


async def echo(got: web.Request) -> web.Response:
    said = f"{got.method} {got.query.get('q')} {await got.text()}"
    return web.Response(text=said, headers={"X-Key": got.headers.get("Authorization", "")})


def test_what_is_sent_arrives() -> None:
    reply = asked(
        echo, method="POST", params={"q": "a b"}, body=b"{}", headers={"Authorization": "Bearer k"}
    )
    assert (reply.status, reply.body) == (200, b"POST a b {}")
    assert reply.headers["X-Key"] == "Bearer k"


def test_no_more_is_read_than_asked() -> None:
    async def long(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1_000_000)

    assert asked(long, max_bytes=1234).body == b"x" * 1234


def test_a_redirect_is_an_answer() -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:9/")

    assert asked(elsewhere).status == 302


def test_a_slow_server_is_an_os_error() -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(2)
        return web.Response()

    with pytest.raises(TimeoutError):
        asked(slow, timeout_s=0.2)


def test_nobody_is_an_os_error() -> None:
    async def run() -> None:
        http = Http()
        try:
            await http.fetch(request("http://127.0.0.1:9/"))
        finally:
            await http.close()

    with pytest.raises(OSError, match="Cannot connect"):
        asyncio.run(run())
