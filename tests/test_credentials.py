"""What looks like a secret is refused in a config and masked in a text."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.config import load_config
from ace_ray.credentials import is_secret_name, masked, secrets_in
from ace_ray.errors import UserError
from ace_ray.run.submission import make_submission
from ace_ray.sweep.config import load_sweep

KEY = "Q7vT-THIS-IS-A-SECRET-0123456789"
SECRET_NAMES = [
    "openai_api_key", "OPENAI_API_KEY", "apikey", "apiKey", "x-api-key", "api-key", "authorization",
    "Authorization", "Proxy-Authorization", "password", "passwd", "db_password", "passphrase",
    "secret", "client_secret", "aws_secret_access_key", "aws_access_key_id", "access_key", "token",
    "hf_token", "auth_token", "accessToken", "bearer", "credentials", "private_key", "cookie",
    "key", "session_token", "azure_openai_key", "subscription-key", "github_token", "key_id",
]  # fmt: skip
PUBLIC_NAMES = [
    "api_key_env", "token_env", "max_tokens", "max_token", "eos_token", "pad_token", "stop_token",
    "tokenizer", "tokens", "keyboard", "seed", "top_k", "reasoning_parser", "kv_cache_dtype",
    "credentials_file", "author", "sort_key", "chat_template", "tokenizer_mode", "end_think_token",
]  # fmt: skip
ADDRESSES = [
    f"https://me:{KEY}@host/v1", f"https://{KEY}@host/v1", f"https://host/v1?api_key={KEY}",
    f"https://host/v1?x=1&token={KEY}", f"https://host/v1#{KEY}", f"https://host/#access_token={KEY}",
    f"s3://id:{KEY}@bucket/x", f"https://host/?API%5FKEY={KEY}", f"https://host/?X-Amz-Signature={KEY}",
    f"https://host/a?sig={KEY}", f"redis://:{KEY}@host:6379/0",
]  # fmt: skip
SHAPES = [
    "sk-proj-abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwxyz0123", "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz0123", "Bearer abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk", "-----BEGIN RSA PRIVATE KEY-----",
]  # fmt: skip


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
    ["https://host:8000/v1", "s3://bucket/a@b/c", "https://host/?page=2", "org/model@main", "x#y",
     "write KEY=VALUE", "s3://b/step#1", "samples=2", "sk-learn", "a Bearer of news", "see #3"],
)  # fmt: skip
def test_what_holds_no_secret_stays(text: str) -> None:
    assert not list(secrets_in({"a": text}))
    assert masked(text) == text


@pytest.mark.parametrize("unit", ["a", "=", "a=", "://", "?a", "&", "Bearer ", "eyJ", "x-", "http://#",
                                  "-----BEGIN ", "A.", "'", "sk-"])  # fmt: skip
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


WHERE = ["engine.{}={}", "benchmarks.0.{}={}", "store.{}={}", "model.{}={}", "sampling.x.{}={}"]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", ["openai_api_key", "apikey", "authorization", "apiKey"])
def test_a_config_with_a_secret_is_refused_and_does_not_repeat_it(
    where: str, name: str, config_file: Callable[..., Path], here: Callable[..., Any]
) -> None:
    for command in ("doctor", "evaluate"):
        ended = here(command, config_file(), "--set", where.format(name, KEY))
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
            lambda path: make_submission("evaluate", path, output="s3://b/p"),
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


FILES_OF_KEYS = [
    ".env", ".env.local", "deploy/.env", "prod.env", ".netrc", "sub/_netrc", "id_rsa", "id_rsa.pub",
    "ID_RSA", "id_ed25519", "server.pem", "Server.PEM", "tls.key", "a.p12", "b.pfx", "c.jks",
    ".aws/credentials", ".aws/config", "credentials", "credentials.json", "my-credentials.yaml",
    ".git-credentials", ".npmrc", ".pypirc", ".ssh/config", ".kube/config", ".docker/config.json",
    "secrets.yaml", "app_secrets.json", "service-account-prod.json", "auth_token", "token.txt",
    "api-key.txt", "sub/.git/config", ".s3cfg", ".huggingface/token", "kubeconfig", ".envrc",
]  # fmt: skip
FILES_OF_CODE = [
    "ace_ray/credentials.py", "tests/test_secrets.py", "docs/tokens.md", "src/token.py",
    "infra/serviceaccount.yaml", "configs/a.yaml", "environment.yaml", "keys.py", ".gitignore",
]  # fmt: skip


def test_files_with_keys_never_travel(config_file: Callable[..., Path], tmp_path: Path) -> None:
    """By Ray's own packing of the folder."""
    packaging = pytest.importorskip("ray._private.runtime_env.packaging")
    checkout = tmp_path / "checkout"
    contents = dict.fromkeys([*FILES_OF_KEYS, *FILES_OF_CODE, "jobs/evaluate.py"], "x")
    contents["notes"] = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"
    contents["sub/google.json"] = '{"type": "service_account", "private_key": "x"}'
    for name, text in contents.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    outside = tmp_path / "home"
    outside.mkdir()
    (outside / "key").write_text("x")
    (checkout / "linked").symlink_to(outside)
    (checkout / "linked.txt").symlink_to(outside / "key")
    (checkout / "inner.txt").symlink_to(checkout / ".env")
    made = make_submission("evaluate", str(config_file()), output="s3://b/p", checkout=checkout)
    target = tmp_path / "package.zip"
    packaging._zip_files(str(checkout), list(made.excludes), str(target), include_gitignore=True)
    import zipfile

    packed = {name for name in zipfile.ZipFile(target).namelist() if not name.endswith("/")}
    assert packed == {*FILES_OF_CODE, "jobs/evaluate.py"}


def test_a_comment_with_a_key_does_not_travel(config_file: Callable[..., Path]) -> None:
    path = config_file()
    path.write_text(path.read_text() + f"\n# {SHAPES[0]}\n")
    with pytest.raises(UserError, match="looks like a secret") as caught:
        make_submission("evaluate", str(path), output="s3://b/p")
    assert SHAPES[0] not in str(caught.value)


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
