"""The S3 service that requests are signed for is the user's word, never that of a stored run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ace_ray.storage.object_store import open_store
from tests.pipeline.hostile_folders import make_run


@pytest.fixture
def thief() -> Iterator[tuple[str, list[str]]]:
    """A server that notes down whatever it is sent."""
    heard: list[str] = []

    class Listening(BaseHTTPRequestHandler):
        def handle(self) -> None:
            heard.append(self.rfile.readline().decode("latin-1"))

    server = HTTPServer(("127.0.0.1", 0), Listening)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()


def on_s3(s3: Any, folder: Path, endpoint: str, bucket: str = "") -> str:
    run = make_run(folder / "run")
    tree = json.loads((run / "run.json").read_text())
    tree["config"]["store"] = {"endpoint_url": endpoint, "region": None}
    (run / "run.json").write_text(json.dumps(tree))
    uri = f"s3://{s3.bucket}/endpoints-{folder.name}/run"
    store = open_store(uri)
    for path in run.rglob("*"):
        if path.is_file():
            store.put(path.relative_to(run).as_posix(), path.read_bytes())
    return uri


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["score", "compact", "report", "compare"])
def test_no_request_goes_where_a_run_says(
    command: str,
    s3: Any,
    thief: tuple[str, list[str]],
    tmp_path: Path,
    here: Callable[..., Any],
) -> None:
    address, heard = thief
    uri = on_s3(s3, tmp_path, address)
    more = [str(make_run(tmp_path / "other" / "run"))] if command == "compare" else []
    ended = here(command, uri, *more)
    assert heard == []
    assert ended.code == 0, ended.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["score", "compact", "report", "compare"])
def test_the_command_names_the_service(
    command: str, s3: Any, tmp_path: Path, here: Callable[..., Any], monkeypatch: Any
) -> None:
    uri = on_s3(s3, tmp_path, s3.endpoint_url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    more = [str(make_run(tmp_path / "other" / "run"))] if command == "compare" else []
    ended = here(command, uri, *more, "--endpoint-url", s3.endpoint_url, "--region", "us-east-1")
    assert ended.code == 0, ended.stderr


@pytest.mark.parametrize("url", ["http://me:pw-1234567@h", "http://h/?token=abc", "ftp://h", "h"])
def test_an_address_with_a_secret_or_none_is_refused(url: str, here: Callable[..., Any]) -> None:
    ended = here("score", "s3://b/run", "--endpoint-url", url)
    assert ended.code == 2
    assert "pw-1234567" not in ended.stderr
    assert "abc" not in ended.stderr
