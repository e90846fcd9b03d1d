"""Roles in a config: what is accepted, what is refused and in which words, what is recorded."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest

from ace_ray.config.schema import EndpointConfig, run_config
from ace_ray.errors import UserError
from ace_ray.models import roles
from ace_ray.models.families import FormatChoice
from ace_ray.models.roles import (
    EndpointRole,
    ServedRole,
    candidate_identity,
    check_role,
    host_of,
    parse_role,
    role_identity,
)
from ace_ray.models.sources import ModelRef
from ace_ray.types import Sampling

ENDPOINT = {"url": "https://api.example.com/v1", "model": "m"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")


def test_three_kinds_of_roles() -> None:
    assert parse_role("same", "user") == "same"
    served = parse_role(
        {"model": {"source": "a/b"}, "engine": {"max_model_len": 9}, "replicas": 2}, "user"
    )
    assert isinstance(served, ServedRole)
    assert served.model.source == "a/b"
    asked = parse_role({"endpoint": ENDPOINT, "sampling": {"max_tokens": 5}}, "user")
    assert isinstance(asked, EndpointRole)
    assert asked.sampling is not None
    assert asked.sampling.max_tokens == 5


@pytest.mark.parametrize(
    "value",
    ["same", {"endpoint": ENDPOINT}, {"model": {"source": "a/b"}, "sampling": {"top_k": 2}}],
)
def test_a_saved_role_is_read_as_it_is(value: Any) -> None:
    role = parse_role(value, "user")
    saved = role if isinstance(role, str) else json.loads(json.dumps(role.model_dump()))
    assert parse_role(saved, "user") == role


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("other", "user: 'other' is not a role"),
        (None, "user: None is not a role"),
        ({}, "user: [] is not a role"),
        (
            {"endpoint": ENDPOINT, "model": {"source": "a"}},
            "user: ['endpoint', 'model'] is not a role",
        ),
        ({"endpoint": {"url": "https://h"}}, "user: 'endpoint.model' is missing"),
        ({"endpoint": ENDPOINT | {"urll": 1}}, "did you mean 'url'?"),
        ({"endpoint": ENDPOINT | {"timeout_s": 0}}, "user: 'endpoint.timeout_s' is 0"),
        ({"endpoint": ENDPOINT | {"max_retries": "3"}}, "'endpoint.max_retries' is '3'"),
        ({"endpoint": ENDPOINT, "engine": {}}, "user: unknown key 'engine'"),
        ({"endpoint": ENDPOINT, "sampling": {"heat": 1}}, "user.sampling: unknown key 'heat'"),
        ({"model": "a/b"}, "user: 'model' is 'a/b', it should be a mapping"),
        ({"model": {"source": "a"}, "replicas": 0}, "user: 'replicas' is 0"),
    ],
)
def test_mistakes_are_named(value: Any, line: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_role(value, "user")
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("ftp://h/v1", "is not an http(s) URL"),
        ("api.example.com/v1", "is not an http(s) URL"),
        ("http://", "is not an http(s) URL"),
        ("http://h:port/v1", "is not an http(s) URL"),
        ("http://h:99999/v1", "is not an http(s) URL"),
        ("http://[::1/v1", "is not an http(s) URL"),
        ("http://sk-hidden@h/v1", "api_key_env"),
        ("http://me:sk-hidden@h/v1", "api_key_env"),
        ("http://h/v1?key=sk-hidden", "api_key_env"),
        ("http://h/v1#sk-hidden", "api_key_env"),
        ("http://h/v 1", "characters"),
        ("http://h/v1/chat/completions", "method's own path"),
    ],
)
def test_bad_urls_are_refused_without_showing_what_they_hide(url: str, line: str) -> None:
    role = EndpointRole(endpoint=EndpointConfig(url=url, model="m"))
    with pytest.raises(UserError) as caught:
        check_role(role, "user")
    assert str(caught.value).startswith("user.endpoint.url: ")
    assert line in str(caught.value)
    assert "sk-hidden" not in str(caught.value)


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_a_served_role_takes_no_adapter() -> None:
    role = parse_role({"model": {"source": "a/b", "adapter": "c/d"}}, "user")
    with pytest.raises(
        UserError,
        match=r"^user\.model\.adapter: a served role cannot have an "
        "adapter",
    ):
        check_role(role, "user")


def test_good_roles_pass() -> None:
    check_role("same", "user")
    for url in ("http://127.0.0.1:8000/v1", "https://h", "http://[::1]:80/v1/"):
        check_role(EndpointRole(endpoint=EndpointConfig(url=url, model="m")), "user")


@pytest.mark.parametrize("value", [None, "", " \n", "two\nlines", "schlüssel"])
def test_a_key_is_demanded(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    role = EndpointRole(endpoint=EndpointConfig(url="http://h/v1", model="m", api_key_env="SIM"))
    if value is None:
        monkeypatch.delenv("SIM", raising=False)
    else:
        monkeypatch.setenv("SIM", value)
    with pytest.raises(UserError, match=r"^user\.endpoint\.api_key_env: the environment .* SIM"):
        check_role(role, "user")


def test_no_key_is_demanded_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    config = EndpointConfig(url="http://h/v1", model="m", api_key_env=None)
    check_role(EndpointRole(endpoint=config), "user")


def test_a_key_loses_the_newline_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1\n")
    assert roles.read_key(EndpointConfig(url="http://h", model="m"), "user") == "sk-1"


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"engine": {"max_model_length": 9}}, "user.engine: vLLM has no engine argument"),
        ({"engine": {"model": "x"}}, "user.engine.model: 'model' is set elsewhere"),
        ({"engine": {"tensor_parallel_size": 0}}, "user.engine: 'tensor_parallel_size' is 0"),
        (
            {"model": {"source": "a", "reasoning_parser": "nope"}},
            "user.model.reasoning_parser: vLLM has no reasoning parser 'nope'",
        ),
        (
            {"model": {"source": "a", "tool_parser": "hermess"}},
            "user.model.tool_parser: vLLM has no tool parser 'hermess'; did you mean 'hermes'?",
        ),
    ],
)
def test_a_served_role_is_checked_as_the_candidate_is(changes: dict[str, Any], line: str) -> None:
    role = parse_role({"model": {"source": "a"}, **changes}, "user")
    with pytest.raises(UserError) as caught:
        check_role(role, "user")
    assert line in str(caught.value)


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize("name", ["auto", "hermes"])
def test_a_served_role_takes_a_tool_parser(name: str) -> None:
    check_role(parse_role({"model": {"source": "a", "tool_parser": name}}, "user"), "user")


def test_a_tool_parser_is_recorded_where_there_is_one() -> None:
    ref = ModelRef("org/m", "hub", "org/m", "abc123")

    def identity(**model: Any) -> dict[str, Any]:
        role = parse_role({"model": {"source": "org/m", **model}}, "user")
        return role_identity(role, ref, Sampling())

    # These keys are in the ids of stored rows.
    assert identity().keys() == {
        *("kind", "model", "revision", "sampling"),
        *("chat_template_kwargs", "reasoning_parser", "engine"),
    }
    assert identity(tool_parser="hermes") == {**identity(), "tool_parser": "hermes"}


def test_what_the_manifest_records() -> None:
    ref = ModelRef("org/m", "hub", "org/m", "abc123")
    drawn = Sampling(temperature=0.5, stop=("x",))
    same = role_identity("same", ref, drawn)
    assert (same["kind"], same["model"], same["revision"]) == ("same", "org/m", "abc123")
    assert same["sampling"]["temperature"] == 0.5
    served = role_identity(
        parse_role({"model": {"source": "org/m"}, "engine": {"dtype": "auto"}}, "user"), ref, drawn
    )
    assert served["kind"] == "served"
    assert served["engine"] == {"dtype": "auto"}
    endpoint = EndpointRole(endpoint=EndpointConfig(url="https://h:8443/secret/v1", model="m"))
    asked = role_identity(endpoint, None, drawn)
    assert (asked["kind"], asked["endpoint"], asked["revision"]) == ("endpoint", "h:8443", None)
    for identity in (same, served, asked):
        assert json.loads(json.dumps(identity)) == identity
        assert "secret" not in json.dumps(identity)


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"source": "org/m", "chat_template_kwargs": {"enable_thinking": False}}},
        {"sampling": {"reasoning_effort": "low"}},
        {"engine": {"max_model_len": 2048}},
        {"backend": "fake"},
    ],
)
def test_what_moves_the_candidates_answers(change: dict[str, Any]) -> None:
    plain = {"model": {"source": "org/m"}, "benchmarks": ["x"]}
    ref = ModelRef("org/m", "hub", "org/m", "abc123")
    one, other = (
        candidate_identity(run_config(tree, where="x"), ref, FormatChoice())
        for tree in (plain, plain | change)
    )
    assert one != other
    assert (one["model"], one["revision"]) == ("org/m", "abc123")
    assert json.loads(json.dumps(other)) == other
    again = run_config(plain | {"run_id": "a"}, where="x")
    assert candidate_identity(again, ref, FormatChoice()) == one


@pytest.mark.parametrize(
    "choice",
    [
        FormatChoice("qwen3"),
        FormatChoice(chat_template="{{ messages }}"),
        FormatChoice(plugins=(("p.py", "x = 1"),)),
        FormatChoice(start_date="2026-01-01"),
    ],
)
def test_the_format_moves_the_candidates_answers(choice: FormatChoice) -> None:
    config = run_config({"model": {"source": "org/m"}, "benchmarks": ["x"]}, where="x")
    ref = ModelRef("org/m", "hub", "org/m", "abc123")
    plain, other = (candidate_identity(config, ref, one) for one in (FormatChoice(), choice))
    assert plain["reasoning_parser"] == "auto"
    assert other != plain
    assert json.loads(json.dumps(other)) == other


def test_the_host_of_a_url_holds_no_password() -> None:
    assert host_of("https://me:pw@h.example:8443/v1?key=x") == "h.example:8443"
