"""Real APIs: the requests to their service, and services that do not behave."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.benchmarks.stabletoolbench.apis.real import (
    RealApis,
    RealConfig,
    check_real,
    read_key,
    usable,
)
from ace_ray.errors import UserError
from ace_ray.models.http import Http, HttpRequest, Reply
from tests.benchmarks.stabletoolbench.builders import API

web = pytest.importorskip("aiohttp.web")

KEY = 'very"secret/key'
URL = "https://tools.api.test/rapidapi"


class Recorded:
    """A transport that gives one reply."""

    def __init__(self, reply: Reply | Exception) -> None:
        self.reply, self.asked = reply, list[HttpRequest]()

    async def fetch(self, request: HttpRequest) -> Reply:
        self.asked.append(request)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def call(transport: Any, url: str = URL, key: str = KEY) -> Answered:
    real = RealApis(RealConfig(service_url=url), transport, key)
    return asyncio.run(real.answer(API, {"player_id": "7"}))


def replied(status: int, body: bytes) -> Recorded:
    return Recorded(Reply(status, {}, body))


def test_the_service_is_asked_in_toolbenchs_form() -> None:
    transport = replied(200, b'{"error": "", "response": {"a": 1}}')
    answered = call(transport)
    assert (answered.error, answered.response, answered.failure) == ("", {"a": 1}, "")
    assert (answered.source, answered.origin) == ("real", "real")
    (request,) = transport.asked
    assert (request.method, request.url) == ("POST", URL)
    assert request.headers["toolbench_key"] == KEY
    assert json.loads(request.body or b"") == {
        "category": "News_Media",
        "tool_name": "clique",
        "api_name": "player_details",
        "tool_input": {"player_id": "7"},
        "strip": "",
        "toolbench_key": KEY,
    }
    assert KEY not in repr(request)
    call(transport, key="")
    assert "toolbench_key" not in transport.asked[1].headers


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (replied(200, b"<html>"), "request invalid, data error"),
        (replied(200, b'{"error": 1}'), "request invalid, data error"),
        (replied(200, b'{"error": "", "response": ""}'), ""),
        (replied(302, b""), "Message error..."),
        (replied(404, b"{}"), "API not working error..."),
        (replied(504, b"{}"), "Timeout error..."),
        (Recorded(TimeoutError("slow")), "Timeout error..."),
        (Recorded(OSError("http://secret")), "request invalid, data error"),
    ],
)
def test_a_failure_has_upstreams_error(reply: Recorded, error: str) -> None:
    answered = call(reply)
    assert (answered.failure, answered.error, answered.response) == ("real", error, "")


@pytest.mark.parametrize(
    ("response", "used"),
    [
        ({"name": "Messi"}, True),
        ("", False),
        ({"price": 1500}, False),
        ("got an unexpected keyword argument 'parameter'", True),
        ("Rate Limit reached", False),
        ({"message": "API doesn't exists"}, False),
        ("service not found", True),
        ("Service Not Found", False),
    ],
)
def test_an_answer_is_used_by_what_its_text_contains(response: Any, used: bool) -> None:
    assert usable("", response) is used
    assert not usable("e", response)


def test_secrets_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"headers": {"key": KEY}, "url": "https://x/?k=very%22secret%2Fkey", KEY: [KEY]}
    answered = call(replied(200, json.dumps({"error": "", "response": said}).encode()))
    assert "secret" not in json.dumps(answered.response)
    assert answered.response["***"] == ["***"]
    for url in ("tools.test/x?key=hidden", "tools.test/x#hidden", "me:hidden@tools.test/x"):
        with pytest.raises(UserError, match=r"^real\.service_url: ") as caught:
            check_real(RealConfig(service_url=f"https://{url}"), "real")
        assert "hidden" not in str(caught.value)
    for value in ("", "  ", "a\nb", "ü"):
        monkeypatch.setenv("SPORTS_KEY", value)
        with pytest.raises(UserError, match=r"real\.key_env: .*SPORTS_KEY"):
            read_key(RealConfig(service_url=URL, key_env="SPORTS_KEY"), "real")


def served(handler: Callable[[Any], Awaitable[Any]]) -> tuple[Answered, int]:
    """Make one call to a local server; return the answer and the number of requests."""
    hits = 0

    async def play() -> Answered:
        async def counted(request: Any) -> Any:
            nonlocal hits
            hits += 1
            return await handler(request)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", counted)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        transport = Http()
        config = RealConfig(service_url=f"http://127.0.0.1:{runner.addresses[0][1]}/rapidapi")
        try:
            return await RealApis(config, transport, KEY).answer(API, {"player_id": "7"})
        finally:
            await transport.close()
            await runner.cleanup()

    return asyncio.run(play()), hits


def test_a_service_answers() -> None:
    async def handler(request: Any) -> Any:
        assert request.headers["toolbench_key"] == KEY
        return web.json_response({"error": "", "response": (await request.json())["tool_input"]})

    answered, hits = served(handler)
    assert (answered.response, hits) == ({"player_id": "7"}, 1)


def test_redirects_and_endless_or_compressed_answers_are_failures() -> None:
    async def redirect(request: Any) -> Any:
        raise web.HTTPFound("/elsewhere")

    async def endless(request: Any) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b"x" * 65_536)
        return response

    async def compressed(request: Any) -> Any:
        body = gzip.compress(b"x" * 10_000_000)
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    for handler in (redirect, endless, compressed):
        answered, hits = served(handler)
        assert (answered.failure, answered.response, hits) == ("real", "", 1)


def test_a_slow_answer_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: Any) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    monkeypatch.setattr("ace_ray.benchmarks.stabletoolbench.apis.real.TIMEOUT_S", 0.2)
    answered, _ = served(handler)
    assert (answered.error, answered.failure) == ("Timeout error...", "real")


def test_a_run_is_scored_without_the_key_of_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPORTS_KEY", raising=False)
    real = {"key_env": "SPORTS_KEY", "service_url": "https://a.test/x"}
    options = {"data": "mini", "judge": "none", "apis": ["real"], "real": real}
    made = make_benchmark("stabletoolbench", options)
    made.entries()
    made.ready(named=False)
    # What episodes start with.
    with pytest.raises(UserError, match=r"real\.key_env: .*'SPORTS_KEY' does not contain a key"):
        made.service()
