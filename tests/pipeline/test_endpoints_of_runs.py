"""The S3 service that requests are signed for is named by the command, never by a stored run."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.storage.object_store import open_store
from tests.pipeline.made_run import sound_run


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["score", "compact", "report", "compare"])
def test_requests_go_where_the_command_says_and_not_where_a_run_says(
    command: str, s3: Any, tmp_path: Path, invoke: Callable[..., Any], monkeypatch: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        thief.settimeout(0.1)
        run = sound_run(tmp_path / "run")
        tree = json.loads((run / "run.json").read_text())
        address = f"http://127.0.0.1:{thief.getsockname()[1]}"
        tree["config"]["store"] = {"endpoint_url": address, "region": None}
        (run / "run.json").write_text(json.dumps(tree))
        uri = f"s3://{s3.bucket}/endpoints-{tmp_path.name}/run"
        store = open_store(uri)
        for path in run.rglob("*"):
            if path.is_file():
                store.put(path.relative_to(run).as_posix(), path.read_bytes())
        more = [str(sound_run(tmp_path / "other" / "run"))] if command == "compare" else []
        result = invoke(command, uri, *more)
        assert result.code == 0, result.stderr
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        options = ["--endpoint-url", s3.endpoint_url, "--region", "us-east-1"]
        result = invoke(command, uri, *more, *options)
        assert result.code == 0, result.stderr
        with pytest.raises(TimeoutError):
            thief.accept()


@pytest.mark.parametrize("url", ["http://me:pw-1234567@h", "http://h/?token=abc", "ftp://h", "h"])
def test_an_address_with_a_secret_or_without_http_is_refused(url, invoke) -> None:
    result = invoke("score", "s3://b/run", "--endpoint-url", url)
    assert result.code == 2
    assert "pw-1234567" not in result.stderr
    assert "abc" not in result.stderr
