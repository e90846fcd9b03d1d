"""The candidate behind an endpoint: checks of its config, and one question before a run."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from ace_ray.config.schema import RunConfig, run_config
from ace_ray.errors import RowError, UserError
from ace_ray.models.endpoint_engine import EndpointEngine, ask_endpoint, endpoint_ref
from ace_ray.models.families import FormatChoice
from ace_ray.pipeline.roles import candidate_identity
from ace_ray.types import Sampling, digest
from tests.scripted_endpoint import Scripted, call, completion, scripted_endpoint

KEY = "the-key-of-the-test"
URL = "https://api.example.com/deep/v1"
ASKED = [{"role": "user", "content": "x"}]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_exactly_one_candidate_is_named() -> None:
    model = {"endpoint": {"url": URL, "model": "m"}}
    for tree, line in (
        ({"model": {}}, "'model' has neither a source nor an endpoint; write either source"),
        ({"model": {"source": "a/b", **model}}, "'model' names both a source and an endpoint"),
        ({"model": {"source": "a"}, "backend": "endpoint"}, "'backend' is 'endpoint'"),
        ({"model": model, "backend": "fake"}, "'backend' is 'fake', but the model is behind an en"),
        ({"model": {"endpoint": {"url": URL}}}, "'model.endpoint.model' is missing"),
        ({"model": {"endpoint": "http://h"}}, "'model.endpoint' is 'http://h'"),
    ):
        with pytest.raises(UserError, match=line):
            run_config({"benchmarks": ["acebench"], **tree}, where="c.yaml")


def test_keys_of_an_engine_are_refused() -> None:
    parts: list[dict[str, Any]] = [{"engine": {"max_model_len": 9}}, {"worker_cpus": 2.0}]
    keys = {"revision": "main", "chat_template": "t.jinja", "plugins": ["p.py"]}
    keys |= {"start_date": "2026-01-01", "tool_parser": "hermes"}
    parts += [{"model": {key: value}} for key, value in keys.items()]
    for more in parts:
        with pytest.raises(UserError, match="configures an engine of the run"):
            endpoint_ref(config(more=more))
    with pytest.raises(UserError, match="write auto or none; the server has its own"):
        endpoint_ref(config(more={"model": {"reasoning_parser": "qwen3"}}))


def test_bad_keys_of_an_endpoint_are_named() -> None:
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"messages": []}, "'messages' is set by ace_ray"),
        ({"temperature": 1}, "'temperature' belongs to sampling; write sampling.temperature"),
        ({"anything": None}, "'anything' needs a value here"),
        ({"response_format": {}}, "write response_format: null to ask without"),
        ({"schema": None}, "'schema' is set by the benchmark"),
        ({"chat_template_kwargs": {"a": 1}}, "write model.chat_template_kwargs"),
    ]
    for body, line in bodies:
        with pytest.raises(UserError, match=rf"^model\.endpoint\.extra_body: .*{line}"):
            endpoint_ref(config(extra_body=body))
    with pytest.raises(UserError, match=r"^model\.endpoint\.url: ") as caught:
        endpoint_ref(config(url="http://u:pw-hidden@h/v1"))
    assert "pw-hidden" not in str(caught.value)
    with pytest.raises(UserError, match=r"^model\.endpoint\.api_key_env: the environment variable"):
        endpoint_ref(config(api_key_env="NOT_SET_HERE"))
    endpoint_ref(config(extra_body={"temperature": None, "tool_choice": None, "x": {"y": 1}}))
    endpoint_ref(config(extra_body={"response_format": None}))


def test_the_identity_has_the_host_and_no_secret() -> None:
    parsed = config(extra_body={"x": 1})
    identity = candidate_identity(parsed, endpoint_ref(parsed), FormatChoice())
    assert identity["revision"] is None
    assert identity["model"] == "org/m"
    facts = {"host": "api.example.com", "path_sha256": digest("deep/v1"), "model": "org/m"}
    assert identity["endpoint"] == {**facts, "extra_body": {"x": 1}}
    assert KEY not in json.dumps(identity)
    assert "deep" not in json.dumps(identity)
    assert endpoint_ref(parsed).name == "m"


def test_one_question_shows_who_answers_and_how(server: Scripted) -> None:
    server.answer = lambda body: completion("Paris")
    answer = ask_endpoint(config(server.url), tools=False)
    expected = {"model": "m-1", "fingerprint": "fp_1", "finish_reason": "stop", "text": "Paris"}
    assert answer == {**expected, "usage": True}
    (body,) = server.requests
    assert body["max_tokens"] == 1200
    assert "tools" not in body
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    server.answer = lambda body: completion(None, tool_calls=[call("look_up", {"key": "x"})])
    assert ask_endpoint(config(server.url), tools=True)["calls"] == 1
    assert server.requests[-1]["tool_choice"] == "auto"


def test_an_endpoint_that_does_not_answer_is_noticed(server: Scripted) -> None:
    async def talk() -> list[bool]:
        engine = EndpointEngine(config(server.url, max_retries=0).model)
        states = [engine.answering]
        for answer in ((503, "busy"), completion(), (400, "{}")):
            server.answer = lambda body, answer=answer: answer  # type: ignore[misc]
            with suppress(RowError):
                await engine.chat(ASKED, Sampling())
            states.append(engine.answering)
        await engine.check_health()
        await engine.close()
        return states

    assert asyncio.run(talk()) == [True, False, True, True]
