"""The key of a role's server: as an ASGI layer, and before all routes of vLLM's server."""

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
REFUSED = "http.response.start401"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)


def asked(kind: str = "http", *headers: tuple[bytes, bytes], **scope: Any) -> str:
    """Return ``passed``, or what was sent instead."""
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


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_only_health_is_answered_without_the_key(method: str) -> None:
    for path in ("/v1/models", "//health", "/health/../v1/models", "/HEALTH", "/healthz", ""):
        assert asked(method=method, path=path) == REFUSED
        assert asked("http", GOOD, method=method, path=path) == "passed"
    assert asked(method=method, path="/health") == ("passed" if method == "GET" else REFUSED)
    for path in ("/v1/realtime", "/health"):
        assert asked("websocket", path=path) == "websocket.close1008"
    assert asked("websocket", GOOD, path="/v1/realtime") == "passed"
    assert asked("lifespan") == "passed", "the start of the server"


def test_one_key_alone_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    right = KEY.encode()
    assert asked("http", (b"Authorization", b"bearer " + right)) == "passed"
    wrong = (b"", b"Bearer ", right, b"Basic " + right, b"Bearer  " + right, b"Bearer \xff\x00")
    for value in (*wrong, b"Bearer " + right.upper(), b"Bearer " + right[:-1]):
        assert asked("http", (b"authorization", value)) == REFUSED
    assert asked("http", GOOD, (b"authorization", b"Bearer x")) == REFUSED
    assert asked("http", (b"x-api-key", right)) == REFUSED
    monkeypatch.setenv(KEY_ENV, "")
    with pytest.raises(RuntimeError, match=KEY_ENV):
        asked()


# The application of vLLM with all its routes, without an engine.
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
def test_vllm_s_server_answers_only_health_without_the_key() -> None:
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
