"""Real APIs: the request to their service, and its failures. tests/models/test_http.py tests the
transport's limits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.benchmarks.stabletoolbench.apis.real import (
    MAX_BYTES,
    TIMEOUT_S,
    RealApis,
    RealConfig,
    check_real,
    read_key,
    usable,
)
from ace_ray.errors import UserError
from ace_ray.models.http import HttpRequest, Reply
from tests.benchmarks.stabletoolbench.builders import API

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
    assert (request.timeout_s, request.max_bytes) == (TIMEOUT_S, MAX_BYTES) == (15, 1 << 20)
    assert request.headers["Accept-Encoding"] == "identity"
    assert request.headers["toolbench_key"] == KEY
    names = {"category": "News_Media", "tool_name": "clique", "api_name": "player_details"}
    given = {"tool_input": {"player_id": "7"}, "strip": "", "toolbench_key": KEY}
    assert json.loads(request.body or b"") == names | given
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


def test_an_answer_is_used_by_what_its_text_contains() -> None:
    used = (
        {"name": "Messi"},
        "got an unexpected keyword argument 'parameter'",
        "service not found",
    )
    assert all(usable("", response) and not usable("e", response) for response in used)
    refused = {"message": "API doesn't exists"}
    for response in ("", {"price": 1500}, "Rate Limit reached", refused, "Service Not Found"):
        assert not usable("", response)


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
