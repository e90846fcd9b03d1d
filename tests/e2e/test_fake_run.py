"""Whole runs through the command line on a real local Ray, with the engine that reads a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.storage.object_store import open_store
from ace_ray.storage.rows import ROWS
from tests.faults.fault_runs import descendants, title_of

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

CATEGORIES = ["normal_atom_bool", "special_incomplete"]


def evaluate(config: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ace_ray.cli.main", "evaluate", str(config), *args],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        env={**os.environ, **env},
    )


def names_in(output: str) -> list[str]:
    """The files of the one run in a folder."""
    return [item.path.partition("/")[2] for item in open_store(output).list()]


def rows_of(folder: Path) -> pa.Table:
    parts = sorted(folder.glob("rows/*.parquet"))
    return pa.concat_tables(pq.read_table(part) for part in parts)


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> tuple[Path, dict]:
    """A config whose engine knows the gold answer of every entry but five."""
    folder = tmp_path_factory.mktemp("fake")
    entries = load(locate("mini"), languages=["en"], categories=CATEGORIES)
    replies = {entry.data["question"]: render_gold(entry) for entry in entries}
    wrong, thinker, fails, dies, unclosed = [entry.data["question"] for entry in entries[:5]]
    replies[wrong] = "[nothing()]"
    replies[thinker] = f"<think>Let me see.</think>{replies[thinker]}"
    replies[unclosed] = "<think>Let me see, and see, and"
    engine = {
        "replies": replies,
        "fail": {fails: "no \ud800 luck"},
        "die": {dies: str(folder / "died")},
    }
    config = {
        "model": {"source": "fake"},
        "backend": "fake",
        "benchmarks": [
            {"name": "acebench", "languages": ["en"], "categories": CATEGORIES},
        ],
        "engine": engine,
        "samples": 2,
        "rows_per_part": 6,
        "max_attempts": 1,
        "output": str(folder / "runs"),
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path, {"entries": entries, "folder": folder, "config": config}


@pytest.fixture(scope="module")
def first(script) -> tuple[subprocess.CompletedProcess[str], Path]:
    path, facts = script
    done = evaluate(path)
    assert (facts["folder"] / "runs").exists(), done.stderr
    (run,) = (facts["folder"] / "runs").iterdir()
    return done, run


def test_a_dead_engine_costs_no_row(first):
    done, run = first
    assert "engine death" in done.stdout or (run.parent.parent / "died").exists()
    table = rows_of(run)
    assert table.num_rows == 16
    assert len(set(table.column("row_id").to_pylist())) == 16


def test_failed_rows_are_rows_and_make_the_run_incomplete(first):
    done, run = first
    assert done.returncode == 75, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["declared"], summary["scored"], summary["infra_error"]) == (16, 14, 2)
    assert not summary["complete"]
    assert not summary["headline"]
    assert not (run / "_SUCCESS").exists()
    assert "no headline number" in done.stdout
    failed = [row for row in rows_of(run).to_pylist() if row["status"] == "infra_error"]
    assert {row["error_class"] for row in failed} == {"RuntimeError"}
    assert all(row["official_valid"] is None for row in failed)


def test_rows_have_the_documented_schema(first):
    _, run = first
    assert rows_of(run).schema.remove_metadata() == ROWS
    documented = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    assert all(f"`{name}`" in documented for name in ROWS.names)


def test_verdicts_and_reasoning(first, script):
    _, run = first
    entries = script[1]["entries"]
    by_id = {row["id"]: row for row in rows_of(run).to_pylist() if row["sample"] == 0}
    wrong, thinker, _, _, unclosed, *rest = [by_id[entry.id] for entry in entries]
    assert (wrong["official_valid"], wrong["strict_valid"]) == (False, False)
    assert thinker["strict_valid"]
    assert thinker["reasoning"] == "Let me see."
    assert unclosed["reasoning_truncated"]
    assert unclosed["output"] == ""
    assert not unclosed["strict_valid"]
    assert all(row["official_valid"] and row["strict_valid"] for row in rest)


def test_resume_evaluates_only_what_is_pending(first, script):
    path, _ = script
    _, run = first
    before = rows_of(run)
    # The same rows, whichever way their workers come.
    again = evaluate(path, "--set", "workers={min: 1, max: 2}")
    assert "16 rows declared, 2 to evaluate" in again.stdout, again.stdout + again.stderr
    assert again.returncode == 75
    assert rows_of(run).num_rows == before.num_rows + 2


def test_a_manifests_config_runs_again_as_it_is_in_the_same_folder(first, script, tmp_path):
    _, facts = script
    _, run = first
    resolved = json.loads((run / "run.json").read_text())["config"]
    other = tmp_path / "resolved.yaml"
    other.write_text(yaml.safe_dump(resolved))
    assert "16 rows declared, 2 to evaluate" in evaluate(other).stdout
    assert facts["config"]["samples"] == resolved["samples"]


def test_s3_run_is_complete_and_fresh_starts_over(script, s3, tmp_path):
    path, _ = script
    output = f"s3://{s3.bucket}/e2e"
    args = ["--output", output, "--set", "samples=1", "--set", "engine.fail={}"]
    done = evaluate(path, *args)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "core_worker" not in done.stderr, "Ray's own warnings say nothing to a user"
    again = evaluate(path, *args)
    assert "8 rows declared, 0 to evaluate" in again.stdout
    before = names_in(output)
    refused = evaluate(path, *args, "--set", "workers=4", "--fresh")
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert names_in(output) == before
    (run,) = {item.path.partition("/")[0] for item in open_store(output).list()}
    store = open_store(f"{output}/{run}")
    told = json.loads(store.get("summary.json") or b"")
    told["timing"]["device_s"]["load"] = 1e6
    store.put("summary.json", json.dumps(told).encode())
    fresh = evaluate(path, *args, "--fresh")
    assert "8 rows declared, 8 to evaluate" in fresh.stdout
    told = json.loads(store.get("summary.json") or b"")
    assert told["timing"]["device_s"]["load"] < 1e6, "what the run before took is not this one's"
    names = names_in(output)
    assert {"_SUCCESS", "run.json", "summary.json"} <= set(names)
    assert sum(name.startswith("rows/part-") for name in names) == len(names) - 3


def test_a_cluster_that_is_held_but_for_a_fraction_of_a_cpu(tmp_path: Path) -> None:
    """Sandboxes, or served models, are there before the graph: nothing else may ask for a whole."""
    cpus = os.cpu_count() or 1
    config = {
        "model": {"source": "fake"},
        "backend": "fake",
        "benchmarks": [
            {"name": "acebench", "languages": ["en"], "categories": ["agent_multi_step"]}
        ],
        "engine": {"default": "finish conversation"},
        "worker_cpus": cpus - 0.6,
        "workers": 1,
        "limit": 2,
        "output": str(tmp_path / "runs"),
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    done = evaluate(path)
    assert done.returncode == 0, done.stderr
    assert "declared 2 = 2 scored" in done.stdout


def test_a_ray_of_its_own_has_no_helpers(make_run):
    """No server of a dashboard, no autoscaler, no log monitor, no actors of Ray Data's that only
    gather numbers: each of them costs an engine on a small machine."""
    run = make_run(limit=2)
    go = run.marker("go")
    run.write(engine={"answer_file": go})
    driver = run.start()
    for actor in ("EngineWorker", "Checker", "Writer"):
        driver.find(actor)
    titles = [title_of(process) for process in descendants(driver.process.pid)]
    helpers = ("dashboard.py", "monitor.py", "_StatsActor", "AutoscalingCoordinator")
    assert not [title for title in titles if any(map(title.__contains__, helpers))]
    Path(go).touch()
    assert driver.wait() == 0, driver.text
