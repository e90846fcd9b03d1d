"""What looks like a secret is refused in a config and masked in a text."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.config import load_config
from ace_ray.credentials import is_secret_name, masked, secrets_in
from ace_ray.errors import UserError
from ace_ray.run.submission import Submission, make_submission
from ace_ray.sweeps.config import load_sweep

KEY = "Q7vT-THIS-IS-A-SECRET-0123456789"
SECRET_NAMES = [
    "openai_api_key", "OPENAI_API_KEY", "apikey", "apiKey", "x-api-key", "api-key", "authorization",
    "Authorization", "Proxy-Authorization", "password", "passwd", "db_password", "passphrase",
    "secret", "client_secret", "aws_secret_access_key", "aws_access_key_id", "access_key", "token",
    "hf_token", "auth_token", "accessToken", "bearer", "credentials", "private_key", "cookie",
    "key", "session_token", "azure_openai_key", "subscription-key", "github_token", "key_id",
    "toolbench_key", "toolbenchKey", "deepseek_key", "groq_key", "judge_key", "openaikey", "appkey",
    "github_pat", "creds", "cred", "jwt", "pw", "otp", "sas", "auth_header", "license_key",
]  # fmt: skip
PUBLIC_NAMES = [
    "api_key_env", "token_env", "max_tokens", "max_token", "eos_token", "pad_token", "stop_token",
    "tokenizer", "tokens", "keyboard", "seed", "top_k", "reasoning_parser", "kv_cache_dtype",
    "primary_key", "foreignKey", "cache_key", "first_key", "public_key", "answer_key", "monkey",
    "credentials_file", "author", "sort_key", "chat_template", "tokenizer_mode", "end_think_token",
]  # fmt: skip
ADDRESSES = [
    f"https://me:{KEY}@host/v1", f"https://{KEY}@host/v1", f"https://host/v1?api_key={KEY}",
    f"https://host/v1?x=1&token={KEY}", f"https://host/v1#{KEY}", f"https://host/#access_token={KEY}",
    f"s3://id:{KEY}@bucket/x", f"https://host/?API%5FKEY={KEY}", f"https://host/?X-Amz-Signature={KEY}",
    f"https://host/a?sig={KEY}", f"redis://:{KEY}@host:6379/0", f"https://host/?toolbench_key={KEY}",
    f"https://me:a/{KEY}@host/v1", f"https://me:a?{KEY}@host", f"postgres://me:{KEY}/2@h:5432/d",
]  # fmt: skip
SHAPES = [
    "sk-proj-abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwxyz0123", "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz0123", "Bearer abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk", "-----BEGIN RSA PRIVATE KEY-----",
    *(mark + "s3cr3tV4lue0123456789abcd" * 2 for mark in (
        "sk_live_", "rk_test_", "npm_", "pypi-", "r8_", "tvly-", "ya29.", "xapp-1-", "dop_v1_")),
    "https://hooks.slack.com/services/T000/B000/s3cr3tV4lue",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----",
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
    ["https://host:8000/v1", "s3://bucket/a@b/c", "https://host/?page=2", "org/model@main", "x#y",
     "https://host:8000/v1/a@b", "unknown key: sampels", "the key: see below",
     "a token: read_this_one",
     "engine.api_key: looks like a secret", "pass --api-key-env NAME", "Password: forgotten.",
     "write KEY=VALUE", "extra_body: {KEY: null}", "api_key: null", "API_KEY=None", "token: true.",
     "the key in OPENAI_API_KEY: HTTP 401: bad key", "in MYKEY: HTTP 401: no",
     "s3://b/step#1", "samples=2", "sk-learn", "a Bearer of news", "see #3"],
)  # fmt: skip
def test_what_holds_no_secret_stays(text: str) -> None:
    assert not list(secrets_in({"a": text}))
    assert masked(text) == text


@pytest.mark.parametrize(
    "text",
    [f"X-Api-Key: {KEY}", "X-Api-Key: Q7vT-THIS", f"api_key: {KEY}", f"--api-key {KEY}",
     f"--api-key={KEY}", f"Authorization: token {KEY}", f"'Authorization': 'token {KEY}'",
     f"Set-Cookie: a=b; id={KEY}", "API_KEY: THIS", "apiKey: THIS", "PASSWORD: 1THIS",
     f"APIKEY: {KEY}",
     "KEY: THIS-IS-A-SECRET-0123", f"curl -H 'x-api-key: {KEY}'", f"toolbench_key={KEY}"],
)  # fmt: skip
def test_a_line_with_a_key_is_masked(text: str) -> None:
    assert "THIS" not in masked(text)
    assert "THIS" not in masked(f"tried {text}")


@pytest.mark.parametrize(
    "tree",
    [{"api_key": {"value": "x"}}, {"api_keys": [["x"]]}, {"headers": [["x-api-key", "abc"]]},
     {"headers": [{"name": "x-api-key", "value": "abc"}]}, {f"https://u:{KEY}@x": 1},
     {SHAPES[0]: None}, {"headers": [f"X-Api-Key: {KEY}"]}, {"flags": f"--api-key {KEY}"}],
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
    assert {"key_env", "max_tokens", "key_header"} <= names
    assert [name for name in sorted(names) if is_secret_name(name)] == []


@pytest.mark.nightly
@pytest.mark.parametrize("unit", ["a", "=", "a=", "://", "?a", "&", "Bearer ", "eyJ", "x-", "http://#",
                                  "-----BEGIN ", "A.", "'", "sk-", "--a ", "a: ",
                                  "://a:", "a-", "cookie", "authorization: "])  # fmt: skip
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
    ".env~", ".env_prod", ".envfile", ".flaskenv", "env", "env.sh", ".direnv/x", "#.env#",
    "docker.env.template", "secrets.env.bak", "apikey.txt", "secrets/prod.txt", ".secrets/openai",
    "accessKeys.csv", "rootkey.csv", "client_secret_123.json", "kube.config",
    ".config/gh/hosts.yml",
    ".pypirc.bak", "credentials.d/a", "terraform.tfstate", "prod.tfvars", ".bash_history",
    "vault.yml", "user_accessKeys.csv", "passwords.kdb", "token.txt.old", "__pycache__/a.pyc",
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
    checkout = tmp_path / "checkout"
    contents = dict.fromkeys([*FILES_OF_KEYS, *FILES_OF_CODE, "jobs/evaluate.py"], "x")
    contents["notes"] = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"
    contents["sub/google.json"] = '{"type": "service_account", "private_key": "x"}'
    for name, text in contents.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    contents["k.txt"] = "a comment\n\n-----BEGIN PRIVATE KEY-----\nabc"
    contents["late.json"] = '{"project": "' + "x" * 9000 + '", "private_key": "x"}'
    contents["settings.py"] = "x = 1\n" * 2000 + f'OPENAI_API_KEY = "{SHAPES[0]}"'
    outside = tmp_path / "home"
    outside.mkdir()
    (outside / "key").write_text("x")
    (checkout / "linked").symlink_to(outside)
    (checkout / "linked.txt").symlink_to(outside / "key")
    (checkout / "inner.txt").symlink_to(checkout / ".env")
    made = make_submission("evaluate", str(config_file()), output="s3://b/p", checkout=checkout)
    assert packed(made) == {*FILES_OF_CODE, "jobs/evaluate.py"}


def packed(made: Submission) -> set[str]:
    """By Ray's own packing of the folder."""
    packaging = pytest.importorskip("ray._private.runtime_env.packaging")
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/package.zip"
        excludes = list(made.excludes)
        packaging._zip_files(str(made.checkout), excludes, target, include_gitignore=True)
        with zipfile.ZipFile(target) as zipped:
            return {name for name in zipped.namelist() if not name.endswith("/")}


def git(checkout: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(checkout), *arguments], check=True, capture_output=True)


def test_of_a_work_tree_only_what_git_tracks_travels(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    tracked = {"jobs/evaluate.py", "ace_ray/a.py", "ace_ray/with blank.py", "configs/é.yaml"}
    untracked = {"notes", "mine/diary.txt", "ace_ray/new.py", "configs/other.yaml"}
    named = {"configs/mine.yaml"}
    for name in tracked | untracked | named | {"mine/template.jinja", "prod.env"}:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("x")
    config = checkout / "configs" / "mine.yaml"
    tree = {"model": {"source": "org/m", "chat_template": str(checkout / "mine/template.jinja")}}
    config.write_text(yaml.safe_dump({**tree, "benchmarks": ["acebench"]}))
    git(checkout, "init", "-q")
    git(checkout, "add", *tracked, "prod.env")
    made = make_submission("sweep", str(config), output="s3://b/p", checkout=with_sweep(checkout))
    assert packed(made) == tracked | named | {"jobs/sweep.py"}
    # A template travels as text, wherever it lies.
    assert any(word.startswith("--file=") and word.endswith(":x") for word in made.arguments)
    # What git tracks may still be a key.
    assert "prod.env" not in packed(made)


def with_sweep(checkout: Path) -> Path:
    (checkout / "jobs" / "sweep.py").touch()
    git(checkout, "add", "jobs/sweep.py")
    return checkout


@pytest.mark.nightly
def test_all_code_of_this_checkout_travels() -> None:
    made = make_submission("evaluate", "configs/acebench.yaml", output="s3://b/p")
    sent = packed(made)
    here = Path(__file__).resolve().parents[1]
    for folder in ("ace_ray", "jobs", "configs"):
        files = {
            p.relative_to(here).as_posix() for p in (here / folder).rglob("*.*") if p.is_file()
        }
        assert {name for name in files if "__pycache__" not in name} <= sent


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
    count = len(inside.read_text().splitlines())
    for path in (config_file(), inside):
        path.write_text(inside.read_text())
        with pytest.raises(
            UserError, match=f"line {count} holds what looks like a secret"
        ) as caught:
            make_submission("evaluate", str(path), output="s3://b/p", checkout=checkout)
        assert KEY not in str(caught.value)
        assert SHAPES[0] not in str(caught.value)


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
