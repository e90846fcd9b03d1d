"""A model behind a URL, against a local server that fails in every way."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import quote_plus

import pytest

from ace_ray.config.schema import CandidateEndpoint, EndpointConfig
from ace_ray.errors import PromptTooLong, RowError, UserError
from ace_ray.models import endpoint as module
from ace_ray.models import pacing
from ace_ray.models.endpoint import EndpointDown, EndpointModel, EndpointRefused
from ace_ray.models.pacing import Breaker, Pacer
from ace_ray.models.sampling import request_fields
from ace_ray.types import Completion, Sampling
from tests.scripted_endpoint import completion, scripted_endpoint

KEY = "sk-very-secret"
ASKED = [{"role": "user", "content": "hello"}]
DRAWN = Sampling(temperature=0.5, top_p=0.9, top_k=4, max_tokens=9, seed=3, stop=("x",))
Chat = Callable[[EndpointModel], Awaitable[Any]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BACKOFF_S", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def answer(finish_reason: Any = "stop") -> dict[str, Any]:
    tree = completion(model="m-2026-01-01")
    tree["choices"][0]["finish_reason"] = finish_reason
    return tree


def refusal(status: int, why: str) -> tuple[int, str]:
    return status, json.dumps({"error": {"message": why}})


class Endpoint:
    """A server that answers its n-th request with the n-th answer, then always with the last."""

    def __init__(self, *answers: Any) -> None:
        self._answers = answers
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def answer(self, body: dict[str, Any]) -> Any:
        answer = self._answers[min(len(self.bodies), len(self._answers)) - 1]
        return answer(body) if callable(answer) else answer


def ask(server: Endpoint, talk: Chat | None = None, **config: Any) -> Any:
    """Return the result of ``talk`` (default: one chat) with a model at ``server``."""

    async def once(model: EndpointModel) -> Completion:
        return await model.chat(ASKED, Sampling())

    async def main(url: str) -> Any:
        kind = CandidateEndpoint if "extra_body" in config else EndpointConfig
        values = {"url": url, "model": "m", "max_retries": 2, **config}
        model = EndpointModel(kind(**values), location="model.endpoint")
        try:
            return await (talk or once)(model)
        finally:
            await model.close()

    with scripted_endpoint() as scripted:
        scripted.answer, scripted.requests = server.answer, server.bodies
        scripted.headers = server.headers
        return asyncio.run(main(scripted.url))


def test_a_completion_with_its_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Endpoint(answer())

    async def talk(model: EndpointModel) -> Completion:
        return await model.chat([{"role": "user", "content": "a\ud800é"}], DRAWN)

    reply = ask(server, talk)
    assert (reply.text, reply.finish_reason) == ("hi", "stop")
    assert reply.model == "m-2026-01-01"
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 3)
    assert reply.seconds > 0
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    messages = [{"role": "user", "content": "a?é"}]
    drawn = request_fields(DRAWN)
    assert server.bodies[0] == {"model": "m", "messages": messages, **drawn}
    server = Endpoint(answer())
    ask(server, api_key_env=None)
    assert "Authorization" not in server.headers[0]
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match="OPENAI_API_KEY is not set"):
        ask(server)


def test_a_passing_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s: list[float] = []
    monkeypatch.setattr(Pacer, "delay", lambda self, now_s, seconds: pauses_s.append(seconds))
    failures: list[Any] = [(code, "", {"Retry-After": "0.02"}) for code in (408, 429, 503)]
    failures += [answer(reason) for reason in ("insufficient_system_resource", 3)]
    for failure in failures:
        server = Endpoint(failure, answer())
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
        server = Endpoint((200, body))
        with pytest.raises(EndpointDown, match="in 3 attempts: not a chat completion"):
            ask(server)
        assert len(server.bodies) == 3
    for reason in ("content_filter", "SAFETY"):
        server = Endpoint(answer(reason))
        with pytest.raises(EndpointRefused, match=rf"withheld the answer.*'{reason}'"):
            ask(server)
        assert len(server.bodies) == 1


def test_an_answer_gets_the_room_that_the_prompt_leaves() -> None:
    why = "This model's maximum context length is 512 tokens. However, you requested 1240 tokens "
    server = Endpoint(refusal(400, why + "(40 in the messages, 1200 in the completion)."), answer())
    assert ask(server).text == "hi"
    assert [body["max_tokens"] for body in server.bodies] == [1200, 472]
    why = "maximum context length is 512 tokens and your request has 416 input tokens"
    server = Endpoint(refusal(400, why), answer())
    ask(server, extra_body={"max_tokens": None, "max_completion_tokens": 8000})
    assert [body["max_completion_tokens"] for body in server.bodies] == [8000, 96]
    assert not any("max_tokens" in body for body in server.bodies)


def test_a_prompt_that_does_not_fit_is_named_as_such() -> None:
    for tree in (
        {"error": {"message": "too long", "code": "context_length_exceeded"}},
        {"detail": "maximum context length is 512 tokens, your request has 600 input tokens"},
    ):
        server = Endpoint((400, json.dumps(tree)))
        with pytest.raises(PromptTooLong):
            ask(server)
        assert len(server.bodies) == 1


def test_answers_without_end_and_silence_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1 << 20)
    sent = []

    def flood() -> Iterator[bytes]:
        for _ in range(1000):
            sent.append(1)
            yield bytes(1 << 16)

    def hang(body: dict[str, Any]) -> Any:
        time.sleep(1)
        return answer()

    with pytest.raises(EndpointDown, match="more than 1 MiB"):
        ask(Endpoint((200, flood())), max_retries=0)
    # Some megabytes sit in socket buffers.
    assert len(sent) < 500
    with pytest.raises(EndpointDown, match=r"in 2 attempts: timed out after 0\.05 s"):
        ask(Endpoint(hang), timeout_s=0.05, max_retries=1)


WRONG_KEY = f"Incorrect key\nprovided: {KEY}"
NO_KEY = {"api_key_env": None}


@pytest.mark.parametrize(
    ("step", "config", "line"),
    [
        (refusal(401, WRONG_KEY), {}, "the key in OPENAI_API_KEY: HTTP 401"),
        (refusal(403, WRONG_KEY), {}, "Incorrect key provided: ***"),
        ((401, ""), NO_KEY, "does not accept requests without a key: HTTP"),
        (refusal(400, "unknown parameter\n" * 1000), {}, "rejects the request: HTTP 400: unknown"),
        ((307, "", {"Location": "http://127.0.0.1:1/"}), {}, "HTTP 307"),
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
        reply = ask(Endpoint(tree | {"choices": [{"message": message}]}))
        assert reply.text == f"bad key {key if has_key else '***'}"
        facts = reply.endpoint
        assert (facts.model, facts.fingerprint) == ((key, key) if has_key else ("***", "***"))


def test_concurrency_is_bounded() -> None:
    running, lock = [0], threading.Lock()

    def busy(body: dict[str, Any]) -> Any:
        with lock:
            running.append(running[-1] + 1)
        time.sleep(0.01)
        with lock:
            running.append(running[-1] - 1)
        return answer()

    async def talk(model: EndpointModel) -> None:
        await asyncio.gather(*(model.chat(ASKED, Sampling()) for _ in range(12)))

    ask(Endpoint(busy), talk, max_concurrency=3)
    assert max(running) == 3


def test_an_endpoint_that_is_down_costs_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module, "Breaker", lambda: Breaker(clock=lambda: clock[0]))
    server = Endpoint(*[(503, "")] * 10, answer())

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
    pause = 429, "", {"Retry-After": "86400"}
    for reply, why in ((pause, "in 1 attempt: HTTP 429"), (answer("abort"), "'abort'")):
        server = Endpoint(reply)

        async def talk(model: EndpointModel, why: str = why) -> None:
            for _ in range(5):
                with pytest.raises(EndpointDown, match=why):
                    await model.chat(ASKED, Sampling())

        ask(server, talk)
        assert len(server.bodies) == (5 if reply is pause else 15)


def test_requests_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(model: EndpointModel) -> str:
        return (await model.chat(ASKED, Sampling())).text

    with scripted_endpoint() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "")
        assert ask(Endpoint(), talk, url="http://model.invalid/v1") == "hi"


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


async def twice(model: EndpointModel) -> list[str]:
    drawn = Sampling().with_schema(SCHEMA)
    return [(await model.chat(ASKED, drawn)).schema_refused for _ in range(2)]


def test_a_schema_is_sent_unless_the_config_removes_it() -> None:
    server = Endpoint(answer())
    assert ask(server, twice) == ["", ""]
    sent = [body["response_format"]["json_schema"]["schema"] for body in server.bodies]
    assert sent == [SCHEMA, SCHEMA]
    server = Endpoint(answer())
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
    server = Endpoint(refusal(status, why), answer())
    first, second = ask(server, twice)
    assert why in first
    assert second == ("" if again else first)
    assert ["response_format" in body for body in server.bodies] == [True, False, again]
    with pytest.raises(EndpointRefused, match=why):
        ask(Endpoint(refusal(status, why)), twice)
