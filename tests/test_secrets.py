"""What looks like a secret is refused in a config and masked in a text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.config.schema import load_config
from ace_ray.errors import UserError
from ace_ray.pipeline.submit import make_submission
from ace_ray.sweep.config import load_sweep
from ace_ray.util.secrets import is_secret_name, masked, secrets_in

KEY = "Q7vT-THIS-IS-A-SECRET-0123456789"
SECRET_NAMES = [
    "OPENAI_API_KEY", "apiKey", "x-api-key", "Authorization", "db_password", "aws_access_key_id",
    "hf_token", "toolbench_key",
]  # fmt: skip
PUBLIC_NAMES = [
    "api_key_env", "max_tokens", "eos_token", "tokenizer", "keyboard", "primary_key",
    "credentials_file", "key_header",
]  # fmt: skip
ADDRESSES = [
    f"https://me:{KEY}@host/v1", f"https://host/v1?api_key={KEY}", f"https://host/#access_token={KEY}",
    f"s3://id:{KEY}@bucket/x", f"https://host/?API%5FKEY={KEY}", f"https://host/a?sig={KEY}",
    f"redis://:{KEY}@host:6379/0", f"https://me:a/{KEY}@host/v1",
]  # fmt: skip
SHAPES = [
    "sk-proj-abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwxyz0123", "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz0123", "Bearer abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk", "-----BEGIN RSA PRIVATE KEY-----",
    "https://hooks.slack.com/services/T000/B000/s3cr3tV4lue",
]  # fmt: skip


def test_a_text_is_no_name() -> None:
    prompt = "I am Nora (food platform: user Nora, password pear11). Order two ginger noodles."
    assert list(secrets_in({"replies": {prompt: "[order()]"}})) == []


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_secret_s_name(name: str) -> None:
    assert is_secret_name(name)
    assert list(secrets_in({"a": [{name: "x"}]})) == [(f"a.0.{name}", "looks like a secret")]
    assert not list(secrets_in({name: None})) + list(secrets_in({name: ""}))


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_a_name_that_is_none(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("text", [*ADDRESSES, *SHAPES])
def test_a_value_is_found_and_masked(text: str) -> None:
    assert [key for key, _ in secrets_in({"a": {"b": text}})] == ["a.b"]
    for around in ("{}", "cannot reach {}: refused", "['{}']", "a={} b"):
        shown = masked(around.format(text))
        assert KEY not in shown
        assert text not in shown


@pytest.mark.parametrize(
    "text",
    ["https://host:8000/v1", "s3://bucket/a@b/c", "https://host/?page=2", "unknown key: sampels",
     "engine.api_key: looks like a secret", "pass --api-key-env NAME", "write KEY=VALUE",
     "the key in OPENAI_API_KEY: HTTP 401: bad key", "API_KEY=None", "sk-learn"],
)  # fmt: skip
def test_what_holds_no_secret_stays(text: str) -> None:
    assert not list(secrets_in({"a": text}))
    assert masked(text) == text


@pytest.mark.parametrize(
    "text",
    [f"X-Api-Key: {KEY}", f"api_key: {KEY}", f"--api-key={KEY}", f"Authorization: token {KEY}",
     f"Set-Cookie: a=b; id={KEY}", f"curl -H 'x-api-key: {KEY}'", f"toolbench_key={KEY}",
     f'{{"password": "{KEY}"}}'],
)  # fmt: skip
def test_a_line_with_a_key_is_masked(text: str) -> None:
    assert "THIS" not in masked(text)
    assert "THIS" not in masked(f"tried {text}")


@pytest.mark.parametrize(
    "tree",
    [{"api_key": {"value": "x"}}, {"api_keys": [["x"]]}, {f"https://u:{KEY}@x": 1},
     {SHAPES[0]: None}, {"headers": [f"X-Api-Key: {KEY}"]}],
)  # fmt: skip
def test_a_secret_of_any_form_is_found_and_not_repeated(tree: Any) -> None:
    found = list(secrets_in({"a": tree}))
    assert found
    assert KEY not in str(found)
    assert SHAPES[0] not in str(found)


def test_no_name_of_a_config_is_a_secret_s() -> None:
    """By the page that is made of the config's models."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "configuration.md").read_text()
    names = set(re.findall(r"(?m)^\| `([a-z_0-9]+)`", page))
    assert {"key_env", "max_tokens"} <= names
    assert [name for name in sorted(names) if is_secret_name(name)] == []


@pytest.mark.parametrize(
    "unit", ["a", "a=", "://", "Bearer ", "eyJ", "-----BEGIN ", "a-", "authorization: "]
)
def test_masking_is_linear(unit: str) -> None:
    def taken(count: int) -> float:
        text = unit * count
        start = time.process_time()
        masked(text)
        list(secrets_in(text))
        return time.process_time() - start

    small, large = 4_000, 64_000
    # Sixteen times as much text; a square would take 256 times as long.
    assert taken(large) < 100 * max(taken(small), 0.002)


@pytest.mark.parametrize("where", ["engine.apiKey", "model.authorization", "store.api_key"])
def test_a_config_with_a_secret_is_refused_and_does_not_repeat_it(
    where: str, config_file: Callable[..., Path], here: Callable[..., Any]
) -> None:
    for command in ("doctor", "evaluate"):
        ended = here(command, config_file(), "--set", f"{where}={KEY}")
        assert ended.code == 2 or "FAIL" in ended.stdout
        assert KEY not in ended.stdout + ended.stderr
        assert "looks like a secret" in ended.stdout + ended.stderr


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_a_secret_is_refused_everywhere(
    address: str, config_file: Callable[..., Path], tmp_path: Path
) -> None:
    role = {"endpoint": {"url": address, "model": "m"}}
    trees: list[dict[str, Any]] = [
        {"store": {"endpoint_url": address}},
        {"benchmarks": [{"name": "acebench", "user": role}]},
        {"model": {"source": address}},
        {"output": address},
        {"engine": {"hf_overrides": {"a": [address]}}},
    ]
    for tree in trees:
        path = str(config_file(**tree))
        for load in (
            lambda path: load_config(path),
            lambda path: make_submission("evaluate", path),
        ):
            with pytest.raises(UserError) as caught:
                load(path)
            assert KEY not in str(caught.value)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(yaml.safe_dump({"models": [{"source": address}], "benchmarks": ["acebench"]}))
    with pytest.raises(UserError) as caught:
        load_sweep(str(sweep))
    assert KEY not in str(caught.value)


def test_an_override_that_is_no_yaml_does_not_repeat_its_secret(
    config_file: Callable[..., Path],
) -> None:
    with pytest.raises(UserError) as caught:
        load_config(str(config_file()), [f"engine.api_key=[{KEY}"])
    assert KEY not in str(caught.value)


def test_a_line_of_an_error_holds_no_secret() -> None:
    for text in (*ADDRESSES, f"api_key={KEY}", f'{{"password": "{KEY}"}}'):
        assert KEY not in str(UserError(f"cannot reach {text}", where=text, fix=text))


@pytest.mark.parametrize(
    "comment", [f"# {SHAPES[0]}", f"# OPENAI_API_KEY={KEY}", f"# api_key: {KEY}", f"#key: '{KEY}'"]
)
def test_a_comment_with_a_key_does_not_travel(
    comment: str, config_file: Callable[..., Path], tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    inside = checkout / "configs" / "a.yaml"
    for path in (config_file(), inside, checkout / "jobs" / "evaluate.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config_file().read_text().rstrip("\n") + f"\n{comment}\n")
    for path in (config_file(), inside):
        path.write_text(inside.read_text())
        values = {"output": "s3://b/p"}
        sent = make_submission("evaluate", str(path), values=values, checkout=checkout)
        assert KEY not in sent.entrypoint
        assert SHAPES[0] not in sent.entrypoint


def test_no_config_here_holds_what_looks_like_a_secret() -> None:
    root = Path(__file__).resolve().parents[1]
    for file in [*(root / "configs").rglob("*.yaml"), *(root / "infra").rglob("config.yaml")]:
        for line in file.read_text(encoding="utf-8").splitlines():
            assert masked(line) == line, file


def test_no_example_puts_a_key_on_a_command_line() -> None:
    root = Path(__file__).resolve().parents[1]
    for folder in ("docs", "infra", "configs", "jobs"):
        for file in (root / folder).rglob("*"):
            if file.suffix not in (".md", ".yaml", ".sh", ".json", ".py"):
                continue
            for line in file.read_text(encoding="utf-8").splitlines():
                if "export " in line or line.lstrip().startswith("#"):
                    continue
                spelled = [
                    word
                    for word in line.replace('\\"', '"').split()
                    if "$" in word and any(name in word for name in ("_KEY", "_TOKEN", "PASSWORD"))
                ]
                assert not spelled, f"{file}: {line}"
