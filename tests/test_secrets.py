"""Secrets are refused in configs, and masked in texts that are shown; so are control characters."""

import html
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import yaml

from ace_ray.cluster.submit import make_submission
from ace_ray.config.schema import load_config
from ace_ray.errors import UserError
from ace_ray.sweep.config import load_sweep
from ace_ray.util.sanitizing import one_line, sanitize_line, sanitize_text, spreadsheet
from ace_ray.util.secrets import is_secret_name, mask_key, mask_secrets, secrets_in

KEY = "Q7vT-THIS-IS-A-SECRET-0123456789"
SECRET_NAMES = [
    "OPENAI_API_KEY", "apiKey", "x-api-key", "Authorization", "db_password", "aws_access_key_id",
    "hf_token", "toolbench_key", "github_pat", "dsn", "auth", "azureSasToken", "connectionString",
]  # fmt: skip
PUBLIC_NAMES = [
    "api_key_env", "max_tokens", "eos_token", "tokenizer", "keyboard", "primary_key",
    "credentials_file", "key_header", "auth_mode", "pattern", "docstring",
]  # fmt: skip
ADDRESSES = [
    f"https://me:{KEY}@host/v1", f"https://host/v1?api_key={KEY}", f"s3://id:{KEY}@bucket/x",
    f"https://host/?API%5FKEY={KEY}", f"https://host/#access_token={KEY}",
    f"https://host/a?sig={KEY}", f"redis://:{KEY}@host:6379/0", f"https://me:a/{KEY}@host/v1",
    f"//me:{KEY}@host/v1",
]  # fmt: skip
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHAPES = [
    f"xai-{'aB3' * 27}", f"pplx-{'aB3' * 16}", f"tgp_v1_{'aB3-' * 11}", "fw_3ZaBcDeFgHiJkLmNoPqRsT",
    f"AGE-SECRET-KEY-1{'QPZ3' * 14}", f"wandb_v1_{'aB3_' * 19}", f"wandb login {COMMIT}",
    "sk-proj-abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwxyz0123", "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz0123", "Bearer abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk", "-----BEGIN RSA PRIVATE KEY-----",
    "https://hooks.slack.com/services/T000/B000/s3cr3tV4lue",
]  # fmt: skip
ASSIGNMENTS = [
    f"X-Api-Key: {KEY}", f"api_key: {KEY}", f"--api-key={KEY}", f"Authorization: token {KEY}",
    f"Set-Cookie: a=b; id={KEY}", f"curl -H 'x-api-key: {KEY}'", f"toolbench_key={KEY}",
    f'{{"password": "{KEY}"}}', f"dsn = {KEY}",
]  # fmt: skip
NO_SECRETS = [
    "https://host:8000/v1", "s3://bucket/a@b/c", "https://host/?page=2", "unknown key: sampels",
    "pass --api-key-env NAME", "write KEY=VALUE", "API_KEY=None", "sk-learn", COMMIT,
    f"git+https://github.com/wandb/wandb@{COMMIT}", f"wandb run of commit {COMMIT}", f"fw_{COMMIT}",
    "fw_checkpointmanagerstateful1", "xai-org/grok-2", "pplx-embed-v1-0.6b", "//host:8000/v1",
    "dsn = os.environ['DSN']", "pat = re.compile(text)", "sort(key=operator.itemgetter(1))",
]  # fmt: skip


def test_names_of_secrets_are_known() -> None:
    for name in SECRET_NAMES:
        assert is_secret_name(name), name
        assert list(secrets_in({"a": [{name: "x"}]})) == [(f"a.0.{name}", "looks like a secret")]
        assert not list(secrets_in({name: None})) + list(secrets_in({name: ""}))
    for name in PUBLIC_NAMES:
        assert not is_secret_name(name), name
    prompt = "I am Nora (food platform: user Nora, password pear11). Order two ginger noodles."
    assert not list(secrets_in({"replies": {prompt: "[order()]"}}))
    page = (Path(__file__).resolve().parents[1] / "docs" / "configuration.md").read_text()
    keys = set(re.findall(r"(?m)^\| `([a-z_0-9]+)`", page))
    assert {"key_env", "max_tokens"} <= keys
    assert not [name for name in keys if is_secret_name(name)], "a key of the config"


def test_values_are_found_and_masked() -> None:
    for text in [*ADDRESSES, *SHAPES]:
        assert [key for key, _ in secrets_in({"a": {"b": text}})] == ["a.b"], text
    for text in [*ADDRESSES, *SHAPES, *ASSIGNMENTS]:
        for around in ("{}", "cannot reach {}: refused", "['{}']"):
            result = mask_secrets(around.format(text))
            assert "THIS" not in result, text
            assert text not in result
        assert KEY not in str(UserError(f"cannot reach {text}", where=text, fix=text))
    for text in NO_SECRETS:
        assert not list(secrets_in({"a": text})), text
        assert mask_secrets(text) == text


@pytest.mark.parametrize(
    "tree",
    [{"api_key": {"value": "x"}}, {"api_keys": [["x"]]}, {f"https://u:{KEY}@x": 1},
     {SHAPES[0]: None}, {"headers": [f"X-Api-Key: {KEY}"]}, {"wandb": {"login": COMMIT}},
     {"env": {"WANDB": COMMIT}}, {"auth": {"user": "x"}}],
)  # fmt: skip
def test_a_secret_of_any_form_is_found_and_not_repeated(tree: Any) -> None:
    secrets = list(secrets_in({"a": tree}))
    assert secrets
    assert KEY not in str(secrets)
    assert SHAPES[0] not in str(secrets)


@pytest.mark.parametrize("key", ["engine.apiKey", "store.api_key"])
def test_a_config_with_a_secret_is_refused_and_does_not_repeat_it(key, config_file, invoke) -> None:
    for command in ("doctor", "evaluate"):
        for value in (KEY, f"[{KEY}"):  # the second is not YAML
            result = invoke(command, config_file(), "--set", f"{key}={value}")
            assert result.code == 2
            assert KEY not in result.stdout + result.stderr
            assert ("looks like a secret" in result.stdout + result.stderr) is (value == KEY)


def test_an_address_with_a_secret_is_refused_everywhere(config_file, tmp_path) -> None:
    sweep = tmp_path / "sweep.yaml"
    for address in ADDRESSES[:3]:
        role = {"endpoint": {"url": address, "model": "m"}}
        models = {"models": [{"source": address}], "benchmarks": ["acebench"]}
        sweep.write_text(yaml.safe_dump(models))
        loads: list[Callable[[], Any]] = [partial(load_sweep, str(sweep))]
        configs: list[dict[str, Any]] = [
            {"store": {"endpoint_url": address}},
            {"benchmarks": [{"name": "acebench", "user": role}]},
            {"model": {"source": address}},
            {"output": address},
            {"engine": {"hf_overrides": {"a": [address]}}},
        ]
        for number, changes in enumerate(configs):
            path = str(config_file(**changes).rename(tmp_path / f"{number}.yaml"))
            loads += [partial(load_config, path), partial(make_submission, "evaluate", path)]
        for load in loads:
            with pytest.raises(UserError) as caught:
                load()
            assert KEY not in str(caught.value)


@pytest.mark.parametrize("comment", [f"# {SHAPES[0]}", f"# OPENAI_API_KEY={KEY}", f"#key: '{KEY}'"])
def test_a_comment_with_a_key_is_not_submitted(comment, config_file, tmp_path) -> None:
    checkout = tmp_path / "checkout"
    inside = checkout / "configs" / "a.yaml"
    for path in (inside, checkout / "jobs" / "evaluate.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config_file().read_text().rstrip("\n") + f"\n{comment}\n")
    for path in (config_file(), inside):
        path.write_text(inside.read_text())
        values = {"output": "s3://b/p"}
        sent = make_submission("evaluate", str(path), values=values, checkout=checkout)
        assert KEY not in sent.entrypoint
        assert SHAPES[0] not in sent.entrypoint


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": partial(quote, safe=""),
    "query": quote_plus,
    "url, lower case": lambda key: re.sub("%..", lambda code: code[0].lower(), quote(key)),
    "url, twice": lambda key: quote(quote(key)),
    "json": lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
    "json, escapes": lambda key: "".join(f"\\u{ord(sign):04X}" for sign in key),
    "html": html.escape,
    "html, numbers": lambda key: "".join(f"&#{ord(sign):04};" for sign in key),
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_a_key_is_masked_in_each_spelling(spell: Callable[[str], str]) -> None:
    key = "very/secret+key\"<&'"
    assert mask_key(f"bad key {spell(key)}, or {key}", key) == "bad key ***, or ***"
    assert mask_key("very/secret+kez", key) == "very/secret+kez"
    assert mask_key("any", None) == "any"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\\rb"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ends", ""),
        ("\x07\x08", "\\x07\\x08"),
        ("a\u200bb\u2028c", "a\\u200bb\\u2028c"),
        ("\ud800", "\\ud800"),
        ("\ufffe\uffff", "\\ufffe\\uffff"),
    ],
)
def test_control_characters_are_removed_or_shown(text: str, clean: str) -> None:
    assert sanitize_text(text) == clean


def test_cleaning_is_bounded_and_linear() -> None:
    assert len(sanitize_text("\x1b[" * 1_000_000, 500)) < 6_000
    assert sanitize_text("abcdef", 3) == "abc [3 more characters]"
    assert one_line("a\n\n b\t c") == "a b c"
    assert sanitize_line("\x1b[31msk-abcdefghijklmnopqrstuvwxyz\x1b[0m") == "***", (
        "a coloured secret"
    )
    cells = [spreadsheet(text) for text in (" =1", "+1", "-1", "@x", "[f()]", "")]
    assert cells == ["' =1", "'+1", "'-1", "'@x", "[f()]", ""]
