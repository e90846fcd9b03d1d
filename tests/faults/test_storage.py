"""What is stored: while the store refuses writes or is full, in a run that grows, and no secret."""

import importlib
import json
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_writes_are_retried_while_the_store_refuses_them(make_run):
    run = make_run(samples=3, engine={"delay_s": 0.3}, concurrency=2)
    driver = run.start()
    driver.until_stored(4)
    rows, hidden_rows = run.path / "rows", run.path / "aside"
    rows.rename(hidden_rows)
    rows.write_text("no folder")
    driver.until(lambda: driver.text.count("cannot store results yet") > 1)  # engines are done
    rows.unlink()
    hidden_rows.rename(rows)
    assert driver.wait() == 0, driver.text
    assert len(run.rows()) == 36
    assert {row["attempts"] for row in run.rows()} == {1}
    waits = run.summary()["timing"]["waits"]
    assert waits["store"] > waits["tail"] + waits["no_rows"] + waits["checker"], waits


def test_full_disk_ends_the_run_and_loses_nothing(make_run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=66m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no permission to mount a small disk")
    try:
        run = make_run(
            output=str(disk / "runs"),
            samples=3,
            engine={"delay_s": 0.3},
            concurrency=2,
            store_retry_timeout_s=3.0,
        )
        driver = run.start()
        driver.until_stored(4)
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        assert driver.wait() == 75, driver.text
        assert "No space left on device" in driver.text
        filler.unlink()
        row_ids = {row["row_id"] for row in run.rows()}
        assert len(row_ids) >= 4
        again = run.to_the_end(code=0)
        assert f"{36 - len(row_ids)} to evaluate" in again.text
        assert len(run.rows()) == 36
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_a_grown_run_equals_one_run(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "perf"))
    compare = importlib.import_module("same_rows").compare
    run = make_run(run_id=None, engine={"delay_s": 0.3}, sampling={"temperature": 0.7})
    acebench, output = run.tree["benchmarks"][0], Path(run.output)
    steps: list[dict[str, Any]] = [
        {"benchmarks": [{**acebench, "limit": 3}]},
        {"benchmarks": [{**acebench, "limit": 6}]},
        {"samples": 3},
        {"benchmarks": [{**acebench, "limit": 6}, {"name": "bfcl", "limit": 4}]},
    ]

    def stored() -> int:
        return sum(len(read_ledger(open_store(str(path))).ids) for path in output.iterdir())

    for changes, before, rows in zip(steps, (0, 3, 6, 18), (3, 6, 18, 30), strict=True):
        run.write(**changes)
        if before:
            first = run.start()
            first.until(lambda before=before: stored() > before)
            first.kill()
        reused = stored() if before else 0
        last = run.to_the_end(code=0)
        assert f"{rows} rows declared, {rows - reused} to evaluate, {reused} stored" in last.text
    (folder,) = output.iterdir()
    grown = json.loads((folder / "summary.json").read_text())["grown"]
    assert [line.partition(" rows on ")[0] for line in grown] == [
        f"grew from {step}" for step in ("3 to 6", "6 to 18", "18 to 30")
    ]
    run.write(output=str(output.parent / "one"))
    run.to_the_end(code=0)
    (whole,) = (output.parent / "one").iterdir()
    assert (whole.name, compare(str(whole), str(folder), contents=True)) == (folder.name, 0)


KEY = "sk-THIS-IS-A-SECRET-0123456789"


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
