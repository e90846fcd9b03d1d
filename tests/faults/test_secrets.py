"""Keys come from the environment, and reach nothing that is written or printed."""

import time
from pathlib import Path

import pytest

from ace_ray.storage.object_store import open_store

KEY = "sk-THIS-IS-A-SECRET-0123456789"


@pytest.mark.ray
@pytest.mark.nightly
def test_keys_are_in_no_file_row_or_line(make_run, s3, monkeypatch):
    began = time.time()
    for name in ("ENDPOINT_KEY", "HF_TOKEN", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, f"{KEY}-{name}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"{KEY}-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{KEY}-secret")
    run = make_run(output=f"s3://{s3.bucket}/secrets", max_attempts=1)
    # No server listens there: the text of the failure goes into rows.
    endpoint = {"url": "http://127.0.0.1:9/v1", "model": "any", "api_key_env": "ENDPOINT_KEY"}
    section = {"name": "acebench", "languages": ["en"], "categories": ["agent_multi_turn"]}
    user = {"endpoint": endpoint | {"max_retries": 0}}
    run.write(benchmarks=[section | {"user": user}], engine={"default": "Nice weather."})
    driver = run.to_the_end()
    assert driver.code in (1, 75), driver.text
    assert KEY not in driver.text
    store = open_store(f"s3://{s3.bucket}/secrets")
    files = store.list()
    assert any(item.path.endswith("run.json") for item in files)
    for item in files:
        assert KEY.encode() not in (store.get(item.path) or b""), item.path
    for row in run.rows():
        assert KEY not in str(row)
    sessions = [s for s in Path("/tmp/ray").glob("session_2*") if s.stat().st_mtime > began]
    assert sessions
    for session in sessions:
        for log in (session / "logs").rglob("*"):
            if log.is_file():
                assert KEY.encode() not in log.read_bytes(), log
