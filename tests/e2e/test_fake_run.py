"""Whole runs on S3 with the fake engine."""

import json
from typing import Any

import pytest

from ace_ray.storage.object_store import open_store
from tests.conftest import S3, Cli

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_run_on_s3_is_complete_and_can_start_afresh(config_file: Any, cli: Cli, s3: S3) -> None:
    output = f"s3://{s3.bucket}/e2e"
    benchmark = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
    args = ["evaluate", config_file(benchmarks=[benchmark], limit=None), "--output", output]

    def names() -> list[str]:
        return [item.path.partition("/")[2] for item in open_store(output).list()]

    result = cli(*args).ok()
    assert "core_worker" not in result.stderr, "a warning of Ray"
    before = names()
    assert cli(*args, "--set", "workers=4000", "--fresh").code == 2
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
