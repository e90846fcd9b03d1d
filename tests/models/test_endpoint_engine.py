"""The candidate behind an endpoint: what its config may say, and what one question shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from ace_ray.config.schema import RunConfig, run_config
from ace_ray.errors import RowError, UserError
from ace_ray.models import pacing
from ace_ray.models.endpoint_engine import (
    EndpointEngine,
    ask_endpoint,
    check_endpoint,
    endpoint_ref,
)
from ace_ray.models.families import FormatChoice
from ace_ray.models.roles import candidate_identity
from ace_ray.types import Sampling, digest
from tests.scripted_endpoint import Scripted, call, completion, scripted_endpoint

KEY = "the-key-of-the-test"
URL = "https://api.example.com/deep/v1"
ASKED = [{"role": "user", "content": "x"}]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BACKOFF_S", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted_endpoint() as scripted:
        yield scripted


def config(url: str = URL, *, more: dict[str, Any] | None = None, **endpoint: Any) -> RunConfig:
    model = {"endpoint": {"url": url, "model": "org/m", **endpoint}}
    changes = dict(more or {})
    model |= changes.pop("model", {})
    tree = {"model": model, "benchmarks": ["acebench"], **changes}
    return run_config(tree, where="c.yaml")


def test_the_backend_follows_and_a_saved_config_is_read_as_it_is() -> None:
    made = config()
    assert made.backend == "endpoint"
    saved = json.loads(json.dumps(made.model_dump(mode="json")))
    assert run_config(saved, where="run.json") == made


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"model": {}}, "'model' has neither a source nor an endpoint; write either source"),
        (
            {"model": {"source": "a/b", "endpoint": {"url": URL, "model": "m"}}},
            "'model' names both a source and an endpoint",
        ),
        ({"model": {"source": "a"}, "backend": "endpoint"}, "'backend' is 'endpoint'"),
        (
            {"model": {"endpoint": {"url": URL, "model": "m"}}, "backend": "fake"},
            "'backend' is 'fake', but the model is behind an endpoint; leave backend out",
        ),
        ({"model": {"endpoint": {"url": URL}}}, "'model.endpoint.model' is missing"),
        ({"model": {"endpoint": {"url": URL, "model": "m", "modell": 1}}}, "did you mean 'model'?"),
        ({"model": {"endpoint": "http://h"}}, "'model.endpoint' is 'http://h'"),
    ],
)
def test_exactly_one_candidate_is_named(tree: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        run_config({"benchmarks": ["acebench"], **tree}, where="c.yaml")
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"engine": {"max_model_len": 9}}, "engine: configures an engine of the run"),
        ({"worker_cpus": 2.0}, "worker_cpus: configures an engine of the run"),
        ({"model": {"revision": "main"}}, "model.revision: configures an engine"),
        ({"model": {"adapter_revision": "main"}}, "model.adapter_revision: configures an engine"),
        ({"model": {"tool_parser": "hermes"}}, "model.tool_parser: configures an engine"),
        ({"model": {"chat_template": "t.jinja"}}, "model.chat_template: configures an engine"),
        ({"model": {"plugins": ["p.py"]}}, "model.plugins: configures an engine"),
        ({"model": {"start_date": "2026-01-01"}}, "model.start_date: configures an engine"),
        (
            {"model": {"reasoning_parser": "qwen3"}},
            "write auto or none; the server has its own parser",
        ),
    ],
)
def test_what_only_an_engine_has_is_refused(more: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_endpoint(config(more=more))
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ({"messages": []}, "'messages' is set by ace_ray"),
        ({"stream": True}, "'stream' is set by ace_ray"),
        ({"temperature": 1}, "'temperature' belongs to sampling; write sampling.temperature"),
        ({"anything": None}, "'anything' needs a value here"),
        ({"response_format": {"type": "text"}}, "write response_format: null to ask without"),
        ({"schema": {}}, "'schema' is set by the benchmark"),
        ({"schema": None}, "'schema' is set by the benchmark"),
        ({"chat_template_kwargs": {"a": 1}}, "write model.chat_template_kwargs"),
        ({"chat_template_kwargs": None}, "write model.chat_template_kwargs"),
    ],
)
def test_further_keys_of_requests_are_looked_at(extra: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_endpoint(config(extra_body=extra))
    assert str(caught.value).startswith("model.endpoint.extra_body: ")
    assert line in str(caught.value)
    check_endpoint(config(extra_body={"temperature": None, "tool_choice": None, "x": {"y": 1}}))
    check_endpoint(config(extra_body={"response_format": None}))


@pytest.mark.parametrize(
    ("endpoint", "line"),
    [
        ({"url": "ftp://h/v1"}, "model.endpoint.url: is not a valid endpoint URL"),
        ({"url": "http://h/v1/chat/completions"}, "the method's own path"),
        ({"url": "http://u:pw-hidden@h/v1"}, "user name"),
        ({"api_key_env": "NOT_SET_HERE"}, "model.endpoint.api_key_env: the environment variable"),
    ],
)
def test_where_and_with_which_key(endpoint: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_endpoint(config(**endpoint))
    assert line in str(caught.value)
    assert "pw-hidden" not in str(caught.value)


def test_the_identity_has_the_host_and_no_secret() -> None:
    made = config(extra_body={"x": 1})
    identity = candidate_identity(made, endpoint_ref(made.model), FormatChoice())
    assert identity["revision"] is None
    assert identity["model"] == "org/m"
    assert identity["endpoint"] == {
        "host": "api.example.com",
        "path_sha256": digest("deep/v1"),
        "model": "org/m",
        "extra_body": {"x": 1},
    }
    assert KEY not in json.dumps(identity)
    assert "deep" not in json.dumps(identity)
    assert endpoint_ref(made.model).name == "m"


def test_a_context_that_is_too_short_is_one_line(server: Scripted) -> None:
    why = "maximum context length is 512 tokens, and the prompt is longer"
    server.answer = lambda body: (400, json.dumps({"error": {"message": why}}))
    with pytest.raises(UserError, match=r"lower sampling\.max_tokens") as refused:
        ask_endpoint(config(server.url), tools=False)
    assert why in str(refused.value)


def test_one_question_shows_who_answers_and_how(server: Scripted) -> None:
    server.answer = lambda body: completion("Paris")
    answer = ask_endpoint(config(server.url), tools=False)
    assert answer == {
        "model": "m-1",
        "fingerprint": "fp_1",
        "usage": True,
        "finish_reason": "stop",
        "text": "Paris",
    }
    (asked,) = server.asked
    assert asked["max_tokens"] == 1200
    assert "tools" not in asked
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    server.answer = lambda body: completion(None, tool_calls=[call("look_up", {"key": "x"})])
    assert ask_endpoint(config(server.url), tools=True)["calls"] == 1
    assert server.asked[-1]["tool_choice"] == "auto"


@pytest.mark.parametrize(
    ("status", "said", "line"),
    [
        (
            404,
            {"error": {"message": "The model `org/m` does not exist."}},
            "check url (the part before",
        ),
        (401, {"error": {"message": f"Incorrect API key: {KEY}"}}, "the key in OPENAI_API_KEY"),
        (
            400,
            {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice'}},
            "start the server with a tool parser, or evaluate with mode: prompt",
        ),
    ],
)
def test_a_refusal_is_one_line_with_what_to_do(
    server: Scripted, status: int, said: dict[str, Any], line: str
) -> None:
    server.answer = lambda body: (status, json.dumps(said))
    with pytest.raises(UserError) as caught:
        ask_endpoint(config(server.url), tools=True)
    text = str(caught.value)
    assert text.startswith("model.endpoint: 127.0.0.1:")
    assert line in text
    assert "\n" not in text
    assert KEY not in text
    assert f"HTTP {status}: " in text, "the mask of secrets leaves what it is about"
    assert len(server.asked) == 1


def _always(answer: Any, body: dict[str, Any]) -> Any:
    return answer


def test_whether_it_answers_is_known_at_a_deadline(server: Scripted) -> None:
    """An endpoint that stopped answering is no candidate that used its time up."""

    async def talk() -> list[bool]:
        engine = EndpointEngine(config(server.url, max_retries=0).model)
        seen = [engine.answering]
        for answer in ((503, "busy"), completion(), (400, "{}")):
            server.answer = partial(_always, answer)
            with suppress(RowError):
                await engine.chat(ASKED, Sampling())
            seen.append(engine.answering)
        await engine.alive()
        await engine.close()
        return seen

    assert asyncio.run(talk()) == [True, False, True, True]


def test_attempts_and_waits_are_counted(server: Scripted) -> None:
    answers = [(429, "slow down"), completion()]
    server.answer = lambda body: answers.pop(0)

    async def talk() -> Any:
        engine = EndpointEngine(config(server.url).model)
        try:
            return await engine.chat(
                [{"role": "user", "content": "x"}], config().sampling.sampling()
            )
        finally:
            await engine.close()

    facts = asyncio.run(talk()).endpoint
    assert facts.attempts == 2
    assert facts.waited_s > 0
