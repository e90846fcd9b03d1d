"""Roles and engine arguments in a config: parsing, checks, and records in the manifest."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.config.roles import EndpointRole, ServedRole, parse_role
from ace_ray.config.schema import EndpointConfig, ModelConfig
from ace_ray.errors import UserError
from ace_ray.models.engine_args import check_engine_args, check_parsers
from ace_ray.models.sources import ModelRef
from ace_ray.models.urls import host_of, http_url, read_key
from ace_ray.pipeline.roles import check_role, role_identity
from ace_ray.types import Sampling

ENDPOINT = {"url": "https://api.example.com/v1", "model": "m"}
REF = ModelRef("org/m", "hub", "org/m", "abc123")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")


MISTAKES: list[tuple[Any, str]] = [
    ("other", "user: 'other' is not a role"),
    ({}, "user: [] is not a role"),
    ({"endpoint": ENDPOINT, "model": {"source": "a"}}, "['endpoint', 'model'] is not a role"),
    ({"endpoint": ENDPOINT | {"urll": 1}}, "did you mean 'url'?"),
    ({"endpoint": ENDPOINT, "sampling": {"heat": 1}}, "user.sampling: unknown key 'heat'"),
    ({"model": "a/b"}, "user: 'model' is 'a/b', it should be a mapping"),
    ({"model": {"endpoint": ENDPOINT}}, "user.model: a model that ace_ray serves needs a source"),
    ({"model": {"source": "a"}, "replicas": 0}, "user: 'replicas' is 0"),
]
URLS = {
    "api.example.com/v1": "is not an http(s) URL",
    "http://": "is not an http(s) URL",
    "http://h:99999/v1": "is not an http(s) URL",
    "http://me:sk-hidden@h/v1": "api_key_env",
    "http://h/v1?key=sk-hidden": "api_key_env",
    "http://h/v1#sk-hidden": "api_key_env",
    "http://h/v 1": "characters",
    "http://h/v1/chat/completions": "a path that ace_ray adds itself",
}


def test_mistakes_are_named_without_secrets() -> None:
    for value, line in MISTAKES:
        with pytest.raises(UserError, match=re.escape(line)):
            parse_role(value, "user")
    for url, line in URLS.items():
        role = EndpointRole(endpoint=EndpointConfig(url=url, model="m"))
        with pytest.raises(UserError, match=r"^user.endpoint\.url: .*" + re.escape(line)) as caught:
            check_role(role, "user")
        assert "sk-hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["https://busineß.com/x", "https://me@api.b.com/x", "https://api.b.com:+443", "https:///"],
)
def test_a_url_without_a_plain_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        http_url(url)


def test_a_host_is_shown_without_secrets() -> None:
    assert host_of("https://me:pw@h.example:8443/v1?key=x") == "h.example:8443"


@pytest.mark.parametrize("value", [None, " \n", "two\nlines", "schlüssel"])
def test_a_key_is_demanded(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    config = EndpointConfig(url="http://[::1]:80/v1/", model="m", api_key_env="SIM")
    monkeypatch.setenv("SIM", "sk-1\n")
    check_role(EndpointRole(endpoint=config), "user")
    assert read_key("SIM", "user") == "sk-1", "without the newline of its file"
    monkeypatch.setenv("SIM", value or "")
    if value is None:
        monkeypatch.delenv("SIM")
    with pytest.raises(UserError, match=r"^user\.endpoint\.api_key_env: the environment .* SIM"):
        check_role(EndpointRole(endpoint=config), "user")
    free = config.model_copy(update={"api_key_env": None})
    check_role(EndpointRole(endpoint=free), "user")


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_a_served_role_is_checked_as_the_candidate_is() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"engine": {"max_model_length": 9}}, "user.engine: vLLM has no engine argument"),
        ({"engine": {"model": "x"}}, "user.engine.model: 'model' is set elsewhere"),
        ({"engine": {"tensor_parallel_size": 0}}, "user.engine.tensor_parallel_size: 0 is not"),
        ({"model": {"adapter": "c/d"}}, "user.model.adapter: the model of a role cannot"),
        ({"model": {"reasoning_parser": "nope"}}, "user.model.reasoning_parser: vLLM has no"),
        ({"model": {"tool_parser": "hermess"}}, "user.model.tool_parser: .*mean 'hermes'"),
        ({"model": {"start_date": "2026-01-01"}}, "applies only to the evaluated model"),
    ]
    for changes, line in cases:
        model = {"source": "a", **changes.get("model", {})}
        with pytest.raises(UserError, match=line):
            check_role(parse_role({**changes, "model": model}, "user"), "user")
    served = {"model": {"source": "a", "tool_parser": "hermes"}, "replicas": 2}
    role = parse_role(served, "user")
    assert isinstance(role, ServedRole)
    check_role(role, "user")
    assert parse_role(json.loads(json.dumps(role.model_dump())), "user") == role


def test_the_manifest_records_roles_without_secrets() -> None:
    drawn = Sampling(temperature=0.5, stop=("x",))
    own_role = role_identity("same", REF, drawn)
    assert own_role["kind"] == "same"
    assert (own_role["model"], own_role["revision"]) == ("org/m", "abc123")
    assert own_role["sampling"]["temperature"] == 0.5
    model = {"source": "org/m"}
    served = role_identity(
        parse_role({"model": model, "engine": {"dtype": "auto"}}, "user"), REF, drawn
    )
    assert (served["kind"], served["engine"]) == ("served", {"dtype": "auto"})
    # These keys are in the ids of stored rows.
    assert served.keys() == {
        *("kind", "model", "revision", "sampling"),
        *("chat_template_kwargs", "reasoning_parser", "engine"),
    }
    parsed = parse_role({"model": {**model, "tool_parser": "hermes"}}, "user")
    assert role_identity(parsed, REF, drawn)["tool_parser"] == "hermes"
    endpoint = EndpointRole(endpoint=EndpointConfig(url="https://h:8443/secret/v1", model="m"))
    endpoint_role = role_identity(endpoint, None, drawn)
    assert (endpoint_role["kind"], endpoint_role["endpoint"]) == ("endpoint", "h:8443")
    assert endpoint_role["revision"] is None
    for identity in (own_role, served, endpoint_role):
        assert json.loads(json.dumps(identity)) == identity
        assert "secret" not in json.dumps(identity)


LACKS_PARSER = """
print("vLLM's messages and the plugin's are no answer")
from vllm.tool_parsers import ToolParser, ToolParserManager
@ToolParserManager.register_module("mine")
class Mine(ToolParser): pass
"""
EXITS = pytest.param("import os; os._exit(3)", "^model.plugins: exit", marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import vllm.gone", "^model.plugins: p.py: cannot be imported: ModuleNotFoundError"),
        (LACKS_PARSER, "no tool parser 'mime', nor have the plugins; did you mean 'mine'"),
        EXITS,
    ],
    ids=["of another vLLM", "registers another name", "exits"],
)
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")
def test_a_plugin_is_checked_before_engines_start(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "p.py").write_text(text)
    model = ModelConfig(source="m", plugins=[str(tmp_path / "p.py")], tool_parser="mime")
    with pytest.raises(UserError, match=words):
        check_parsers(model)


def test_without_vllm_the_fix_is_to_install_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="vLLM is not installed; install"):
        check_engine_args({})
    # A vLLM of another layout checks its arguments itself.
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    check_engine_args({"anything": 1})
    check_parsers(ModelConfig(source="m", reasoning_parser="anything"))
