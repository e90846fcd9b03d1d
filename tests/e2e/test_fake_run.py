"""Whole runs on S3 with the fake engine."""

import json
from pathlib import Path

import pytest

from ace_ray.storage.object_store import open_store
from tests.conftest import S3, Cli

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_run_on_s3_is_complete_and_can_start_afresh(config: Path, cli: Cli, s3: S3) -> None:
    output = f"s3://{s3.bucket}/e2e"
    args = ["evaluate", config, "--output", output]

    def names() -> list[str]:
        return [item.path.partition("/")[2] for item in open_store(output).list()]

    result = cli(*args)
    assert result.code == 0, result.stdout + result.stderr
    assert "core_worker" not in result.stderr, "a warning of Ray"
    again = cli(*args, "--log-format", "json", "--log-level", "warning")
    assert (again.code, again.stderr) == (0, "")
    (results,) = map(json.loads, again.stdout.splitlines())
    assert (results["event"], results["scored"]) == ("results", 4)
    before = names()
    refused = cli(*args, "--set", "workers=4000", "--fresh")
    assert refused.code == 2, refused.stdout + refused.stderr
    assert names() == before
    (run,) = {item.path.partition("/")[0] for item in open_store(output).list()}
    store = open_store(f"{output}/{run}")
    summary = json.loads(store.get("summary.json") or b"")
    summary["timing"]["device_s"]["load"] = 1e6
    store.put("summary.json", json.dumps(summary).encode())
    fresh = cli(*args, "--fresh")
    assert "4 rows declared, 4 to evaluate" in fresh.stdout
    summary = json.loads(store.get("summary.json") or b"")
    assert summary["timing"]["device_s"]["load"] < 1e6, "the time of the deleted run is gone"
    assert {"_SUCCESS", "run.json", "summary.json"} <= set(names())
