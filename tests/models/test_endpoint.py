"""A model behind a URL, against a local server that fails in every way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote_plus

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
Step = Callable[[Any], Awaitable[Any]]
Chat = Callable[[EndpointModel], Awaitable[Any]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BACKOFF_S", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def answer(finish_reason: Any = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": "hi"}
    return {
        "model": "m-2026-01-01",
        "choices": [{"message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }


def step_of(tree: Any = None, **reply: Any) -> Step:
    """Return a step that answers with a JSON ``tree``, or with another reply."""

    async def respond(request: Any) -> Any:
        return web.json_response(tree) if tree else web.Response(**reply)

    return respond


def refusal(status: int, why: str) -> Step:
    return step_of(status=status, text=json.dumps({"error": {"message": why}}))


ANSWER = step_of(answer())


class Endpoint:
    """A server that handles its n-th request with the n-th step, then always with the last."""

    def __init__(self, *steps: Step) -> None:
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
        # A proxy gets the whole URL in the request line.
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()


def ask(server: Endpoint, talk: Chat | None = None, **config: Any) -> Any:
    """Return the result of ``talk`` (default: one chat) with a model at ``server``."""

    async def once(model: EndpointModel) -> Completion:
        return await model.chat(ASKED, Sampling())

    async def main() -> Any:
        async with server:
            kind = CandidateEndpoint if "extra_body" in config else EndpointConfig
            values = {"url": server.url, "model": "m", "max_retries": 2, **config}
            model = EndpointModel(kind(**values), location="model.endpoint")
            try:
                return await (talk or once)(model)
            finally:
                await model.close()

    return asyncio.run(main())


def test_a_completion_with_its_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Endpoint(ANSWER)

    async def talk(model: EndpointModel) -> Completion:
        sampling = Sampling(temperature=0.5, top_p=0.9, top_k=4, max_tokens=9, seed=3, stop=("x",))
        return await model.chat([{"role": "user", "content": "a\ud800é"}], sampling)

    completion = ask(server, talk)
    assert (completion.text, completion.finish_reason) == ("hi", "stop")
    assert completion.model == "m-2026-01-01"
    assert (completion.prompt_tokens, completion.completion_tokens) == (7, 3)
    assert completion.seconds > 0
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    drawn: dict[str, Any] = {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "seed": 3,
    }
    drawn |= {"stop": ["x"]}
    messages = [{"role": "user", "content": "a?é"}]
    assert server.bodies[0] == {"model": "m", "messages": messages, **drawn}
    server = Endpoint(ANSWER)
    ask(server, api_key_env=None)
    assert "Authorization" not in server.headers[0]
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match="OPENAI_API_KEY is not set"):
        ask(server)


def test_a_passing_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s: list[float] = []
    monkeypatch.setattr(Pacer, "delay", lambda self, now_s, seconds: pauses_s.append(seconds))
    failures = [step_of(status=code, headers={"Retry-After": "0.02"}) for code in (408, 429, 503)]
    failures += [step_of(answer(reason)) for reason in ("insufficient_system_resource", 3)]
    for failure in failures:
        server = Endpoint(failure, ANSWER)
        facts = ask(server).endpoint
        assert facts.attempts == len(server.bodies) == 2
        assert facts.waited_s > 0
    assert pauses_s == [0.02] * 3 + [0.0] * 2, "a pause that the server asks for holds everyone"


GARBAGE = (
    *(b"<html>busy</html>", b"[" * 100_000, b"\xff\xfe", b'{"choices": []}'),
    *(b'{"choices": [{"message": "hi"}]}', b'{"choices": [{"message": {"content": ["hi"]}}]}'),
    *(b'{"choices": [{"message": {"content": 1}}]}', b'{"choices": ' + b"9" * 5000 + b"}"),
)


def test_garbage_is_asked_for_again_and_a_withheld_answer_is_not() -> None:
    for body in GARBAGE:
        server = Endpoint(step_of(body=body))
        with pytest.raises(EndpointDown, match="in 3 attempts: not a chat completion"):
            ask(server)
        assert len(server.bodies) == 3
    for reason in ("content_filter", "SAFETY"):
        server = Endpoint(step_of(answer(reason)))
        with pytest.raises(EndpointRefused, match=rf"withheld the answer.*'{reason}'"):
            ask(server)
        assert len(server.bodies) == 1


def test_an_answer_gets_the_room_that_the_prompt_leaves() -> None:
    why = "This model's maximum context length is 512 tokens. However, you requested 1240 tokens "
    server = Endpoint(refusal(400, why + "(40 in the messages, 1200 in the completion)."), ANSWER)
    assert ask(server).text == "hi"
    assert [body["max_tokens"] for body in server.bodies] == [1200, 472]
    why = "maximum context length is 512 tokens and your request has 416 input tokens"
    server = Endpoint(refusal(400, why), ANSWER)
    ask(server, extra_body={"max_tokens": None, "max_completion_tokens": 8000})
    assert [body["max_completion_tokens"] for body in server.bodies] == [8000, 96]
    assert not any("max_tokens" in body for body in server.bodies)


def test_a_prompt_that_does_not_fit_is_named_as_such() -> None:
    for tree in (
        {"error": {"message": "too long", "code": "context_length_exceeded"}},
        {"detail": "maximum context length is 512 tokens, your request has 600 input tokens"},
    ):
        server = Endpoint(step_of(status=400, text=json.dumps(tree)))
        with pytest.raises(PromptTooLong):
            ask(server)
        assert len(server.bodies) == 1


def test_answers_without_end_and_silence_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
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

    async def hang(request: Any) -> Any:
        await asyncio.sleep(60)

    with pytest.raises(EndpointDown, match="more than 1 MiB"):
        ask(Endpoint(flood), max_retries=0)
    # Some megabytes sit in socket buffers.
    assert sent < 500
    with pytest.raises(EndpointDown, match=r"in 2 attempts: timed out after 0\.05 s"):
        ask(Endpoint(hang), timeout_s=0.05, max_retries=1)


WRONG_KEY = f"Incorrect key\nprovided: {KEY}"
NO_KEY = {"api_key_env": None}


@pytest.mark.parametrize(
    ("step", "config", "line"),
    [
        (refusal(401, WRONG_KEY), {}, "the key in OPENAI_API_KEY: HTTP 401"),
        (refusal(403, WRONG_KEY), {}, "Incorrect key provided: ***"),
        (step_of(status=401), NO_KEY, "does not accept requests without a key: HTTP"),
        (refusal(400, "unknown parameter\n" * 1000), {}, "rejects the request: HTTP 400: unknown"),
        (step_of(status=307, headers={"Location": "http://127.0.0.1:1/"}), {}, "HTTP 307"),
    ],
    ids=["wrong key", "forbidden", "no key", "long refusal", "redirect"],
)
def test_a_refusal_is_one_short_line_without_the_key(step, config, line) -> None:
    server = Endpoint(step)
    with pytest.raises(EndpointRefused) as caught:
        ask(server, **config)
    text = str(caught.value)
    assert line in text
    assert KEY not in text
    assert "\n" not in text
    assert len(text) < 400
    assert len(server.bodies) == 1


def test_no_part_of_an_answer_repeats_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that may be a word stays, since an answer must not change."""
    for key, has_key in (("very-secret/key+0123", False), ("EMPTY", True)):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        message = {"role": "assistant", "content": f"bad key {key}"}
        tree = answer() | {"model": quote_plus(key), "system_fingerprint": key}
        completion = ask(Endpoint(step_of(tree | {"choices": [{"message": message}]})))
        assert completion.text == f"bad key {key if has_key else '***'}"
        facts = completion.endpoint
        assert (facts.model, facts.fingerprint) == ((key, key) if has_key else ("***", "***"))


def test_concurrency_is_bounded() -> None:
    running = [0]

    async def busy(request: Any) -> Any:
        running.append(running[-1] + 1)
        await asyncio.sleep(0.01)
        running.append(running[-1] - 1)
        return web.json_response(answer())

    async def talk(model: EndpointModel) -> None:
        await asyncio.gather(*(model.chat(ASKED, Sampling()) for _ in range(12)))

    ask(Endpoint(busy), talk, max_concurrency=3)
    assert max(running) == 3


def test_an_endpoint_that_is_down_costs_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module, "Breaker", lambda: Breaker(clock=lambda: clock[0]))
    server = Endpoint(*[step_of(status=503)] * 10, ANSWER)

    async def talk(model: EndpointModel) -> str:
        for _ in range(3):
            with pytest.raises(EndpointDown, match="in 3 attempts: HTTP 503"):
                await model.chat(ASKED, Sampling())
        for _ in range(5):
            with pytest.raises(RowError, match="request was not sent"):
                await model.chat(ASKED, Sampling())
        assert len(server.bodies) == 9
        clock[0] += 31
        with pytest.raises(EndpointDown, match="in 1 attempt"):  # on trial
            await model.chat(ASKED, Sampling())
        with pytest.raises(EndpointDown, match="request was not sent"):
            await model.chat(ASKED, Sampling())
        clock[0] += 31
        return (await model.chat(ASKED, Sampling())).text

    assert ask(server, talk) == "hi"


def test_pauses_and_interrupted_answers_do_not_mean_that_it_is_down() -> None:
    pause = step_of(status=429, headers={"Retry-After": "86400"})
    for step, why in ((pause, "in 1 attempt: HTTP 429"), (step_of(answer("abort")), "'abort'")):
        server = Endpoint(step)

        async def talk(model: EndpointModel, why: str = why) -> None:
            for _ in range(5):
                with pytest.raises(EndpointDown, match=why):
                    await model.chat(ASKED, Sampling())

        ask(server, talk)
        assert len(server.bodies) == (5 if step is pause else 15)


def test_requests_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Endpoint(ANSWER) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
            monkeypatch.setenv("no_proxy", "")
            config = EndpointConfig(url="http://model.invalid/v1", model="m", max_retries=0)
            model = EndpointModel(config)
            assert (await model.chat(ASKED, Sampling())).text == "hi"
            await model.close()

    asyncio.run(main())


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


async def twice(model: EndpointModel) -> list[str]:
    drawn = Sampling().with_schema(SCHEMA)
    return [(await model.chat(ASKED, drawn)).schema_refused for _ in range(2)]


def test_a_schema_is_sent_unless_the_config_removes_it() -> None:
    server = Endpoint(ANSWER)
    assert ask(server, twice) == ["", ""]
    sent = [body["response_format"]["json_schema"]["schema"] for body in server.bodies]
    assert sent == [SCHEMA, SCHEMA]
    server = Endpoint(ANSWER)
    why = "model.endpoint.extra_body removes response_format"
    assert ask(server, twice, extra_body={"response_format": None}) == [why] * 2
    assert not any("response_format" in body for body in server.bodies)


@pytest.mark.parametrize(
    ("status", "why", "again"),
    [
        pytest.param(422, "Invalid JSON Schema", False, id="schema"),
        pytest.param(413, "payload too large", True, id="size"),
        pytest.param(403, "schema: forbidden", True, id="permission"),
    ],
)
def test_a_refused_schema_is_left_out_and_reported(status: int, why: str, again: bool) -> None:
    server = Endpoint(refusal(status, why), ANSWER)
    first, second = ask(server, twice)
    assert why in first
    assert second == ("" if again else first)
    assert ["response_format" in body for body in server.bodies] == [True, False, again]
    with pytest.raises(EndpointRefused, match=why):
        ask(Endpoint(refusal(status, why)), twice)
