"""The command line as a user meets it; one run with the fake engine from start to end."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

Write = Callable[..., Path]


def test_help_names_every_command(here: Any) -> None:
    ended = here("--help")
    assert ended.code == 0
    for command in ("evaluate", "doctor", "score", "report", "data", "judge"):
        assert command in ended.stdout
    assert here("data", "--help").stdout.count("acebench") == 0
    assert here("--version").stdout.startswith("ace-ray")


def test_a_wrong_option_exits_with_2(here: Any) -> None:
    for arguments in (["evaluate"], ["evaluate", "x", "--limit", "0"], ["nonsense"], ["score"]):
        assert here(*arguments).code == 2


def test_doctor_finds_nothing_wrong(here: Any, config_file: Write, tmp_path: Path) -> None:
    ended = here("doctor", config_file())
    assert ended.code == 0, ended.stdout
    topics = [line.split()[1] for line in ended.stdout.splitlines()]
    assert topics[:3] == ["machine", "installed", "config"]
    assert {"model", "data", "plan", "cluster", "prompts", "output"} <= set(topics)
    assert not (tmp_path / "out").exists()


def test_doctor_says_what_does_not_fit_this_machine(here: Any, config_file: Write) -> None:
    ended = here("doctor", config_file(workers=5000))
    assert ended.code == 2
    (failed,) = [line for line in ended.stdout.splitlines() if line.startswith("FAIL")]
    assert "cluster" in failed
    assert "5000 worker(s)" in failed


def test_doctor_takes_a_real_folder_without_loading_it(
    here: Any, config_file: Write, model_folder: Write
) -> None:
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    path = config_file(backend="vllm", model={"source": str(model_folder())})
    ended = here("doctor", path)
    assert ended.code == 0, ended.stdout


def test_output_is_taken_as_it_is(here: Any, config_file: Write, tmp_path: Path) -> None:
    ended = here("doctor", config_file(), "--output", f"{tmp_path}/a: [b] #c")
    assert ended.code == 0
    assert "a: [b] #c/acebench-fake-" in ended.stdout


@pytest.fixture
def run_config(config_file: Write, tmp_path: Path, s3: Any) -> Path:
    """Eight rows of the mini set; the context is too short for the longest prompt of them."""
    from ace_ray.config.schema import load_config
    from ace_ray.models.fake import count_words
    from ace_ray.pipeline.planning.plan import make_plan
    from ace_ray.pipeline.planning.preflight import make_benchmarks, resolve_model

    output = f"s3://{s3.bucket}/{tmp_path.name}"
    path = config_file(limit=8, output=output, run_id="run")
    config = load_config(str(path))
    plan = make_plan(config, resolve_model(config), make_benchmarks(config))
    (benchmark,) = plan.benchmarks.values()
    words = sorted(count_words(benchmark.prompt(entry)) for entry in plan.entries)
    assert words[-2] < words[-1]
    return config_file(limit=8, output=output, run_id="run", engine={"max_model_len": words[-1]})


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_run_lands_on_s3_and_goes_on_where_it_was(
    cli: Any, run_config: Path, s3: Any, tmp_path: Path
) -> None:
    # Not the cluster of whoever else works on this machine.
    ended = cli("evaluate", run_config, env={"RAY_ADDRESS": "local"})
    assert ended.code == 0, ended.stdout + ended.stderr
    assert "declared 8 = 7 scored + 1 skipped" in ended.stdout
    assert "1 x PromptTooLong" in ended.stdout
    assert "no headline number" in ended.stdout

    prefix = f"{tmp_path.name}/run/"
    listed = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix=prefix)["Contents"]
    objects = {
        item["Key"].removeprefix(prefix): s3.client.get_object(Bucket=s3.bucket, Key=item["Key"])[
            "Body"
        ].read()
        for item in listed
    }
    parts = {name for name in objects if name.startswith("rows/part-")}
    assert set(objects) - parts == {"_SUCCESS", "run.json", "summary.json"}
    rows = []
    for name in parts:
        (tmp_path / "part.parquet").write_bytes(objects[name])
        rows += pq.read_table(tmp_path / "part.parquet").to_pylist()
    assert len({row["row_id"] for row in rows}) == len(rows) == 8
    (skipped,) = [row for row in rows if row["status"] == "skipped"]
    assert skipped["error_class"] == "PromptTooLong"
    assert skipped["official_valid"] is None
    assert all(row["official_valid"] is not None for row in rows if row["status"] == "scored")

    manifest = json.loads(objects["run.json"])
    assert manifest["declared"] == 8
    saved = tmp_path / "run.json"
    saved.write_bytes(objects["run.json"])
    # The saved manifest is a config too: it names the same run, which has no pending rows.
    again = cli("evaluate", saved)
    assert again.code == 0, again.stdout + again.stderr
    assert "8 rows declared, 0 to evaluate" in again.stdout
    told = cli("evaluate", saved, "--log-format", "json", "--log-level", "warning")
    assert (told.code, told.stderr) == (0, "")
    (results,) = map(json.loads, told.stdout.splitlines())
    assert (results["event"], results["run_id"], results["scored"]) == ("results", "run", 7)
    assert results["scores"]["acebench"]["official"]
    other = cli("evaluate", run_config, "--set", "sampling.seed=1")
    assert other.code == 2
    assert "holds a different run" in other.stderr
