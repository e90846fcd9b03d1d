"""A model behind a URL, against a local server that plays every failure."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ace_ray.config.schema import CandidateEndpoint, EndpointConfig
from ace_ray.errors import PromptTooLong, RowError, UserError
from ace_ray.models import endpoint as module
from ace_ray.models import pacing
from ace_ray.models.endpoint import EndpointDown, EndpointModel, EndpointRefused
from ace_ray.models.pacing import Breaker, Pacer
from ace_ray.types import Completion, Sampling

web = pytest.importorskip("aiohttp.web")

KEY = "sk-very-secret"
ASKED = [{"role": "user", "content": "hello"}]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BACKOFF_S", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def answer(content: Any = "hi", **message: Any) -> dict[str, Any]:
    return {
        "model": "m-2026-01-01",
        "choices": [
            {
                "message": {"role": "assistant", "content": content, **message},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }


def said(**reply: Any) -> Callable[[Any], Awaitable[Any]]:
    """A handler's step: one response."""

    async def respond(request: Any) -> Any:
        if "tree" in reply:
            return web.json_response(reply["tree"])
        return web.Response(**reply)

    return respond


class Endpoint:
    """A server whose n-th request is handled by the n-th step, the last one for ever."""

    def __init__(self, *steps: Callable[[Any], Awaitable[Any]]) -> None:
        self._steps = steps
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def _handle(self, request: Any) -> Any:
        self.bodies.append(json.loads(await request.read()))
        self.headers.append(dict(request.headers))
        step = self._steps[min(len(self.bodies), len(self._steps)) - 1]
        return await step(request)

    async def __aenter__(self) -> Endpoint:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()


Chat = Callable[[EndpointModel], Awaitable[Any]]


def ask(server: Endpoint, talk: Chat | None = None, **config: Any) -> Any:
    """What ``talk`` (default: one chat) returns with a model at ``server``."""

    async def once(model: EndpointModel) -> Completion:
        return await model.chat(ASKED, Sampling())

    async def main() -> Any:
        async with server:
            model = EndpointModel(
                EndpointConfig(**{"url": server.url, "model": "m", "max_retries": 2, **config})
            )
            try:
                return await (talk or once)(model)
            finally:
                await model.close()

    return asyncio.run(main())


def test_a_completion_with_its_usage() -> None:
    server = Endpoint(said(tree=answer()))
    done = ask(server)
    assert (done.text, done.finish_reason) == ("hi", "stop")
    assert (done.prompt_tokens, done.completion_tokens) == (7, 3)
    assert done.seconds > 0
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert server.bodies[0] == {
        "model": "m",
        "messages": ASKED,
        "max_tokens": 1200,
        "temperature": 0.0,
        "top_p": 1.0,
    }


def test_sampling_is_sent_as_asked_and_surrogates_are_not() -> None:
    server = Endpoint(said(tree=answer()))

    async def talk(model: EndpointModel) -> str:
        sampling = Sampling(temperature=0.5, top_p=0.9, top_k=4, max_tokens=9, seed=3, stop=("x",))
        return (await model.chat([{"role": "user", "content": "a\ud800é"}], sampling)).model

    assert ask(server, talk) == "m-2026-01-01"
    sent = server.bodies[0]
    assert sent["messages"][0]["content"] == "a?é"
    assert {k: v for k, v in sent.items() if k not in ("model", "messages")} == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "seed": 3,
        "stop": ["x"],
    }


def test_no_key_is_sent_where_none_is_taken() -> None:
    server = Endpoint(said(tree=answer()))
    ask(server, api_key_env=None)
    assert "Authorization" not in server.headers[0]


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match="OPENAI_API_KEY is not set"):
        EndpointModel(EndpointConfig(url="http://h/v1", model="m"))


@pytest.mark.parametrize("status", [408, 429, 503])
def test_a_passing_failure_is_tried_again(status: int) -> None:
    server = Endpoint(said(status=status, headers={"Retry-After": "0"}), said(tree=answer()))
    assert ask(server).text == "hi"
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"<html>busy</html>",
        b"[" * 100_000,
        b'{"choices": []}',
        b'{"choices": [{"message": "hi"}]}',
        b'{"choices": [{"message": {"content": ["hi"]}}]}',
        b'{"choices": [{"message": {"content": 1}}]}',
        b"\xff\xfe",
        b'{"choices": ' + b"9" * 5000 + b"}",
    ],
)
def test_garbage_is_no_answer(broken: bytes) -> None:
    server = Endpoint(said(body=broken))
    with pytest.raises(EndpointDown, match="in 3 attempts: not a chat completion"):
        ask(server)
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    "reason",
    ["abort", "ERROR", "insufficient_system_resource", 3],
)
def test_an_interrupted_answer_is_none_and_asked_for_again(reason: Any) -> None:
    tree = answer()
    tree["choices"][0]["finish_reason"] = reason
    server = Endpoint(said(tree=tree), said(tree=answer()))
    assert ask(server).text == "hi"
    assert len(server.bodies) == 2


def test_interrupted_answers_do_not_make_an_endpoint_down() -> None:
    tree = answer()
    tree["choices"][0]["finish_reason"] = "abort"

    async def talk(model: EndpointModel) -> bool:
        for _ in range(4):
            with pytest.raises(EndpointDown, match="its finish_reason is 'abort'"):
                await model.chat(ASKED, Sampling())
        return model._breaker.is_open

    assert ask(Endpoint(said(tree=tree)), talk) is False


@pytest.mark.parametrize("reason", ["content_filter", "SAFETY"])
def test_a_withheld_answer_is_none_and_is_not_asked_for_again(reason: str) -> None:
    tree = answer()
    tree["choices"][0]["finish_reason"] = reason
    server = Endpoint(said(tree=tree))
    with pytest.raises(EndpointRefused, match=rf"withheld the answer.*'{reason}'"):
        ask(server)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        "This model's maximum context length is 512 tokens. However, you requested 1240 tokens "
        "(40 in the messages, 1200 in the completion).",
        "'max_tokens' or 'max_completion_tokens' is too large: 1200. This model's maximum context "
        "length is 512 tokens and your request has 40 input tokens (1200 > 512 - 40).",
    ],
)
def test_a_prompt_that_fits_is_answered_as_far_as_there_is_room(refusal: str) -> None:
    """Some servers refuse what others cut by themselves."""
    server = Endpoint(
        said(status=400, text=json.dumps({"error": {"message": refusal}})), said(tree=answer())
    )
    assert ask(server).text == "hi"
    assert [body["max_tokens"] for body in server.bodies] == [1200, 472]


def test_the_limit_that_is_sent_is_the_one_that_is_lowered() -> None:
    refusal = "maximum context length is 512 tokens and your request has 416 input tokens"
    server = Endpoint(
        said(status=400, text=json.dumps({"error": {"message": refusal}})), said(tree=answer())
    )

    async def main() -> str:
        async with server:
            config = CandidateEndpoint(
                url=server.url,
                model="m",
                extra_body={"max_tokens": None, "max_completion_tokens": 8000},
            )
            model = EndpointModel(config)
            try:
                return (await model.chat(ASKED, Sampling(max_tokens=50))).text
            finally:
                await model.close()

    assert asyncio.run(main()) == "hi"
    limits = [(body.get("max_tokens"), body["max_completion_tokens"]) for body in server.bodies]
    assert limits == [(None, 8000), (None, 96)]


def test_a_prompt_that_leaves_no_room_does_not_fit() -> None:
    refusal = "maximum context length is 512 tokens, your request has 600 input tokens"
    server = Endpoint(said(status=400, text=json.dumps({"error": {"message": refusal}})))
    with pytest.raises(PromptTooLong):
        ask(server)
    assert len(server.bodies) == 1


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1 << 20)
    sent = 0

    async def flood(request: Any) -> Any:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b"x" * (1 << 16))
            sent += 1
        return response

    with pytest.raises(EndpointDown, match="more than 1 MiB"):
        ask(Endpoint(flood), max_retries=0)
    # Some megabytes sit in socket buffers.
    assert sent < 500


def test_a_server_that_never_finishes() -> None:
    async def hang(request: Any) -> Any:
        await asyncio.sleep(60)

    server = Endpoint(hang)
    with pytest.raises(EndpointDown, match=r"in 2 attempts: timed out after 0\.05 s"):
        ask(server, timeout_s=0.05, max_retries=1)
    assert len(server.bodies) == 2


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = EndpointModel(EndpointConfig(url=f"http://127.0.0.1:{port}/v1", model="m"))
    with pytest.raises(EndpointDown) as caught:
        asyncio.run(model.chat(ASKED, Sampling()))
    line = str(caught.value)
    assert line.startswith(f"127.0.0.1:{port} gave no answer in 6 attempts: ")
    assert "\n" not in line
    assert KEY not in line
    assert caught.value.status == "infra_error"


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_accepted_is_named_but_not_shown(status: int) -> None:
    text = json.dumps({"error": {"message": f"Incorrect API key\nprovided: {KEY}"}})
    server = Endpoint(said(status=status, text=text))
    with pytest.raises(EndpointRefused, match="the key in OPENAI_API_KEY") as caught:
        ask(server)
    assert KEY not in str(caught.value)
    assert "Incorrect API key provided: ***" in str(caught.value)
    assert len(server.bodies) == 1


def test_an_endpoint_that_wants_a_key_after_all() -> None:
    with pytest.raises(EndpointRefused, match="does not accept requests without a key: HTTP 401"):
        ask(Endpoint(said(status=401)), api_key_env=None)


def test_a_refused_request_says_why_in_one_short_line() -> None:
    text = json.dumps({"error": {"message": "unknown parameter\n" * 1000}})
    server = Endpoint(said(status=400, text=text))
    with pytest.raises(EndpointRefused, match="rejects the request: HTTP 400: unknown") as caught:
        ask(server)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "said_so",
    [
        {"error": {"message": "too long", "code": "context_length_exceeded"}},
        {"message": "This model's maximum context length is 10 tokens."},
    ],
)
def test_a_prompt_that_does_not_fit_is_named_as_such(said_so: dict[str, Any]) -> None:
    with pytest.raises(PromptTooLong):
        ask(Endpoint(said(status=400, text=json.dumps(said_so))))


def test_a_redirect_is_not_followed() -> None:
    server = Endpoint(said(status=307, headers={"Location": "http://127.0.0.1:1/"}))
    with pytest.raises(EndpointRefused, match="HTTP 307"):
        ask(server)


def test_too_long_a_pause_gives_the_row_up() -> None:
    server = Endpoint(said(status=429, headers={"Retry-After": "86400"}))
    with pytest.raises(EndpointDown, match="in 1 attempt: HTTP 429"):
        ask(server)


def test_concurrency_is_bounded() -> None:
    now = most = 0

    async def busy(request: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return web.json_response(answer())

    async def talk(model: EndpointModel) -> None:
        await asyncio.gather(*(model.chat(ASKED, Sampling()) for _ in range(12)))

    ask(Endpoint(busy), talk, max_concurrency=3)
    assert most == 3


def test_a_dead_endpoint_costs_few_rows_their_retries() -> None:
    server = Endpoint(said(status=503))

    async def talk(model: EndpointModel) -> list[str]:
        lines = []
        for _ in range(10):
            with pytest.raises(RowError) as caught:
                await model.chat(ASKED, Sampling())
            lines.append(str(caught.value))
        return lines

    lines = ask(server, talk)
    assert len(server.bodies) == 9  # three calls of three attempts
    assert all("was not asked" in line for line in lines[3:])


def test_an_endpoint_that_comes_back_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module, "Breaker", lambda: Breaker(clock=lambda: clock[0]))
    server = Endpoint(*[said(status=503)] * 10, said(tree=answer()))

    async def talk(model: EndpointModel) -> str:
        for _ in range(3):
            with pytest.raises(EndpointDown):
                await model.chat(ASKED, Sampling())
        clock[0] += 31
        with pytest.raises(EndpointDown, match="in 1 attempt"):  # on trial
            await model.chat(ASKED, Sampling())
        with pytest.raises(EndpointDown, match="was not asked"):
            await model.chat(ASKED, Sampling())
        clock[0] += 31
        return (await model.chat(ASKED, Sampling())).text

    assert ask(server, talk) == "hi"


def test_an_endpoint_that_asks_for_patience_is_not_called_dead() -> None:
    server = Endpoint(said(status=429))

    async def talk(model: EndpointModel) -> None:
        for _ in range(6):
            with pytest.raises(EndpointDown, match="HTTP 429"):
                await model.chat(ASKED, Sampling())

    ask(server, talk, max_retries=0)
    assert len(server.bodies) == 6


def test_a_pause_that_the_server_asks_for_holds_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []
    monkeypatch.setattr(Pacer, "hold", lambda self, now, seconds: held.append(seconds))
    server = Endpoint(said(status=429, headers={"Retry-After": "0.02"}), said(tree=answer()))
    assert ask(server).text == "hi"
    assert held == [0.02]


def test_proxies_of_the_environment_are_used_outside_of_the_cluster_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    async def main() -> None:
        async def proxy(request: Any) -> Any:
            seen.append(str(request.url))
            return web.json_response(answer())

        # Takes any path: a proxy gets the whole URL in the request line.
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", proxy)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        monkeypatch.setenv("http_proxy", f"http://{host}:{port}")
        monkeypatch.setenv("no_proxy", "")
        config = EndpointConfig(url="http://model.invalid/v1", model="m", max_retries=0)
        outside, inside = EndpointModel(config), EndpointModel(config, in_cluster=True)
        assert (await outside.chat(ASKED, Sampling())).text == "hi"
        with pytest.raises(EndpointDown):
            await inside.chat(ASKED, Sampling())
        await outside.close()
        await inside.close()
        await runner.cleanup()

    asyncio.run(main())
    assert seen == ["http://model.invalid/v1/chat/completions"]


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


async def twice(model: EndpointModel) -> list[str]:
    drawn = Sampling().following(SCHEMA)
    return [(await model.chat(ASKED, drawn)).schema_refused for _ in range(2)]


def test_a_schema_is_sent_as_a_response_format() -> None:
    server = Endpoint(said(tree=answer()))
    assert ask(server, twice) == ["", ""]
    assert [body["response_format"]["json_schema"]["schema"] for body in server.bodies] == [
        SCHEMA,
        SCHEMA,
    ]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (400, "response_format is not supported"),
        (422, "Invalid JSON Schema"),
        (400, "Structured output needs a newer model"),
    ],
)
def test_an_endpoint_that_refuses_one_is_asked_without_and_says_so(status: int, why: str) -> None:
    refusal = said(status=status, text=json.dumps({"error": {"message": why}}))
    server = Endpoint(refusal, said(tree=answer()))
    first, second = ask(server, twice)
    assert why in first
    assert second == first
    assert ["response_format" in body for body in server.bodies] == [True, False, False]


@pytest.mark.parametrize(
    ("status", "why"), [(413, "payload too large"), (400, "try again"), (403, "schema: forbidden")]
)
def test_one_that_refuses_something_else_is_asked_with_the_next(status: int, why: str) -> None:
    refusal = said(status=status, text=json.dumps({"error": {"message": why}}))
    server = Endpoint(refusal, said(tree=answer()))
    first, second = ask(server, twice)
    assert why in first
    assert second == ""
    assert ["response_format" in body for body in server.bodies] == [True, False, True]


def test_one_that_is_to_get_none_is_asked_without() -> None:
    server = Endpoint(said(tree=answer()))

    async def main() -> list[str]:
        async with server:
            config = CandidateEndpoint(
                url=server.url, model="m", extra_body={"response_format": None}
            )
            model = EndpointModel(config, where="model.endpoint")
            try:
                return await twice(model)
            finally:
                await model.close()

    assert asyncio.run(main()) == ["model.endpoint.extra_body removes response_format"] * 2
    assert not any("response_format" in body for body in server.bodies)


def test_one_that_refuses_the_question_either_way_is_asked_with_a_schema_again() -> None:
    server = Endpoint(said(status=404, text="no such model"))

    async def talk(model: EndpointModel) -> None:
        for _ in range(2):
            with pytest.raises(EndpointRefused, match="no such model"):
                await model.chat(ASKED, Sampling().following(SCHEMA))

    ask(server, talk)
    assert ["response_format" in body for body in server.bodies] == [True, False, True, False]
