"""The key of a role's server: as ASGI alone, and in front of all that vLLM's server answers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from ace_ray.pipeline.server_auth import KEY_ENV, RequireKey
from ace_ray.pipeline.serving import environment

KEY = "a-key-of-this-run"
GOOD = (b"authorization", b"Bearer a-key-of-this-run")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)


def asked(kind: str = "http", *headers: tuple[bytes, bytes], **scope: Any) -> str:
    """``passed``, or what was sent instead."""
    passed: list[str] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["type"])

    async def receive() -> Any:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    whole = {"type": kind, "method": "GET", "path": "/", "headers": headers, **scope}
    asyncio.run(RequireKey(app)(whole, receive, send))
    assert bool(passed) != bool(sent)
    if passed:
        return "passed"
    return sent[0]["type"] + str(sent[0].get("status") or sent[0].get("code"))


REFUSED = "http.response.start401"


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/v1/models", "/invocations", "/tokenize", "/metrics", "/metrics/", "/load"),
        *("/docs", "/openapi.json", "/ping", "/scale_elastic_ep", "/inference/v1/generate"),
        *("/health/", "//health", "/health/../v1/models", "/HEALTH", "/healthz", "/v1/health", ""),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
def test_nothing_is_answered_without_the_key(path: str, method: str) -> None:
    assert asked(method=method, path=path) == REFUSED
    assert asked("http", GOOD, method=method, path=path) == "passed"


def test_health_is_answered() -> None:
    assert asked(path="/health") == "passed"
    for method in ("POST", "OPTIONS", "DELETE"):
        assert asked(path="/health", method=method) == REFUSED


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"",
            b"Bearer",
            b"Bearer ",
            KEY.encode(),
            b"Basic " + KEY.encode(),
            b"Bearer  " + KEY.encode(),
        ),
        *(b"Bearer " + KEY.encode() + b" ", b"Bearer " + KEY.upper().encode(), b"Bearer \xff\x00"),
        b"Bearer " + KEY.encode()[:-1],
    ],
)
def test_other_keys_do_not_pass(value: bytes) -> None:
    assert asked("http", (b"authorization", value)) == REFUSED


def test_one_key_alone_passes() -> None:
    assert asked("http", (b"Authorization", b"bearer " + KEY.encode())) == "passed"
    assert asked("http", GOOD, (b"authorization", b"Bearer x")) == REFUSED
    assert asked("http", (b"x-api-key", KEY.encode())) == REFUSED


def test_sockets_need_it_too_and_the_start_does_not() -> None:
    assert asked("websocket", path="/v1/realtime") == "websocket.close1008"
    assert asked("websocket", path="/health") == "websocket.close1008"
    assert asked("websocket", GOOD, path="/v1/realtime") == "passed"
    assert asked("lifespan") == "passed"


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_key_there_is_no_server(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv(KEY_ENV) if value is None else monkeypatch.setenv(KEY_ENV, value)
    with pytest.raises(RuntimeError, match=KEY_ENV):
        asked()


# vLLM's own application with every route that it would serve; there is no engine behind it.
ROUTES = """
import json, sys
from starlette.testclient import TestClient
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from ace_ray.models.roles import ServedRole
from ace_ray.pipeline.serving import command
from pathlib import Path

role = ServedRole.model_validate({"model": {"source": "org/m"}})
line = command(Path("/m"), role, {}, name="m", host="127.0.0.1", port=1)
args = make_arg_parser(FlexibleArgumentParser()).parse_args(line[3:])
app = build_app(args, ("generate", "embed"))
client = TestClient(app, raise_server_exceptions=False)
found = {}
for route in app.routes:
    for method in sorted(getattr(route, "methods", None) or ["GET"]):
        status = client.request(method, route.path).status_code
        found[f"{method} {route.path}"] = status
keyed = {"Authorization": f"Bearer {sys.argv[1]}"}
found["key"] = client.get("/version", headers=keyed).status_code
print(json.dumps(found))
"""


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_vllms_server_answers_health_alone_without_the_key() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ROUTES, KEY],
        env=environment(KEY) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("GET /health") != 401
    assert found.pop("key") == 200
    for path in ("POST /invocations", "POST /tokenize", "GET /metrics", "GET /v1/models"):
        assert path in found
    assert {path: status for path, status in found.items() if status != 401} == {}
